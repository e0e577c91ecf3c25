"""Aligned crop or photo: the decision for each image, by its size."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection, Detector, LazyDetector, open_any_detector
from facerts.hub.fetch import downloadable_models
from facerts.images import CROP_SIZE

DEFAULT_DETECTOR = "yunet"


class AutoDetector:
    """Finds the faces in photos, and takes images of 112 x 112 as aligned crops; see ``prepare.FaceFinder``.

    Attributes:
        detector: finds the faces in photos.
        identity: everything that its decisions and detections depend on.
    """

    def __init__(self, detector: Detector) -> None:
        self.detector = detector
        self.identity = f"auto, {detector.identity}"

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces of a photo, the largest first; None if the image is itself an aligned crop."""
        return None if image.shape[:2] == (CROP_SIZE, CROP_SIZE) else self.detector(image)


def open_auto_detector(
    model: str | Path | None = None,
    *,
    threshold: float | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> AutoDetector:
    """Decide for each image whether it is an aligned crop or a photo.

    Args:
        model: the detector's file, of YuNet or SCRFD, or a model pack; None for YuNet, which is opened, and downloaded
            if necessary, when the first photo comes.
        threshold, providers, threads: as in ``facerts.detection.open_detector``.

    Raises:
        Error: the file is missing or of another kind.
    """
    open_detector = partial(
        open_any_detector,
        model or DEFAULT_DETECTOR,
        threshold=threshold,
        providers=providers,
        threads=threads,
    )
    if model is not None:
        return AutoDetector(open_detector())
    (pinned,) = [model for model in downloadable_models() if model.name == DEFAULT_DETECTOR]
    minimum = "" if threshold is None else f", threshold {threshold:g}"
    return AutoDetector(LazyDetector(open_detector, f"{DEFAULT_DETECTOR} {pinned.sha256}{minimum}"))
