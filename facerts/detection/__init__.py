"""Face detection: photos to boxes, five landmarks and scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, FaceFinder, OpenDetector
from facerts.detection.photo_search import DetSize, Network, PhotoSearch, check_size
from facerts.detection.scrfd import SCRFD, is_scrfd
from facerts.detection.yunet import YuNet
from facerts.errors import Error, did_you_mean
from facerts.hub.catalog import catalog_models
from facerts.hub.fetch import find_file
from facerts.images import CROP_SIZE
from facerts.onnx.model_pack import is_pack, read_signature

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "DETECTORS",
    "SCRFD",
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
    given = {key: options.get(key) for key in ("threshold", "providers", "threads")}
    network = DETECTORS[name](model, **{key: value for key, value in given.items() if value is not None})
    return PhotoSearch(network, size, rotate=options.get("rotate"))


class Detector:
    """Finds the faces in photos, by a detector that is opened when it is first used. It can be pickled.

    Args:
        model: as for ``open_detector``.
        crops: whether images of 112 x 112 are taken as aligned crops, in which no face is searched for.
        options: see ``DetectorOptions``.
    """

    def __init__(
        self, model: str | Path = DEFAULT_DETECTOR, *, crops: bool = False, **options: Unpack[DetectorOptions]
    ) -> None:
        self.model, self.crops, self._options = model, crops, options
        self._opening: Future[PhotoSearch] | None = None
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Detector {self.model}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Detector, self.model, crops=self.crops, **self._options), ()

    @property
    def detector(self) -> PhotoSearch:
        """The detector, opened if it is not. Threads share one attempt; after a failure the next call tries again."""
        with self._lock:
            first = self._opening is None
            opening = self._opening = self._opening or Future()
        if first:
            try:
                opening.set_result(open_detector(self.model, **self._options))
            except BaseException as error:
                self._opening = None
                opening.set_exception(error)
        return opening.result()

    @property
    def identity(self) -> str:
        """Everything that the detections depend on: kind, hash of the model, settings."""
        if self.model != DEFAULT_DETECTOR or not self.crops:
            return "auto, " * self.crops + self.detector.identity
        # Known before it is open.
        (pinned,) = [model for model in catalog_models() if model.name == self.model]
        settings = {"threshold": None, "size": "auto", "rotate": None, **self._options}
        shown = ", ".join(f"{name} {settings[name]}" for name in ("threshold", "size", "rotate"))
        return f"auto, {self.model} {pinned.sha256}, {shown}"

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection] | None:
        """The faces in an image, ``(H, W, 3) uint8`` RGB, the largest first, in pixels of the image; None in a crop."""
        return None if self.crops and image.shape[:2] == (CROP_SIZE, CROP_SIZE) else self.detector(image)


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
    return Detector(DEFAULT_DETECTOR, crops=True, **options)


def _checked_size(options: DetectorOptions) -> DetSize:
    size, threshold = options.get("size", "auto"), options.get("threshold")
    check_size(size)
    if threshold is not None and not 0 <= threshold <= 1:
        raise Error(f"det_threshold must be from 0 to 1, not {threshold:g}")
    return size
