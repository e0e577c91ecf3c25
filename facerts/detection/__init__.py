"""Face detection: photos to boxes, five landmarks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import AutoDetector, Detection, FaceFinder, LazyDetector, OpenDetector
from facerts.detection.photo_search import DetSize, Network, PhotoSearch, check_size
from facerts.detection.scrfd import SCRFD, is_scrfd
from facerts.detection.yunet import YuNet
from facerts.errors import Error, did_you_mean
from facerts.hub.catalog import catalog_models
from facerts.hub.fetch import find_file
from facerts.onnx.model_pack import is_pack, read_signature

__all__ = [
    "DETECTORS",
    "SCRFD",
    "AutoDetector",
    "DetSize",
    "Detection",
    "Detector",
    "FaceFinder",
    "OpenDetector",
    "PhotoSearch",
    "YuNet",
    "open_detector",
    "open_face_finder",
]

DETECTORS: dict[str, Callable[..., Network]] = {"yunet": YuNet, "scrfd": SCRFD}
DEFAULT_DETECTOR = "yunet"
EXPECTED = "the path of an .onnx file of YuNet or SCRFD, or of an insightface model pack"


def open_detector(
    detector: str | Path,
    *,
    threshold: float | None = None,
    size: DetSize = "auto",
    rotate: bool | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> PhotoSearch:
    """Open a detector by name, or by its file, from which its kind is recognized.

    Args:
        detector: "yunet", which ships with facerts, or the path of an .onnx file of YuNet or SCRFD, or of a model
            pack.
        threshold: minimum score of a face; None for the detector's default.
        size, rotate: see ``photo_search.PhotoSearch``.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: threads per forward pass; None for ONNX Runtime's default.
    """
    _check_settings(threshold, size)
    if detector == DEFAULT_DETECTOR:
        name, model = DEFAULT_DETECTOR, find_file(DEFAULT_DETECTOR)
    else:
        model = Path(detector)
        if not model.exists():
            hint = did_you_mean(str(detector), [DEFAULT_DETECTOR])
            raise Error(f"{detector}: no such detector or file{hint}; give yunet or {EXPECTED}")
        name = "scrfd" if is_pack(model) or is_scrfd(read_signature(model)) else "yunet"
    options = {} if threshold is None else {"threshold": threshold}
    network = DETECTORS[name](model, providers=providers, threads=threads, **options)
    return PhotoSearch(network, size, rotate=rotate)


class Detector(LazyDetector):
    """Finds the faces in photos, by a detector that is opened when it is first used. It can be pickled.

    Args:
        model: as for ``open_detector``.
        options: as for ``open_detector``: threshold, size, rotate, providers, threads.
    """

    def __init__(self, model: str | Path = DEFAULT_DETECTOR, **options: Any) -> None:
        super().__init__(partial(open_detector, model, **options))
        self.model, self._options = model, options

    def __repr__(self) -> str:
        return f"<Detector {self.model}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Detector, self.model, **self._options), ()

    @property
    def identity(self) -> str:
        """Everything that the detections depend on: kind, hash of the model, settings."""
        return self.detector.identity

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first, in pixels of the image."""
        return self.detector(image)


def open_face_finder(
    detector: str | Path = "auto",
    *,
    threshold: float | None = None,
    size: DetSize = "auto",
    rotate: bool | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
) -> FaceFinder | None:
    """Open what ``--detector`` names: a detector, or a choice between crops and photos.

    Args:
        detector: "auto" takes an image of 112 x 112 as an aligned crop, and finds the faces in any other with YuNet,
            which is opened when the first photo comes; "none" takes every image as an aligned crop; everything else
            finds faces in every image, see ``open_detector``.
        threshold, size, rotate, providers, threads: as in ``open_detector``.

    Returns:
        None for "none".
    """
    if detector == "none":
        if (threshold, size, rotate) != (None, "auto", None):
            raise Error("det_threshold, det_size and rotate need a detector; set detector to auto, yunet or a file")
        return None
    _check_settings(threshold, size)
    name = DEFAULT_DETECTOR if detector == "auto" else detector
    opening = partial(
        open_detector,
        name,
        threshold=threshold,
        size=size,
        rotate=rotate,
        providers=providers,
        threads=threads,
    )
    if detector != "auto":
        return opening()
    (pinned,) = [model for model in catalog_models() if model.name == DEFAULT_DETECTOR]
    return AutoDetector(
        opening, f"{DEFAULT_DETECTOR} {pinned.sha256}, threshold {threshold}, size {size}, rotate {rotate}"
    )


def _check_settings(threshold: float | None, size: DetSize) -> None:
    check_size(size)
    if threshold is not None and not 0 <= threshold <= 1:
        raise Error(f"det_threshold must be from 0 to 1, not {threshold:g}")
