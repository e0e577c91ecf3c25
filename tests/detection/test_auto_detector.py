"""Crops and photos in one run: the choice for each image, and a detector that is opened when the first photo comes."""

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detector
from facerts.errors import ModelError
from facerts.hub import catalog
from facerts.images import encode_png
from tests.command import run
from tests.detectors import write_yunet
from tests.hub.test_fetch import write_downloads


def photo(height=96, width=128):
    """A photo in which the stub of YuNet finds one face."""
    image = np.zeros((height, width, 3), dtype=np.uint8)
    image[32:64, 32:64, 0] = 255
    return image


@pytest.fixture
def yunet(tmp_path, monkeypatch):
    """A stub of YuNet in its place, which the catalog pins."""
    path = write_yunet(tmp_path / "yunet.onnx")
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    entry = {"name": "yunet", "file": path.name, "sha256": sha256, "bytes": path.stat().st_size}
    write_downloads(tmp_path / "catalog.json", ["https://127.0.0.1:9/yunet.onnx"], **entry)
    monkeypatch.setattr(catalog, "CATALOG", tmp_path / "catalog.json")
    monkeypatch.setattr(catalog, "models_folder", lambda: tmp_path)
    return path


def test_crops_are_taken_as_they_are_and_photos_are_searched(model, yunet):
    scorer = facerts.load(model)
    crop = draw_face(0, 0)
    hidden = yunet.rename(yunet.with_suffix(".hidden"))
    # Neither opening the scorer nor a crop needs the detector.
    assert scorer.score(crop) == facerts.load(model, detector="none").score(crop)
    assert "yunet is not on this machine" in str(scorer.score(photo())[0].error)
    # The same scorer works once the model is there.
    hidden.rename(yunet)
    crop_row, photo_row = scorer.score([crop, photo()])
    assert (crop_row.box, crop_row.face) == (None, 0)
    (row,) = facerts.load(model, detector="yunet").score(photo())
    assert replace(photo_row, path=row.path) == row
    assert photo_row.box is not None
    for height, width in ((112, 111), (111, 112), (224, 224)):
        (row,) = scorer.score(np.zeros((height, width, 3), dtype=np.uint8))
        assert row.reasons == ("no_face",)
    (row,) = scorer.score(np.zeros((112, 112, 3), dtype=np.uint8))
    assert "no_face" not in row.reasons


def test_the_order_of_colors_reaches_the_detector(model, yunet):
    scorer = facerts.load(model, detector=yunet)
    bgr = photo()[..., ::-1]
    assert scorer.score(bgr, color="BGR") == scorer.score(photo()) != scorer.score(bgr)


def test_what_rows_depend_on_is_known_before_the_detector_is_open(model, yunet):
    settings = facerts.load(model).settings()
    assert hashlib.sha256(yunet.read_bytes()).hexdigest() in str(settings["detector"])
    opened = facerts.load(model)
    opened.score(photo())
    assert opened.settings() == settings
    others = [
        facerts.load(model, detector="none"),
        facerts.load(model, detector="yunet"),
        facerts.load(model, det_threshold=0.3),
    ]
    assert len({scorer.settings()["detector"] for scorer in [opened, *others]}) == 4


def test_embeddings_of_crops_and_photos_share_a_file(model, yunet, tmp_path):
    for name, image in {"a_crop": draw_face(0, 0), "b_photo": photo()}.items():
        (tmp_path / f"{name}.png").write_bytes(encode_png(image))
    out = tmp_path / "e.npz"
    assert run("embed", tmp_path, "--model", model, "--out", out) == 0
    with np.load(out) as arrays:
        assert len(arrays["embeddings"]) == 2
        assert np.isnan(arrays["det_score"]).tolist() == [True, False]
        assert np.isnan(arrays["face_size"]).tolist() == [True, False]


def test_threads_share_one_attempt_to_open_a_detector(monkeypatch):
    attempts = []
    meeting = threading.Barrier(4)
    may_end = threading.Event()

    def found(image):
        return []

    def open_detector(model):
        attempts.append(1)
        may_end.wait(10)
        if len(attempts) == 1:
            raise ModelError("no network")
        return found

    monkeypatch.setattr("facerts.detection.open_detector", open_detector)
    lazy = Detector()

    def detect():
        meeting.wait(10)
        threading.Timer(0.2, may_end.set).start()
        try:
            return str(lazy(photo()))
        except ModelError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        answers = [future.result() for future in [pool.submit(detect) for _ in range(4)]]
    assert answers == ["no network"] * 4
    assert len(attempts) == 1
    assert lazy(photo()) == lazy(photo()) == []
    assert len(attempts) == 2
