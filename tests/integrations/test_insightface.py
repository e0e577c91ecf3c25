"""The interface of insightface, with small models."""

import copy
import pickle
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.embedding import OnnxEmbedder
from facerts.errors import Error, ModelError
from facerts.images.align import TEMPLATE
from facerts.integrations.insightface import CROP_SCORES, FaceAnalysis, FaceDict, add_quality
from facerts.scoring.annotate import ACCEPTED, UNDECIDED
from tests.detectors import write_scrfd
from tests.foreign import slow_embedding, write_description, write_embedder

SIDE = 112
# Blue, where the small detector finds faces of 32 pixels and more.
LIT = np.pad(np.full((64, 64, 1), 255, np.uint8), ((48, 48), (48, 48), (0, 2)))


class Grid:
    """A detector that finds a face in every 112-pixel square that is not black, with larger boxes further right."""

    identity = "grid"

    def __call__(self, image):
        found = []
        for left in range(0, image.shape[1], SIDE):
            if image[:, left : left + SIDE].any():
                corner = np.array([left, 0.0])
                far = corner + SIDE + left / 2
                found.append(Detection(np.concatenate([corner, far]), TEMPLATE + corner, 0.5 + left / 1000))
        return sorted(found, key=lambda face: face.area, reverse=True)


@pytest.fixture(scope="module")
def scrfd(tmp_path_factory):
    return write_scrfd(tmp_path_factory.mktemp("scrfd") / "det_10g.onnx")


def prepared(*arguments, **options):
    app = FaceAnalysis(*arguments, **options)
    app.prepare(ctx_id=-1)
    return app


@pytest.fixture
def app(model, scrfd):
    app = prepared(model, detector=scrfd)
    app.scorer.detector = Grid()
    return app


def photo(*identities):
    """A BGR photo of synthetic faces side by side, and their RGB crops."""
    crops = np.stack([draw_face(identity, 0) for identity in identities])
    return np.concatenate(list(crops), axis=1)[..., ::-1], crops


def test_faces_have_the_attributes_of_insightface_and_a_quality(app):
    img, crops = photo(0, 1)
    rows = facerts.load().score(crops[::-1])
    for face, row, crop, left in zip(app.get(img), rows, crops[::-1], (SIDE, 0), strict=True):
        raw = slow_embedding(crop[None])[0]
        np.testing.assert_allclose(face.embedding, raw, atol=1e-4)
        assert face.embedding_norm == pytest.approx(np.linalg.norm(raw), rel=1e-5)
        np.testing.assert_allclose(face.normed_embedding, raw / np.linalg.norm(raw), atol=1e-5)
        np.testing.assert_allclose(face.kps, TEMPLATE + np.array([left, 0]), atol=0.01)
        np.testing.assert_array_equal(face.bbox, [left, 0, left * 1.5 + SIDE, left / 2 + SIDE])
        assert {face[name].dtype for name in ("bbox", "kps", "embedding")} == {np.dtype(np.float32)}
        assert face.det_score == pytest.approx(0.5 + left / 1000)
        assert (face.quality, face.percentile) == (pytest.approx(row.quality, abs=1e-4), row.percentile)


def test_a_face_has_attributes_and_items_and_names_missing_ones(app):
    face = app.get(photo(0)[0])[0]
    face.name = "Ann"
    face["age"] = 30
    assert (face["name"], face.age, face.quality) == ("Ann", 30, face["quality"])
    assert not hasattr(face, "gender")
    with pytest.raises(AttributeError, match="no 'embeding'; it has bbox, kps, det_score, embedding, qua"):
        _ = face.embeding
    with pytest.raises(AttributeError):
        _ = FaceDict(kps=face.kps).normed_embedding
    for other in (copy.deepcopy(face), pickle.loads(pickle.dumps(face))):
        assert (type(other), other.name, other.quality) == (FaceDict, "Ann", face.quality)
        np.testing.assert_array_equal(other.normed_embedding, face.normed_embedding)


def test_options_reach_the_models(model, scrfd):
    app = FaceAnalysis(model, detector=scrfd, threads=1)
    with pytest.raises(Error, match=r"call prepare\(\) first"):
        app.get(LIT)
    app.prepare(ctx_id=0, det_thresh=0.7, det_size=(320, 256))
    assert app.scorer.detector.identity.endswith("threshold 0.7, size 320, turned")
    assert app.scorer.recognizer.opened.threads == 1
    for options, accepted in (({}, False), ({"min_quality": -np.inf}, True), ({"keep": "none"}, None)):
        faces = prepared(model, allowed_modules=["detection"], detector=scrfd, **options).get(LIT, 2)
        assert [face.accepted for face in faces] == [accepted] * 2
        assert list(faces[0]) == ["bbox", "kps", "det_score", *CROP_SCORES]
    with pytest.raises(ModelError, match="2 is no share of the faces"):
        prepared(model, detector=scrfd, keep=2)
    with pytest.raises(Error, match="allowed_modules must contain 'detection'"):
        FaceAnalysis(model, allowed_modules=["recognition"])
    with pytest.raises(Error, match="providers are given by name"):
        FaceAnalysis(model, providers=[("CUDAExecutionProvider", {"device_id": 0})])


def test_providers_that_are_not_here_are_passed_over_with_one_warning(model, scrfd, monkeypatch, capfd):
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    monkeypatch.setattr("facerts.onnx.session._passed_over", set())
    for _ in range(2):
        app = FaceAnalysis(model, providers=["CUDAExecutionProvider", "CPUExecutionProvider"], detector=scrfd)
        app.prepare(ctx_id=0, det_size=(640, 640))
        assert app.scorer.recognizer.opened.providers == ["CPUExecutionProvider"]
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("warning: ONNX Runtime has no CUDAExecutionProvider here")
    assert said.endswith("running on CPUExecutionProvider instead")


def test_a_pack_is_found_where_insightface_keeps_it_or_pulled_by_its_name_if_that_is_allowed(
    tmp_path, model, scrfd, monkeypatch
):
    with pytest.raises(ModelError, match="buffalo-l is not on this machine: run facerts models pull buffalo"):
        prepared("buffalo_l", tmp_path, detector=scrfd)
    with monkeypatch.context() as online:
        online.setenv("FACERTS_OFFLINE", "0")
        online.setattr("facerts.hub.find.install", {"buffalo-l": model}.__getitem__)
        assert prepared("buffalo_l", tmp_path, detector=scrfd).get(LIT, 1)[0].embedding.shape == (8,)
    pack = tmp_path / "models" / "buffalo_l"
    pack.mkdir(parents=True)
    write_embedder(pack / "w600k_r50.onnx", size=128)
    assert prepared("buffalo_l", tmp_path).get(LIT, 1) == []  # found by YuNet
    with pytest.raises(ModelError, match="one SCRFD detector with five points, but this one has none"):
        prepared("buffalo_l", tmp_path, detector=pack)
    shutil.copy(scrfd, pack)
    for name in ("buffalo_l", "buffalo-l", pack, shutil.make_archive(str(tmp_path / "mine"), "zip", pack)):
        assert prepared(name, tmp_path).get(LIT, 1)[0].embedding.shape == (128,)


def test_faces_are_drawn_in_a_copy_of_the_same_size(app):
    img, _ = photo(0, 1)
    face, untouched = app.get(img)[0], img.copy()
    face.accepted = True
    drawn = app.draw_on(img, [face, SimpleNamespace(bbox=np.array([10, 40, 60, 90]), kps=None)])
    np.testing.assert_array_equal(img, untouched)
    assert (drawn.shape, drawn.dtype) == (img.shape, np.uint8)
    # The left side of each box in its color, BGR.
    assert np.abs(drawn[60, SIDE] - np.float64(ACCEPTED[::-1])).max() < 60
    assert np.abs(drawn[60, 10] - np.float64(UNDECIDED[::-1])).max() < 60


def test_max_num_keeps_the_most_important_faces(app):
    img, _ = photo(0, 1, 2, 3, 4)
    # By hand: the area of each box minus twice the squared distance of its center from the image center.
    boxes = np.array([[left, 0, 1.5 * left + SIDE, SIDE + left / 2] for left in range(0, 5 * SIDE, SIDE)])
    offsets = (boxes[:, :2] + boxes[:, 2:]) / 2 - [2.5 * SIDE, SIDE / 2]
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    central = np.argsort(2 * (offsets**2).sum(axis=1) - areas)[:2].tolist()
    for options, kept in (
        ((0,), [4, 3, 2, 1, 0]),
        ((2, "max"), [4, 3]),
        ((2,), central),
        ((9,), [4, 3, 2, 1, 0]),
    ):
        assert [int(face.bbox[0]) // SIDE for face in app.get(img, *options)] == kept
    assert central != [4, 3]
    with pytest.raises(Error, match="unknown det_metric 'maximum'; choose one of default, max"):
        app.get(img, 1, "maximum")


def test_get_many_gives_the_same_faces_in_fewer_batches(app, monkeypatch):
    images = [photo(0, 1)[0], np.zeros((SIDE, SIDE, 3), np.uint8), photo(2)[0], photo(3, 4, 5)[0]]
    batches, call = [], OnnxEmbedder.outputs

    def counting_call(self, crops):
        batches.append(len(crops))
        return call(self, crops)

    monkeypatch.setattr(OnnxEmbedder, "outputs", counting_call)
    together = app.get_many(iter(images))
    assert batches == [6]
    assert [len(faces) for faces in together] == [2, 0, 1, 3]
    (alone,) = app.get(images[2])
    np.testing.assert_allclose(together[2][0].embedding, alone.embedding, atol=1e-4)
    assert [len(faces) for faces in app.get_many(images, max_num=1)] == [1, 0, 1, 1]
    assert app.get_many([]) == []


def test_an_invalid_bgr_image_is_named(app):
    for bad, message in ((None, "cv2.imread returns it"), (7, "not int"), (np.zeros((4, 4, 3)), "float64")):
        with pytest.raises(Error, match=f"^image 0: .*{message}"):
            app.get(bad)
        with pytest.raises(Error, match=f"^image 1: .*{message}"):
            app.get_many([photo(0)[0], bad])
        with pytest.raises(Error, match=f"^img: .*{message}"):
            add_quality([], bad, app.scorer)


@pytest.mark.parametrize("kind", [FaceDict, SimpleNamespace])
def test_faces_found_by_insightface_get_a_quality(model, kind):
    scorer = facerts.load(model)
    img, crops = photo(3, 1, 2)
    faces = [kind(kps=TEMPLATE + np.array([SIDE * number, 0]), age=number) for number in range(3)]
    middle = float(scorer.quality(crops).mean())
    add_quality(faces, img, scorer, min_quality=middle)
    assert {face.accepted for face in faces} == {True, False}
    for face, row, age in zip(faces, scorer.score(crops, min_quality=middle), range(3), strict=True):
        assert face.quality == pytest.approx(row.quality, abs=1e-5)
        assert face.uncertainty == pytest.approx(row.uncertainty, abs=1e-5)
        assert (face.accepted, face.percentile, face.age) == (row.accepted, None, age)
        assert face.reasons == row.reasons
    add_quality([], img, scorer)


def test_faces_without_landmarks_and_models_without_quality_are_refused(model, tmp_path):
    scorer = facerts.load(model)
    img, _ = photo(0)
    good = SimpleNamespace(kps=TEMPLATE)
    for bad in ({}, {"kps": TEMPLATE[:4]}, {"kps": np.full((5, 2), np.nan)}, {"kps": np.ones((5, 2))}):
        with pytest.raises(Error, match="face 1 has no five landmarks"):
            add_quality([good, SimpleNamespace(**bad)], img, scorer)
    plain = write_description(write_embedder(tmp_path / "plain.onnx"), quality="none")
    with pytest.raises(ModelError, match="plain has no quality"):
        add_quality([good], img, facerts.load(plain))
