"""YuNet through ONNX Runtime, with the same detections as OpenCV's FaceDetectorYN.

Wu, Peng, Yu: "YuNet: A Tiny Millisecond-level Face Detector", Machine Intelligence Research 20, 2023.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, largest_first, nms
from facerts.errors import ModelError
from facerts.io.files import read_file, reading
from facerts.onnx.model_pack import ModelSignature, signature_of
from facerts.onnx.session import open_session, run_session
from facerts.onnx.wire import make_shape_dynamic

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

STRIDES = (8, 16, 32)
# The least score of a face.
THRESHOLD = 0.6
# Outputs and their values per location: the probabilities of a face and of an object, whose geometric mean is the
# score; the box; five points.
COLUMNS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
OUTPUTS = [f"{kind}_{stride}" for kind in COLUMNS for stride in STRIDES]
# Only the best-scoring candidates go on to NMS.
MAX_CANDIDATES = 5000
EXPECTED = (
    "YuNet 2023mar takes (1, 3, H, W) float and outputs cls, obj, bbox and kps for the strides 8, 16 and 32; "
    "the one that ships is the detector yunet"
)


class YuNet:
    """One pass of YuNet: ``face_detection_yunet_2023mar.onnx`` or a compatible file; see ``photo_search.Network``."""

    size = 1024
    enlarges = False
    tile: tuple[int, int] | None = None
    max_iou = 0.3
    sure = 0.9

    def __init__(
        self,
        model: str | Path,
        *,
        threshold: float = THRESHOLD,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = Path(model)
        self._threshold = threshold
        self._settings = partial(YuNet, threshold=threshold, providers=providers, threads=threads)
        with reading(self._model, ModelError):
            content = read_file(self._model)
        signature = signature_of(open_session(self._model, content=content, inference=False))
        if not is_yunet(signature):
            outputs = ", ".join(output.name for output in signature.outputs)
            raise ModelError(
                f"{model}: not YuNet, since its inputs and outputs are {signature}, and the outputs' names {outputs}; "
                f"{EXPECTED}"
            )
        (tensor,) = signature.inputs
        self._input = tensor.name
        # The published file declares 640 x 640, but works at any multiple of its largest stride.
        self._session = open_session(
            self._model,
            content=make_shape_dynamic(content, where=model),
            providers=providers,
            threads=threads,
            varying_sizes=True,
            photos=True,
        )
        self._check()
        # OpenCV's own runtime gives slightly different digits, so the identity names the runtime.
        digest = hashlib.sha256(content).hexdigest()
        self.identity = f"yunet {digest} in ONNX Runtime, threshold {threshold:g}"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._settings, (self._model,)

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        corners, sizes, points, scores = self._search(to_tensor(image))
        # OpenCV's NMS compares boxes truncated to whole pixels.
        left_top = np.trunc(corners)
        whole = np.hstack([left_top, left_top + np.trunc(sizes)])
        boxes = np.hstack([corners, corners + sizes])
        return largest_first(
            Detection(boxes[face], points[face], float(scores[face])) for face in nms(whole, scores, self.max_iou)
        )

    def _search(self, batch: Floats) -> tuple[Doubles, Doubles, Doubles, Floats]:
        """Corners and sizes ``(K, 2)``, points ``(K, 5, 2)`` and scores ``(K,)`` of faces, before NMS."""
        cls, obj, boxes, points = self._run(batch)
        scores = np.sqrt(np.clip(cls, 0, 1) * np.clip(obj, 0, 1))[:, 0]
        if not np.isfinite(scores).all():
            raise ModelError(f"{self._model}: scores are not finite numbers")
        kept = np.flatnonzero(scores >= self._threshold)
        if len(kept) > MAX_CANDIDATES:
            kept = kept[np.argsort(-scores[kept], kind="stable")[:MAX_CANDIDATES]]
        location, stride = _grid(kept, *batch.shape[2:])
        centers = (location + boxes[kept, :2]) * stride
        with np.errstate(over="ignore"):
            sizes = np.exp(boxes[kept, 2:].astype(np.float64)) * stride
        landmarks = (location[:, None] + points[kept].reshape(-1, 5, 2)) * stride[:, None]
        if not (np.isfinite(centers).all() and np.isfinite(sizes).all() and np.isfinite(landmarks).all()):
            raise ModelError(f"{self._model}: boxes or points are not finite numbers")
        return centers - sizes / 2, sizes, landmarks, scores[kept]

    def _run(self, batch: Floats) -> list[Floats]:
        """A forward pass: for each kind in ``COLUMNS`` its values at all locations, ``(A, columns)``, by stride."""
        outputs = run_session(self._session, self._model, OUTPUTS, {self._input: batch})
        try:
            values: list[Floats] = [
                np.concatenate([output[0] for output in outputs[first : first + len(STRIDES)]])
                for first in range(0, len(OUTPUTS), len(STRIDES))
            ]
        except (ValueError, IndexError, TypeError) as error:
            raise ModelError(f"{self._model}: its outputs do not fit together ({error}); {EXPECTED}") from error
        locations, shapes = sum(_locations(*batch.shape[2:])), [kind.shape for kind in values]
        if shapes != [(locations, columns) for columns in COLUMNS.values()]:
            raise ModelError(f"{self._model}: for {batch.shape} its outputs have the shapes {shapes}; {EXPECTED}")
        return values

    def _check(self) -> None:
        """Run a forward pass on a black image of another size than the file's."""
        self._run(np.zeros((1, 3, STRIDES[-1], 2 * STRIDES[-1]), dtype=np.float32))


def is_yunet(signature: ModelSignature) -> bool:
    """Whether a model looks like YuNet 2023mar, as far as its file gives names and shapes."""
    if len(signature.inputs) != 1 or not {output.name for output in signature.outputs}.issuperset(OUTPUTS):
        return False
    (tensor,) = signature.inputs
    return len(tensor.shape) == 4 and tensor.shape[1] == 3 and tensor.type == "tensor(float)"


def to_tensor(image: NDArray[np.uint8]) -> Floats:
    """``(H, W, 3) uint8`` RGB to ``(1, 3, H, W) float32`` BGR, padded with black to multiples of all strides."""
    sides = (-(-side // STRIDES[-1]) * STRIDES[-1] for side in image.shape[:2])
    batch = np.zeros((1, 3, *sides), dtype=np.float32)
    for channel, plane in enumerate(cv2.split(image)[::-1]):
        batch[0, channel, : image.shape[0], : image.shape[1]] = plane
    return batch


def _locations(height: int, width: int) -> list[int]:
    """Number of locations for each stride."""
    return [(height // stride) * (width // stride) for stride in STRIDES]


def _grid(kept: NDArray[np.intp], height: int, width: int) -> tuple[Doubles, Doubles]:
    """Column and row ``(K, 2)`` and stride ``(K, 1)`` of locations given by their indices over all strides."""
    locations = np.array(_locations(height, width))
    ends = np.cumsum(locations)
    level = np.searchsorted(ends, kept, side="right")
    stride = np.array(STRIDES)[level]
    row, column = np.divmod(kept - (ends - locations)[level], width // stride)
    return np.stack([column, row], axis=1).astype(np.float64), stride[:, None].astype(np.float64)
