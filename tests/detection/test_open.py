import hashlib
import json
import pickle
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
import skimage.data

import facerts
from facerts.detection import SCRFD, PhotoSearch, YuNet, open_detector, open_face_finder
from facerts.errors import Error, ModelError
from facerts.hub import catalog
from facerts.images import encode_png
from facerts.scoring.video_tracks import video_detector
from tests.command import printed_json, refused, run
from tests.detectors import write_scrfd, write_yunet
from tests.foreign import write_description, write_embedder

YUNET = "face_detection_yunet_2023mar.onnx"
KINDS = pytest.mark.parametrize(("kind", "write"), [(SCRFD, write_scrfd), (YuNet, write_yunet)])


def test_yunet_ships_and_other_detectors_need_a_file(tmp_path, monkeypatch, capsys):
    assert open_face_finder("none") is None
    assert len(open_detector("yunet")(np.ascontiguousarray(skimage.data.astronaut()))) == 1
    for command in (("pull", "yunet"), ("remove", "yunet")):
        assert "yunet ships with facerts; there is nothing to pull" in refused(capsys, "models", *command)
    for name in ("scrfd", tmp_path / "none.onnx"):
        with pytest.raises(Error, match=r"no such detector or file; give yunet or the path"):
            open_detector(name)
    monkeypatch.delenv("FACERTS_MODELS", raising=False)
    monkeypatch.setattr(catalog, "models_folder", lambda: tmp_path)
    monkeypatch.delenv("FACERTS_MODELS", raising=False)
    with pytest.raises(ModelError, match="yunet is not on this machine: run facerts models pull yunet"):
        open_detector("yunet")
    (tmp_path / YUNET).write_bytes(b"damaged")
    with pytest.raises(ModelError, match=r"yunet is not on this machine: reinstall facerts; .* SHA-256"):
        open_detector("yunet")
    with pytest.raises(Error, match="yunett: no such detector or file, did you mean 'yunet'"):
        open_face_finder("yunett")


@KINDS
def test_settings_reach_the_detector(tmp_path, kind, write):
    model = write(tmp_path / "m.onnx")
    other = write(tmp_path / "other.onnx", sides=(96, 96))
    assert hashlib.sha256(model.read_bytes()).hexdigest() in open_detector(model).identity
    # It covers all that detections depend on, and nothing else.
    changes = {"threshold": 0.9}, {"size": 320}, {"size": "full"}, {"rotate": False}
    identities = {open_detector(model, **options).identity for options in ({}, *changes)}
    assert len({*identities, open_detector(other).identity}) == 6
    default = 0.5 if kind is SCRFD else 0.6
    assert open_detector(model, threshold=default, size="auto", threads=2).identity in identities
    for opened in (open_detector, kind):
        with pytest.raises(ModelError, match="has no NoSuchProvider here"):
            opened(model, providers=["NoSuchProvider"])


@KINDS
def test_threads_can_share_a_detector(tmp_path, kind, write):
    detector = PhotoSearch(kind(write(tmp_path / "m.onnx"), threads=1, threshold=0.3), 160)
    squares = np.random.default_rng(0).integers(0, 256, (24, 16, 24, 3), dtype=np.uint8)
    images = [squares[row].repeat(8, axis=0).repeat(8, axis=1)[: 128 - row] for row in range(24)]

    def detect(image):
        return [(*face.box, *face.points.ravel(), face.score) for face in detector(image)]

    alone = [detect(image) for image in images]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(detect, images)) == alone
    assert all(alone)


@KINDS
def test_files_that_are_not_detectors_are_refused(tmp_path, kind, write):
    (tmp_path / "text.onnx").write_text("hello")
    (tmp_path / "empty.onnx").write_bytes(b"")
    for name, message in (
        ("text.onnx", r"text\.onnx: ONNX Runtime cannot load it"),
        ("empty.onnx", r"empty\.onnx: ONNX Runtime cannot load it"),
        ("gone.onnx", r"gone\.onnx: cannot be read \(No such file"),
    ):
        with pytest.raises(ModelError, match=message):
            kind(tmp_path / name)


@pytest.mark.parametrize(
    ("kind", "write", "form", "message"),
    [
        (SCRFD, write_scrfd, {"second": np.nan}, "scores of stride 8 are not finite"),
        (YuNet, write_yunet, {"level": np.nan}, "scores are not finite"),
        (YuNet, write_yunet, {"largest": 1e4}, "boxes or points are not finite"),
    ],
)
def test_outputs_that_are_not_finite_are_refused(tmp_path, kind, write, form, message):
    with pytest.raises(ModelError, match=rf"m\.onnx: {message}"):
        kind(write(tmp_path / "m.onnx", **form))(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))


def test_a_detector_is_opened_when_it_is_first_used_and_can_be_pickled(tmp_path):
    file = tmp_path / "m.onnx"
    detector = facerts.Detector(file, threshold=0.3, size=160, threads=1)
    write_scrfd(file)
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    found, again = detector(image), pickle.loads(pickle.dumps(detector))
    takes_crops = pickle.loads(pickle.dumps(facerts.Detector(file, crops=True, threshold=0.3, size=160)))
    assert takes_crops.identity == f"auto, {detector.identity}"
    assert takes_crops(np.zeros((112, 112, 3), np.uint8)) is None
    assert len(takes_crops(image)) == len(found)
    assert again.identity == detector.identity == open_detector(file, threshold=0.3, size=160).identity
    assert [face.score for face in again(image)] == [face.score for face in found]
    assert len(facerts.Scorer(facerts.Quality(), detector=again).faces(image)) == len(found) > 0


def test_frames_are_searched_in_bounded_time_whichever_way_a_detector_was_given(tmp_path):
    model = write_scrfd(tmp_path / "m.onnx")
    for detector in (facerts.Detector(model), open_detector(model), open_face_finder(model)):
        search = video_detector(detector)
        assert isinstance(search, PhotoSearch)
        assert (search.size, search.rotate) == (640, False)


def test_load_passes_the_providers_to_the_detector(tmp_path, monkeypatch):
    write_description(write_embedder(tmp_path / "m.onnx"))
    scrfd = write_scrfd(tmp_path / "scrfd.onnx")
    received = {}

    def record(model, **options):
        received.update(options)
        return SCRFD(model)

    monkeypatch.setitem(facerts.detection.DETECTORS, "scrfd", record)
    facerts.load(tmp_path / "m.onnx", detector=scrfd, providers=["CPUExecutionProvider"], threads=2)
    assert (received["providers"], received["threads"]) == (["CPUExecutionProvider"], 2)
    # Several photos are processed in parallel, so a forward pass uses one core by default.
    facerts.load(tmp_path / "m.onnx", detector=scrfd)
    assert received["threads"] == 1


@pytest.mark.parametrize(("kind", "file"), [(SCRFD, "scrfd_500m_kps.onnx"), (YuNet, YUNET)])
def test_the_astronauts_face_is_found(reference_models, kind, file):
    detector = kind(reference_models / file, threads=1)
    photo = np.ascontiguousarray(skimage.data.astronaut())
    gray = np.repeat(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY)[..., None], 3, axis=2).astype(np.uint8)
    for image in (photo, gray):
        (face,) = detector(image)
        np.testing.assert_allclose(face.box, [178, 63, 268, 176], atol=15)
        assert face.score > 0.7
        eyes, mouth = face.points[:2], face.points[3:]
        assert eyes[0, 0] < eyes[1, 0]
        assert mouth[0, 0] < mouth[1, 0]
        assert eyes[:, 1].max() < face.points[2, 1] < mouth[:, 1].min()
    for level, shape in ((128, (200, 300, 3)), (0, (1, 1, 3))):
        assert detector(np.full(shape, level, dtype=np.uint8)) == []


@pytest.mark.parametrize("file", ["scrfd_500m_kps.onnx", YUNET])
@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_photo_on_its_side_is_said_to_be_turned(reference_models, tmp_path, capsys, file, turns):
    photo = np.ascontiguousarray(np.rot90(skimage.data.astronaut(), turns))
    (tmp_path / "photo.png").write_bytes(encode_png(photo))
    command = "score", tmp_path / "photo.png", "--set", f"detector={reference_models / file}"
    assert run(*command) == 0
    assert f"photo turned {90 * turns}°" in capsys.readouterr().out
    (row,) = printed_json(capsys, *command)["rows"]
    assert (row["rotation"], row["verdict"]) == (90 * turns, "good")
    # Without it the face is missed, or what is taken for it lies on its side.
    assert run(*command, "--json", "--set", "rotate=false") in (0, 1)
    assert not any(row["rotation"] for row in json.loads(capsys.readouterr().out)["rows"])
