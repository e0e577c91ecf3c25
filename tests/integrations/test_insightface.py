"""The interface of insightface, with a small model and a fake detector."""

from __future__ import annotations

import copy
import pickle
import shutil
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
from facerts.errors import Error, ImageError, MissingModelError, ModelError
from facerts.images.align import TEMPLATE
from facerts.integrations.insightface import CROP_SCORES, FaceAnalysis, FaceDict, add_quality
from facerts.scoring.annotate import ACCEPTED
from tests.detectors import write_scrfd
from tests.foreign import slow_embedding, write_description, write_embedder

ImageArray = NDArray[np.uint8]
SIDE = 112
CPU_ONLY: dict[str, Any] = {"providers": ["CPUExecutionProvider"], "threads": None}


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


def analysis(*arguments: Any, **options: Any) -> FaceAnalysis:
    app = FaceAnalysis(*arguments, **options)
    app.prepare(ctx_id=-1)
    return app


@pytest.fixture
def app(model: Path, detector_calls: list[dict[str, Any]]) -> FaceAnalysis:
    return analysis(model)


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
        (row,) = facerts.load().score(crop)
        assert (face.quality, face.percentile) == (pytest.approx(row.quality, abs=1e-4), row.percentile)
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
    img = photo(*range(6))[0]
    half = float(np.median([face.quality for face in analysis(model).get(img)]))
    for options, threshold in (
        ({"keep": 0.95}, facerts.Quality().threshold(0.95)),
        ({"min_quality": half}, half),
    ):
        for face in analysis(model, **options).get(img):
            assert face.accepted == (face.quality >= threshold)
    with pytest.raises(ModelError, match=r"2 is no share of the faces"):
        analysis(model, keep=2)


def test_options_reach_the_models(
    model: Path, detector_calls: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FaceAnalysis(model, detector=tmp_path, threads=1)
    app.prepare(ctx_id=0, det_thresh=0.7, det_size=(320, 256))
    options = {"threshold": 0.7, "size": 320, "providers": ["auto"], "threads": 1}
    assert detector_calls == [{"name": tmp_path, **options}]
    (face,) = analysis(model, allowed_modules=["detection"]).get(photo(0)[0])
    assert list(face) == ["bbox", "kps", "det_score", *CROP_SCORES]
    assert detector_calls[-1] == {"name": "yunet", "threshold": 0.5, "size": None} | CPU_ONLY
    with pytest.raises(Error, match="allowed_modules must contain 'detection'"):
        FaceAnalysis(model, allowed_modules=["recognition"])
    with pytest.raises(Error, match="providers are given by name"):
        FaceAnalysis(model, providers=[("CUDAExecutionProvider", {"device_id": 0})])  # type: ignore[list-item]


def test_providers_that_are_not_here_are_passed_over_with_one_warning(
    model: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: CPU_ONLY["providers"])
    monkeypatch.setattr("facerts.onnx.session._passed_over", set())
    providers = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    for _ in range(2):
        app = FaceAnalysis(model, providers=providers, detector=write_scrfd(tmp_path / "scrfd.onnx"))
        app.prepare(ctx_id=0, det_size=(640, 640))
        assert app.scorer.recognizer.opened.providers == CPU_ONLY["providers"]
    (said,) = capfd.readouterr().err.splitlines()
    assert "no CUDAExecutionProvider here" in said
    assert said.endswith("running on CPUExecutionProvider instead")


def test_a_pack_is_found_where_insightface_keeps_it(tmp_path: Path) -> None:
    pack = tmp_path / "models" / "buffalo_l"
    pack.mkdir(parents=True)
    write_scrfd(pack / "det_10g.onnx")
    write_embedder(pack / "w600k_r50.onnx", size=128)
    zipped = shutil.make_archive(str(tmp_path / "mine"), "zip", pack)
    white = np.full((160, 160, 3), 255, np.uint8)
    for name in ("buffalo_l", "buffalo-l", str(pack), zipped):
        faces = analysis(name, tmp_path).get(white, max_num=1)
        assert [face.embedding.shape for face in faces] == [(128,)]
    (pack / "det_10g.onnx").unlink()
    with pytest.raises(MissingModelError, match="yunet is not on this machine"):
        analysis("buffalo_l", tmp_path)
    with pytest.raises(ModelError, match="one SCRFD detector with five points, but this one has none"):
        analysis("buffalo_l", tmp_path, detector=pack)


def test_a_pack_that_is_not_here_is_pulled_by_its_name_if_that_is_allowed(
    model: Path, detector_calls: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(
        ModelError, match="buffalo-l is not on this machine: run facerts models pull buffalo-l"
    ):
        analysis("buffalo_l", tmp_path)
    monkeypatch.setenv("FACERTS_OFFLINE", "0")
    monkeypatch.setattr("facerts.hub.find.install", {"buffalo-l": model}.__getitem__)
    assert len(analysis("buffalo_l", tmp_path).get(photo(0, 1)[0])) == 2
    assert detector_calls[-1]["name"] == "yunet"


def test_a_missing_prepare_or_detector_is_an_error(model: Path) -> None:
    with pytest.raises(Error, match=r"call prepare\(\) first"):
        FaceAnalysis(model).get(photo(0)[0])
    with pytest.raises(Error, match="none: no such detector or file; give yunet or"):
        analysis(model, detector="none")


def test_faces_are_drawn_in_a_copy_of_the_same_size(app: FaceAnalysis) -> None:
    img, _ = photo(0, 1)
    faces = app.get(img)
    faces[0].accepted = True
    untouched = img.copy()
    drawn = app.draw_on(img, [*faces, SimpleNamespace(bbox=np.array([10, 40, 60, 90]), kps=None)])
    assert (drawn.shape, drawn.dtype) == (img.shape, np.uint8)
    np.testing.assert_array_equal(img, untouched)
    # Green in BGR at the left side of the accepted face.
    assert np.abs(drawn[60, SIDE].astype(int) - ACCEPTED[::-1]).max() < 60
    assert (drawn != img).any(axis=2).sum() > SIDE


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
    (None, "cv2.imread returns it for a file that it cannot read"),
    (7, "not int"),
    (np.zeros((4, 4, 3)), r"BGR, not \(4, 4, 3\) float64"),
    (np.zeros((0, 4, 3), np.uint8), r"not \(0, 4, 3\)"),
]


def test_an_invalid_bgr_image_is_named(app: FaceAnalysis) -> None:
    for bad, message in BAD:
        with pytest.raises(ImageError, match=f"^image 0: .*{message}"):
            app.get(bad)
        with pytest.raises(ImageError, match=f"^image 1: .*{message}"):
            app.get_many([photo(0)[0], bad])
        with pytest.raises(ImageError, match=f"^img: .*{message}"):
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
    rows = facerts.load(detector=yunet).score(paths)
    faces = [face for faces in found for face in faces]
    assert len(faces) >= 3
    assert [row.quality for row in rows if row.face is not None] == pytest.approx(
        [face.quality for face in faces], abs=1e-4
    )
