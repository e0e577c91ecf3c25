"""Face detection: photos to boxes, five landmarks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from facerts.detection.base import Detection, Detector
from facerts.detection.lazy import LazyDetector
from facerts.detection.scrfd import SCRFD, is_scrfd
from facerts.detection.yunet import YuNet
from facerts.errors import Error, ModelError
from facerts.hub.fetch import downloadable_models, find_or_download
from facerts.onnx.packs import is_pack, read_signature

__all__ = [
    "DETECTORS",
    "SCRFD",
    "Detection",
    "Detector",
    "LazyDetector",
    "YuNet",
    "open_any_detector",
    "open_detector",
]

DETECTORS: dict[str, Callable[..., Detector]] = {"yunet": YuNet, "scrfd": SCRFD}


def open_detector(
    name: str,
    model: str | Path | None = None,
    *,
    threshold: float | None = None,
    size: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> Detector | None:
    """Open a detector by name.

    Args:
        name: a name from ``DETECTORS``, or "none" for images that are already aligned crops.
        model: the detector's file, for SCRFD also a model pack; None for YuNet's, which is downloaded if it is not on
            this machine.
        threshold: minimum score of a face; None for the detector's default.
        size: longest side in pixels to which photos are resized; None for the detector's default.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: threads per forward pass; None for ONNX Runtime's default.

    Returns:
        The detector; None for "none".

    Raises:
        Error: there is no such detector, or its model is missing or of another kind.
        MissingModelError: the model is not on this machine and cannot be downloaded.
    """
    if name == "none":
        return None
    if name not in DETECTORS:
        raise Error(f"no detector {name!r}; choose one of none, {', '.join(DETECTORS)}")
    settings = {"threshold": threshold, "size": size}
    options: dict[str, Any] = {option: value for option, value in settings.items() if value is not None}
    file = _downloaded_model(name) if model is None else model
    return DETECTORS[name](file, providers=providers, threads=threads, **options)


def open_any_detector(
    detector: str | Path,
    *,
    threshold: float | None = None,
    size: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> Detector:
    """Open a detector by name, or by its file, from which its kind is recognized.

    Args:
        detector: a name from ``DETECTORS``, an .onnx file of YuNet or SCRFD, or a model pack.
        threshold, size, providers, threads: as in ``open_detector``.

    Raises:
        Error: as for ``open_detector``.
    """
    if detector in DETECTORS:
        name, model = str(detector), None
    else:
        model = Path(detector)
        name = "scrfd" if is_pack(model) or is_scrfd(read_signature(model)) else "yunet"
    opened = open_detector(name, model, threshold=threshold, size=size, providers=providers, threads=threads)
    assert opened is not None
    return opened


def _downloaded_model(name: str) -> Path:
    if name not in {model.name for model in downloadable_models()}:
        raise ModelError(
            f"the detector {name} needs a model: give --detector-model FILE, an .onnx file or a model pack with one"
        )
    return find_or_download(
        name,
        otherwise="; --detector-model FILE takes it from anywhere, and --detector none scores aligned crops without it",
    )
