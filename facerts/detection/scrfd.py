"""SCRFD through ONNX Runtime: the detector of insightface's model packs.

Guo, Deng, Lattas, Zafeiriou: "Sample and Computation Redistribution for Efficient Face Detection", ICLR 2022.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, largest_first, nms
from facerts.errors import ModelError
from facerts.io.files import read_file, reading, scratch_folder
from facerts.onnx.model_pack import ModelSignature, find_in_pack, is_pack, signature_of
from facerts.onnx.session import open_session, run_session
from facerts.onnx.wire import make_shape_dynamic

Floats = NDArray[np.float64]

STRIDES = (8, 16, 32)
ANCHORS = 2
# Values per anchor in each output: the score, distances to the sides of the box, five points.
COLUMNS = (1, 4, 10)
DEFAULT_SIZE = 640
EXPECTED = (
    "SCRFD takes (1, 3, H, W) float, H and W dynamic or multiples of 32, and outputs scores (A, 1), boxes (A, 4) and "
    "five points (A, 10) at each of the strides 8, 16 and 32, with two anchors per location"
)


class SCRFD:
    """One pass of SCRFD with five points; see ``photo_search.Network``.

    Args:
        model: an .onnx file, or an insightface model pack (folder or .zip) with one.
    """

    enlarges = True
    max_iou = 0.4
    sure = 0.8

    def __init__(
        self,
        model: str | Path,
        *,
        threshold: float = 0.5,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = Path(model)
        self._threshold = threshold
        self._settings = partial(SCRFD, threshold=threshold, providers=providers, threads=threads)
        with scratch_folder() as scratch:
            file = self._model
            if is_pack(file):
                file, _ = find_in_pack(file, scratch, is_scrfd, wanted="SCRFD detector with five points")
            with reading(self._model, ModelError):
                content = read_file(file)
        signature = signature_of(open_session(self._model, content=content, inference=False))
        if not is_scrfd(signature):
            raise ModelError(f"{model}: not SCRFD, since its inputs and outputs are {signature}; {EXPECTED}")
        (tensor,) = signature.inputs
        self._input = tensor.name
        self._sides: Sequence[int | str | None] = tensor.shape[2:]
        fixed = [side for side in self._sides if isinstance(side, int)]
        self.size = max(fixed, default=DEFAULT_SIZE)
        height, width = (side if isinstance(side, int) else self.size for side in self._sides)
        self.tile: tuple[int, int] | None = None
        start = partial(
            open_session, self._model, providers=providers, threads=threads, varying_sizes=True, photos=True
        )
        try:
            # Most files that declare one size work at any.
            dynamic = make_shape_dynamic(content, where=model)
            self._session = start(content=dynamic)
            self._sides = ("H", "W") if fixed else self._sides
            self(np.zeros((2 * STRIDES[-1], STRIDES[-1], 3), dtype=np.uint8))
        except ModelError:
            self._session = start(content=content)
            self._sides, self.tile = tensor.shape[2:], (height, width) if fixed else None
            self(np.zeros((height, width, 3), dtype=np.uint8))
        self.identity = f"scrfd {hashlib.sha256(content).hexdigest()}, threshold {threshold:g}"

    def __reduce__(self) -> tuple[Any, ...]:
        return self._settings, (self._model,)

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        canvas = self._padded(image)
        outputs = self._run(canvas)
        levels = []
        for stride in STRIDES:
            scores, distances, landmarks = self._of_stride(outputs, stride, *canvas.shape[:2])
            kept = np.flatnonzero(scores >= self._threshold)
            row, column = np.divmod(kept // ANCHORS, canvas.shape[1] // stride)
            location = np.stack([column, row], axis=1)[:, None].astype(np.float64)
            corners = location + distances.reshape(-1, 2, 2)[kept] * [[[-1.0], [1.0]]]
            points = location + landmarks.reshape(-1, 5, 2)[kept]
            levels.append((scores.reshape(-1)[kept], stride * corners.reshape(-1, 4), stride * points))
        scores, boxes, points = (np.concatenate(of_strides) for of_strides in zip(*levels, strict=True))
        return largest_first(
            Detection(boxes[face], points[face], float(scores[face])) for face in nms(boxes, scores, self.max_iou)
        )

    def _of_stride(
        self, outputs: list[NDArray[np.float32]], stride: int, height: int, width: int
    ) -> list[NDArray[np.float32]]:
        """Scores, boxes and points of the anchors of a stride, told by their shapes rather than by name and order."""
        anchors = ANCHORS * (height // stride) * (width // stride)
        found = []
        for what, columns in zip(("scores", "boxes", "points"), COLUMNS, strict=True):
            wanted = anchors, columns
            values = next((each for each in outputs if _anchors_and_columns(each) == wanted), None)
            if values is None:
                raise ModelError(
                    f"{self._model}: not SCRFD, since for (1, 3, {height}, {width}) its outputs are "
                    f"{', '.join(str(output.shape) for output in outputs)}, and none is {wanted}; {EXPECTED}"
                )
            if not np.isfinite(values).all():
                raise ModelError(f"{self._model}: {what} of stride {stride} are not finite numbers")
            found.append(values)
        return found

    def _padded(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The image in the upper left of an input of the model's size, or of a multiple of the largest stride."""
        height, width = (
            side if isinstance(side, int) else -(-length // STRIDES[-1]) * STRIDES[-1]
            for side, length in zip(self._sides, image.shape, strict=False)
        )
        canvas = np.zeros((height, width, 3), dtype=np.uint8)
        canvas[: image.shape[0], : image.shape[1]] = image
        return canvas

    def _run(self, canvas: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        # Channels are transposed as bytes, then converted to floats in one pass.
        planes = np.ascontiguousarray(canvas.transpose(2, 0, 1)[None])
        shifted = np.multiply(planes, np.float32(1 / 128), dtype=np.float32)
        shifted -= np.float32(127.5 / 128)
        return run_session(self._session, self._model, None, {self._input: shifted})


def is_scrfd(signature: ModelSignature) -> bool:
    """Whether a model looks like SCRFD with five points, as far as its file gives the shapes."""
    if len(signature.inputs) != 1 or len(signature.outputs) != len(COLUMNS) * len(STRIDES):
        return False
    (tensor,) = signature.inputs
    if len(tensor.shape) != 4 or tensor.type != "tensor(float)":
        return False
    if any(output.type != "tensor(float)" for output in signature.outputs):
        return False
    batch, channels, *sides = tensor.shape
    counts = Counter(output.shape[-1] for output in signature.outputs if output.shape)
    return (
        (batch == 1 or not isinstance(batch, int))
        and channels == 3
        and all(side % STRIDES[-1] == 0 for side in sides if isinstance(side, int))
        and all(counts[columns] <= len(STRIDES) for columns in COLUMNS)
        and all(columns in COLUMNS for columns in counts if isinstance(columns, int))
    )


def _anchors_and_columns(output: NDArray[np.float32]) -> tuple[int, int]:
    return math.prod(output.shape[:-1]), output.shape[-1] if output.ndim else 0
