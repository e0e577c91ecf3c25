"""Photos to boxes, five points and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from facerts.detection.base import Detection, Detector
from facerts.detection.scrfd import SCRFD, is_scrfd
from facerts.detection.yunet import YuNet
from facerts.errors import Error, ModelError
from facerts.hub.fetch import downloadable_models, find_downloaded
from facerts.onnx.packs import is_pack, read_signature

__all__ = ["DETECTORS", "SCRFD", "Detection", "Detector", "YuNet", "open_any_detector", "open_detector"]

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
    """A detector by its name.

    Args:
        name: from ``DETECTORS``, or "none" where pictures are aligned crops already.
        model: the detector's file, for SCRFD also a model pack; None for the one that was fetched with
            ``facerts models pull``.
        threshold: least score of a face; None for the detector's own.
        size: longest side in pixels that photos are brought to; None for the detector's own.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one run; None leaves ONNX Runtime's choice.

    Raises:
        Error: no such detector, or its model is missing or is none of its kind.
    """
    if name == "none":
        return None
    if name not in DETECTORS:
        raise Error(f"no detector {name!r}; there are none, {', '.join(DETECTORS)}")
    told = {"threshold": threshold, "size": size}
    options: dict[str, Any] = {option: value for option, value in told.items() if value is not None}
    file = _fetched(name) if model is None else model
    return DETECTORS[name](file, providers=providers, threads=threads, **options)


def open_any_detector(
    given: str | Path,
    *,
    threshold: float | None = None,
    size: int | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> Detector:
    """A detector by its name, or by its file, which shows which one it is.

    Args:
        given: from ``DETECTORS``; or an .onnx file of YuNet or SCRFD, or a model pack.
        threshold, size, providers, threads: as in ``open_detector``.

    Raises:
        Error: as ``open_detector``.
    """
    if given in DETECTORS:
        name, model = str(given), None
    else:
        model = Path(given)
        name = "scrfd" if is_pack(model) or is_scrfd(read_signature(model)) else "yunet"
    detector = open_detector(
        name, model, threshold=threshold, size=size, providers=providers, threads=threads
    )
    assert detector is not None
    return detector


def _fetched(name: str) -> Path:
    if name not in {model.name for model in downloadable_models()}:
        raise ModelError(
            f"the detector {name} needs its model: --detector-model FILE, an .onnx file or a model pack that has one"
        )
    return find_downloaded(name, otherwise=", or give it with --detector-model FILE")
