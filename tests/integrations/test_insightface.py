"""The interface of insightface, with a small model and a fake detector."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.embedding import FaceOutputs, OnnxEmbedder
from facerts.errors import Error, ImageError, ModelError
from facerts.images.align import TEMPLATE
from facerts.integrations.insightface import FaceAnalysis, FaceDict, add_quality
from tests.foreign import slow_embedding, write_description, write_embedder

ImageArray = NDArray[np.uint8]
SIDE = 112


class Grid:
    """A detector that finds a face in every 112-pixel square that is not black, with larger boxes further right."""

    identity = "grid"

    def __call__(self, image: ImageArray) -> list[Detection]:
        found = []
        for left in range(0, image.shape[1], SIDE):
            if image[:, left : left + SIDE].any():
                corner = np.array([left, 0.0])
                far = corner + SIDE + left / 2
                found.append(Detection(np.concatenate([corner, far]), TEMPLATE + corner, 0.5 + left / 1000))
        return sorted(found, key=lambda face: face.area, reverse=True)


@pytest.fixture
def detector_calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of `open_detector`, which is replaced by one that returns `Grid`."""
    calls: list[dict[str, Any]] = []

    def open_detector(name: object, **options: Any) -> Grid:
        calls.append({"name": name, **options})
        return Grid()

    monkeypatch.setattr("facerts.integrations.insightface.open_detector", open_detector)
    return calls


@pytest.fixture
def app(model: Path, detector_calls: list[dict[str, Any]]) -> FaceAnalysis:
    app = FaceAnalysis(model)
    app.prepare(ctx_id=-1)
    return app


def photo(*identities: int) -> tuple[ImageArray, ImageArray]:
    """A BGR photo of synthetic faces side by side, and their RGB crops."""
    crops = np.stack([draw_face(identity, 0) for identity in identities])
    return np.concatenate(list(crops), axis=1)[..., ::-1], crops


def test_faces_have_the_attributes_of_insightface_and_a_quality(app: FaceAnalysis) -> None:
    img, crops = photo(0, 1)
    faces = app.get(img)
    assert len(faces) == 2
    for face, crop, left in zip(faces, crops[::-1], (SIDE, 0), strict=True):
        raw = slow_embedding(crop[None])[0]
        np.testing.assert_allclose(face.embedding, raw, atol=1e-4)
        assert face.embedding_norm == pytest.approx(np.linalg.norm(raw), rel=1e-5)
        np.testing.assert_allclose(face.normed_embedding, raw / np.linalg.norm(raw), atol=1e-5)
        np.testing.assert_allclose(face.kps, TEMPLATE + np.array([left, 0]), atol=0.01)
        np.testing.assert_array_equal(face.bbox, [left, 0, left * 1.5 + SIDE, left / 2 + SIDE])
        assert face.det_score == pytest.approx(0.5 + left / 1000)
        assert face.quality == pytest.approx(((crop - 127.5) / 127.5).mean(), abs=1e-4)
        assert face.uncertainty == -face.quality
        assert face.accepted is None
        for name, shape in (("bbox", (4,)), ("kps", (5, 2)), ("embedding", (8,))):
            assert (face[name].shape, face[name].dtype) == (shape, np.float32)


def test_a_face_has_attributes_and_items_and_names_missing_ones(app: FaceAnalysis) -> None:
    face = app.get(photo(0)[0])[0]
    face.name = "Ann"
    face["age"] = 30
    assert (face["name"], face.age, face.quality) == ("Ann", 30, face["quality"])
    assert not hasattr(face, "gender")
    with pytest.raises(
        AttributeError, match="no 'embeding'; it has bbox, kps, det_score, embedding, quality"
    ):
        _ = face.embeding
    with pytest.raises(AttributeError):
        _ = FaceDict(kps=face.kps).normed_embedding
    for other in (copy.deepcopy(face), pickle.loads(pickle.dumps(face))):
        assert (type(other), other.name, other.quality) == (FaceDict, "Ann", face.quality)
        np.testing.assert_array_equal(other.normed_embedding, face.normed_embedding)


def test_faces_are_accepted_by_the_chosen_threshold(
    model: Path, detector_calls: list[dict[str, Any]]
) -> None:
    for options, threshold in (({"keep": 0.95}, 0.0), ({"min_quality": -0.1}, -0.1), ({}, None)):
        app = FaceAnalysis(model, **options)  # type: ignore[arg-type]
        app.prepare()
        for face in app.get(photo(*range(6))[0]):
            assert face.accepted == (None if threshold is None else face.quality >= threshold)
    with pytest.raises(ModelError, match=r"no threshold that keeps 0\.5"):
        FaceAnalysis(model, keep=0.5).prepare()


def test_options_reach_the_models(model: Path, detector_calls: list[dict[str, Any]], tmp_path: Path) -> None:
    providers = ["CPUExecutionProvider"]
    app = FaceAnalysis(model, detector=tmp_path, providers=providers, threads=1)
    app.prepare(ctx_id=0, det_thresh=0.7, det_size=(320, 256))
    options = {"threshold": 0.7, "size": 320, "providers": providers, "threads": 1}
    assert detector_calls == [{"name": tmp_path, **options}]
    FaceAnalysis(model, providers=["CUDAExecutionProvider"]).prepare(ctx_id=-1)
    assert detector_calls[-1]["providers"] == ["CPUExecutionProvider"]
    assert detector_calls[-1]["size"] is None


def test_a_missing_prepare_or_detector_is_an_error(model: Path) -> None:
    with pytest.raises(Error, match=r"call prepare\(\) first"):
        FaceAnalysis(model).get(photo(0)[0])
    with pytest.raises(Error, match="none: no such detector or file; give yunet or"):
        FaceAnalysis(model, detector="none").prepare()


def test_max_num_keeps_the_most_important_faces(app: FaceAnalysis) -> None:
    img, _ = photo(0, 1, 2, 3, 4)

    def lefts(faces: list[FaceDict]) -> list[int]:
        return [round(float(face.bbox[0])) // SIDE for face in faces]

    assert lefts(app.get(img)) == [4, 3, 2, 1, 0]
    assert lefts(app.get(img, max_num=2, det_metric="max")) == [4, 3]
    # By hand: the area of each box minus twice the squared distance of its center from the image center.
    boxes = np.array([[left, 0, 1.5 * left + SIDE, SIDE + left / 2] for left in range(0, 5 * SIDE, SIDE)])
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    offsets = (boxes[:, :2] + boxes[:, 2:]) / 2 - [2.5 * SIDE, SIDE / 2]
    order = np.argsort(-(areas - 2 * (offsets**2).sum(axis=1)))
    assert lefts(app.get(img, max_num=2)) == order[:2].tolist() != [4, 3]
    assert len(app.get(img, max_num=9)) == 5
    with pytest.raises(Error, match="unknown det_metric 'maximum', did you mean 'max'"):
        app.get(img, 1, "maximum")  # type: ignore[arg-type]


def test_get_many_gives_the_same_faces_in_fewer_batches(
    app: FaceAnalysis, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = [photo(0, 1)[0], np.zeros((SIDE, SIDE, 3), np.uint8), photo(2)[0], photo(3, 4, 5)[0]]
    alone = [app.get(image) for image in images]
    batches, call = [], OnnxEmbedder.outputs

    def counting_call(self: OnnxEmbedder, crops: ImageArray) -> FaceOutputs:
        batches.append(len(crops))
        return call(self, crops)

    monkeypatch.setattr(OnnxEmbedder, "outputs", counting_call)
    together = app.get_many(iter(images))
    assert batches == [6]
    assert [len(faces) for faces in together] == [2, 0, 1, 3]
    for faces, others in zip(together, alone, strict=True):
        for face, other in zip(faces, others, strict=True):
            np.testing.assert_allclose(face.embedding, other.embedding, atol=1e-4)
            assert face.quality == pytest.approx(other.quality, abs=1e-5)
    assert [len(faces) for faces in app.get_many(images, max_num=1)] == [1, 0, 1, 1]
    assert app.get_many([]) == []


BAD = [
    (None, "is None, which cv2.imread returns"),
    ("photo.jpg", "not str"),
    (np.zeros((4, 4), np.uint8), r"not \(4, 4\) uint8"),
    (np.zeros((4, 4, 4), np.uint8), r"not \(4, 4, 4\) uint8"),
    (np.zeros((4, 4, 3)), r"not \(4, 4, 3\) float64"),
    (np.zeros((0, 4, 3), np.uint8), r"not \(0, 4, 3\)"),
]


def test_an_invalid_bgr_image_is_named(app: FaceAnalysis) -> None:
    for bad, message in BAD:
        with pytest.raises(ImageError, match=f"^img .*{message}"):
            app.get(bad)
        with pytest.raises(ImageError, match=f"^image 1 .*{message}"):
            app.get_many([photo(0)[0], bad])
        with pytest.raises(ImageError, match=f"^img .*{message}"):
            add_quality([], bad, app.scorer)


@pytest.mark.parametrize("kind", [FaceDict, SimpleNamespace])
def test_faces_found_by_insightface_get_a_quality(model: Path, kind: Callable[..., Any]) -> None:
    scorer = facerts.load(model)
    img, crops = photo(3, 1, 2)
    faces = [
        kind(kps=(TEMPLATE + np.array([SIDE * number, 0])).astype(np.float32), age=number)
        for number in range(3)
    ]
    add_quality(faces, img, scorer, keep=0.95)
    for face, row, age in zip(faces, scorer.score(crops, keep=0.95), range(3), strict=True):
        assert face.quality == pytest.approx(row.quality, abs=1e-5)
        assert face.uncertainty == pytest.approx(row.uncertainty, abs=1e-5)
        assert (face.accepted, face.percentile, face.age) == (row.accepted, None, age)
        assert face.reasons == row.reasons
    add_quality([], img, scorer)


def test_faces_without_landmarks_and_models_without_quality_are_refused(model: Path, tmp_path: Path) -> None:
    scorer = facerts.load(model)
    img, _ = photo(0)
    good = SimpleNamespace(kps=TEMPLATE)
    for kps in (None, TEMPLATE[:4], np.full((5, 2), np.nan), np.ones((5, 2))):
        with pytest.raises(Error, match="face 1 has no five landmarks"):
            add_quality([good, SimpleNamespace(kps=kps)], img, scorer)
    with pytest.raises(Error, match="face 0 has no five landmarks"):
        add_quality([SimpleNamespace()], img, scorer)
    plain = write_embedder(tmp_path / "plain.onnx")
    write_description(plain, quality="none")
    with pytest.raises(ModelError, match="plain has no quality"):
        add_quality([good], img, facerts.load(plain))


def test_a_real_detector_gives_the_same_scores_as_scoring(
    model: Path, reference_models: Path, facerts_data: Path
) -> None:
    yunet = reference_models / "face_detection_yunet_2023mar.onnx"
    paths = sorted((facerts_data / "photos" / "lfw").iterdir())[:3]
    app = FaceAnalysis(model, detector=yunet)
    app.prepare(ctx_id=-1, det_thresh=0.6)
    found = app.get_many([cv2.imread(str(path)) for path in paths])
    rows = facerts.load(model, detector=yunet).score(paths)
    faces = [face for faces in found for face in faces]
    assert len(faces) >= 3
    assert [row.quality for row in rows if row.face is not None] == pytest.approx(
        [face.quality for face in faces], abs=1e-4
    )
