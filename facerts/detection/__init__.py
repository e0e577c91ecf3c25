"""Face detection: photos to boxes, five landmarks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

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

if TYPE_CHECKING:
    from typing_extensions import Unpack

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


class DetectorOptions(TypedDict, total=False):
    """How faces are searched for.

    Attributes:
        threshold: minimum score of a face; None for the detector's default.
        size, rotate: see ``photo_search.PhotoSearch``.
        providers, threads: see ``facerts.onnx.providers.Runtime``.
    """

    threshold: float | None
    size: DetSize
    rotate: bool | None
    providers: Sequence[str] | None
    threads: int | None


def open_detector(detector: str | Path, **options: Unpack[DetectorOptions]) -> PhotoSearch:
    """Open a detector by name, or by its file, from which its kind is recognized.

    Args:
        detector: "yunet", which ships with facerts, or the path of an .onnx file of YuNet or SCRFD, or of a model
            pack.
    """
    size = _checked_size(options)
    if detector == DEFAULT_DETECTOR:
        name, model = DEFAULT_DETECTOR, find_file(DEFAULT_DETECTOR)
    else:
        model = Path(detector)
        if not model.exists():
            hint = did_you_mean(str(detector), [DEFAULT_DETECTOR])
            raise Error(f"{detector}: no such detector or file{hint}; give yunet or {EXPECTED}")
        name = "scrfd" if is_pack(model) or is_scrfd(read_signature(model)) else "yunet"
    of_network = {name: options.get(name) for name in ("threshold", "providers", "threads")}
    network = DETECTORS[name](model, **{name: value for name, value in of_network.items() if value is not None})
    return PhotoSearch(network, size, rotate=options.get("rotate"))


class Detector(LazyDetector):
    """Finds the faces in photos, by a detector that is opened when it is first used. It can be pickled.

    Args:
        model: as for ``open_detector``.
        options: see ``DetectorOptions``.
    """

    def __init__(self, model: str | Path = DEFAULT_DETECTOR, **options: Unpack[DetectorOptions]) -> None:
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


def open_face_finder(detector: str | Path = "auto", **options: Unpack[DetectorOptions]) -> FaceFinder | None:
    """Open what ``--detector`` names: a detector, or a choice between crops and photos.

    Args:
        detector: "auto" takes an image of 112 x 112 as an aligned crop, and finds the faces in any other with YuNet,
            which is opened when the first photo comes; "none" takes every image as an aligned crop; everything else
            finds faces in every image, see ``open_detector``.

    Returns:
        None for "none".
    """
    threshold, size, rotate = options.get("threshold"), _checked_size(options), options.get("rotate")
    if detector == "none":
        if (threshold, size, rotate) != (None, "auto", None):
            raise Error("det_threshold, det_size and rotate need a detector; set detector to auto, yunet or a file")
        return None
    if detector != "auto":
        return open_detector(detector, **options)
    opening = partial(open_detector, DEFAULT_DETECTOR, **options)
    (pinned,) = [model for model in catalog_models() if model.name == DEFAULT_DETECTOR]
    return AutoDetector(
        opening, f"{DEFAULT_DETECTOR} {pinned.sha256}, threshold {threshold}, size {size}, rotate {rotate}"
    )


def _checked_size(options: DetectorOptions) -> DetSize:
    size, threshold = options.get("size", "auto"), options.get("threshold")
    check_size(size)
    if threshold is not None and not 0 <= threshold <= 1:
        raise Error(f"det_threshold must be from 0 to 1, not {threshold:g}")
    return size
