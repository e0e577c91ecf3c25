from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import skimage.data

import facerts
from facerts.detection import SCRFD, Detector, YuNet, open_detector, open_face_finder
from facerts.errors import Error, ModelError
from facerts.hub.fetch import pull
from tests.detectors import write_scrfd, write_yunet
from tests.foreign import write_description, write_embedder

YUNET = "face_detection_yunet_2023mar.onnx"


@pytest.fixture(autouse=True)
def no_downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No downloaded models, in the cache or elsewhere."""
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FACERTS_MODELS", str(tmp_path / "elsewhere"))


def test_detectors_need_a_model(tmp_path: Path) -> None:
    assert open_face_finder("none") is None
    with pytest.raises(
        ModelError,
        match=r"yunet is not on this machine, and --offline .* facerts models pull yunet .* --detector FILE",
    ):
        open_detector("yunet")
    with pytest.raises(ModelError, match=r"scrfd has no model to download; give the path .* as --detector"):
        open_detector("scrfd")
    with pytest.raises(Error, match=r"none\.onnx: no such detector or file"):
        open_detector(tmp_path / "none.onnx")
    (tmp_path / "bad.onnx").write_text("no")
    with pytest.raises(ModelError, match=r"bad\.onnx: ONNX Runtime cannot load it"):
        open_detector(tmp_path / "bad.onnx")
    with pytest.raises(Error, match="yunett: no such detector or file, did you mean 'yunet'"):
        open_face_finder("yunett")


@pytest.mark.parametrize(("kind", "write"), [(SCRFD, write_scrfd), (YuNet, write_yunet)])
def test_settings_reach_the_detector(
    tmp_path: Path, kind: Callable[..., Detector], write: Callable[[Path], Path]
) -> None:
    model = write(tmp_path / "m.onnx")
    for options in ({}, {"threshold": 0.9}, {"size": 320}, {"threshold": 0.2, "size": 96}):
        detector = open_detector(model, **options)  # type: ignore[arg-type]
        assert detector.identity == kind(model, **options).identity
    with pytest.raises(ModelError, match="has no NoSuchProvider here"):
        open_detector(model, providers=["NoSuchProvider"])


def test_load_passes_the_providers_to_the_detector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_description(write_embedder(tmp_path / "m.onnx"))
    scrfd = write_scrfd(tmp_path / "scrfd.onnx")
    received = {}

    def record(model: Path, **options: object) -> SCRFD:
        received.update(options)
        return SCRFD(model)

    monkeypatch.setitem(facerts.detection.DETECTORS, "scrfd", record)
    facerts.load(tmp_path / "m.onnx", detector=scrfd, providers=["CPUExecutionProvider"], threads=2)
    assert (received["providers"], received["threads"]) == (["CPUExecutionProvider"], 2)
    # Several photos are processed in parallel, so a forward pass uses one core by default.
    facerts.load(tmp_path / "m.onnx", detector=scrfd)
    assert received["threads"] == 1


def test_photos_are_scored_with_the_detector_of_a_pack(tmp_path: Path) -> None:
    pack = tmp_path / "buffalo"
    pack.mkdir()
    write_scrfd(pack / "det.onnx")
    write_embedder(pack / "w600k_mbf.onnx", size=128)
    scorer = facerts.load(pack, detector=pack)
    photo = np.zeros((640, 640, 3), dtype=np.uint8)
    photo[160:192, 320:352, 2] = 255
    rows = scorer.score([photo, np.zeros_like(photo)])
    assert [row.reason for row in rows] == [None, "no face found"]
    assert rows[0].box == pytest.approx([320, 160, 352, 192])
    assert rows[0].det_score == pytest.approx(1)


def test_once_downloaded_yunet_needs_no_file(reference_models: Path) -> None:
    with pytest.raises(ModelError, match="facerts models pull yunet"):
        open_detector("yunet")
    assert isinstance(open_detector(str(reference_models / YUNET)), YuNet)
    pull("yunet", reference_models / YUNET)
    assert len(open_detector("yunet")(np.ascontiguousarray(skimage.data.astronaut()))) == 1
