"""Photos to boxes, five points and scores."""

from __future__ import annotations

from pathlib import Path

from facerts.detect.base import Detection, Detector
from facerts.detect.yunet import YuNet
from facerts.errors import Error, ModelError

__all__ = ["DETECTORS", "Detection", "Detector", "open_detector"]

DETECTORS: dict[str, type[YuNet]] = {"yunet": YuNet}


def open_detector(name: str, model: str | Path | None) -> Detector | None:
    """A detector by its name.

    Args:
        name: from ``DETECTORS``, or "none" where pictures are aligned crops already.
        model: the detector's file.

    Raises:
        Error: no such detector, or its model is missing.
    """
    if name == "none":
        return None
    if name not in DETECTORS:
        raise Error(f"no detector {name!r}; there are none, {', '.join(DETECTORS)}")
    if model is None:
        raise ModelError(f"the detector {name} needs its model: --detector-model FILE")
    return DETECTORS[name](model)
