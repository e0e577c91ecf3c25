"""SCRFD through ONNX Runtime: the detector of insightface's model packs.

Guo, Deng, Lattas, Zafeiriou: "Sample and Computation Redistribution for Efficient Face Detection", ICLR 2022.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, largest_first, nms
from facerts.errors import ModelError
from facerts.io.files import scratch_folder, sha256_file
from facerts.onnx.model_pack import ModelSignature, find_in_pack, is_pack, signature_of
from facerts.onnx.session import open_session, run_session

Floats = NDArray[np.float64]

STRIDES = (8, 16, 32)
ANCHORS = 2
# Values per anchor in each output: the score, distances to the sides of the box, five points.
COLUMNS = (1, 4, 10)
DEFAULT_SIZE = 640
# The coarse scale is smaller by this factor and finds faces with a side of at least LARGE pixels in the full scale.
COARSE_FACTOR = 4
LARGE = 320
MAX_IOU = 0.4
EXPECTED = (
    "SCRFD takes (1, 3, H, W) float, H and W dynamic or multiples of 32, and outputs scores (A, 1), boxes (A, 4) and "
    "five points (A, 10) at each of the strides 8, 16 and 32, with two anchors per location"
)


class _Head(NamedTuple):
    """Indices of the outputs for the anchors of a stride."""

    stride: int
    scores: int
    boxes: int
    points: int


class _Scale(NamedTuple):
    """One of the scales at which a photo is searched: fitted into a square of ``size``, upper left in the input."""

    size: int
    height: int
    width: int
    heads: tuple[_Head, ...]
    shapes: tuple[tuple[int, ...], ...]

    def factor(self, image: NDArray[np.uint8]) -> float:
        """Pixels of the input per pixel of the photo."""
        height, width = image.shape[:2]
        return float(min(self.size / max(height, width), self.height / height, self.width / width))


class SCRFD:
    """The SCRFD detector; see ``Detector``.

    SCRFD cannot detect faces larger than about 400 pixels. So each photo is searched at two scales: fitted into
    ``size``, and into a quarter of that, where only faces of at least 320 pixels in the first scale count.

    Args:
        model: an .onnx file of SCRFD with five points, or an insightface model pack (folder or .zip) with one.
        size: side in pixels of the square into which photos are fitted, small ones upscaled; by default the longest
            side of the model's input if that is fixed, otherwise 640.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        threshold: float = 0.5,
        size: int | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = Path(model)
        self._threshold = threshold
        self._settings: dict[str, Any] = {
            "threshold": threshold,
            "size": size,
            "providers": providers,
            "threads": threads,
        }
        with scratch_folder() as scratch:
            file = _find_in_pack(self._model, scratch) if is_pack(self._model) else self._model
            self._session = open_session(file, providers=providers, threads=threads, photos=True)
            digest = sha256_file(file)
        signature = signature_of(self._session)
        if not is_scrfd(signature):
            raise ModelError(f"{model}: not SCRFD, since its inputs and outputs are {signature}; {EXPECTED}")
        (tensor,) = signature.inputs
        self._input = tensor.name
        sides = tensor.shape[2:]
        fixed = [side for side in sides if isinstance(side, int)]
        size = size or max(fixed, default=DEFAULT_SIZE)
        if fixed and size > max(fixed):
            raise ModelError(f"{model}: its input is {tensor.shape}, so photos cannot be fitted into {size}")
        self._full = self._make_scale(size, sides)
        self._coarse = self._make_scale(math.ceil(size / COARSE_FACTOR), sides) if size > LARGE else None
        self.identity = f"scrfd {digest}, threshold {threshold:g}, side {size}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), **self._settings), (self._model,)

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        candidates = self._search(image, self._full)
        ranks = candidates[0]
        if self._coarse is not None:
            coarse = self._search(image, self._coarse)
            sides = np.max(coarse[1][:, 2:] - coarse[1][:, :2], axis=1, initial=0)
            large = sides * self._full.factor(image) >= LARGE
            # For a face found at both scales, rank the full scale first: its points are more precise.
            ranks = np.concatenate([ranks, coarse[0][large] - 1])
            candidates = tuple(
                np.concatenate([fine, more[large]]) for fine, more in zip(candidates, coarse, strict=True)
            )
        scores, boxes, points = candidates
        return largest_first(
            Detection(boxes[face], points[face], float(scores[face])) for face in nms(boxes, ranks, MAX_IOU)
        )

    def _search(self, image: NDArray[np.uint8], scale: _Scale) -> tuple[Floats, ...]:
        """Scores ``(K,)``, boxes ``(K, 4)`` and points ``(K, 5, 2)``, in pixels of the photo, before NMS."""
        canvas, factor = _fit(image, scale)
        outputs = self._run(canvas)
        if tuple(output.shape for output in outputs) != scale.shapes:
            raise ModelError(f"{self._model}: output shapes vary for inputs of the same size; {EXPECTED}")
        levels = []
        for head in scale.heads:
            scores = outputs[head.scores].reshape(-1).astype(np.float64)
            for what, values in (
                ("scores", scores),
                ("boxes", outputs[head.boxes]),
                ("points", outputs[head.points]),
            ):
                if not np.isfinite(values).all():
                    raise ModelError(f"{self._model}: {what} of stride {head.stride} are not finite numbers")
            kept = np.flatnonzero(scores >= self._threshold)
            row, column = np.divmod(kept // ANCHORS, scale.width // head.stride)
            location = np.stack([column, row], axis=1)[:, None].astype(np.float64)
            corners = location + outputs[head.boxes].reshape(-1, 2, 2)[kept] * [[[-1.0], [1.0]]]
            points = location + outputs[head.points].reshape(-1, 5, 2)[kept]
            pixels = head.stride * factor
            levels.append((scores[kept], (corners * pixels).reshape(-1, 4), points * pixels))
        return tuple(np.concatenate(of_strides) for of_strides in zip(*levels, strict=True))

    def _run(self, canvas: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        # Channels are transposed as bytes, then converted to floats in one pass.
        planes = np.ascontiguousarray(canvas.transpose(2, 0, 1)[None])
        shifted = np.multiply(planes, np.float32(1 / 128), dtype=np.float32)
        shifted -= np.float32(127.5 / 128)
        return run_session(self._session, self._model, None, {self._input: shifted})

    def _make_scale(self, size: int, sides: Sequence[int | str | None]) -> _Scale:
        """Assign the outputs by their shapes for a black image, rather than by name and order."""
        # Each stride must divide the sides of the input.
        padded = math.ceil(size / STRIDES[-1]) * STRIDES[-1]
        height, width = (side if isinstance(side, int) else padded for side in sides)
        shape_text = f"(1, 3, {height}, {width})"
        try:
            outputs = self._run(np.zeros((height, width, 3), dtype=np.uint8))
        except ModelError as error:
            raise ModelError(f"{error}, for {shape_text}; {EXPECTED}") from error
        shapes = [
            (math.prod(output.shape[:-1]), output.shape[-1] if output.ndim else 0) for output in outputs
        ]
        heads = []
        for stride in STRIDES:
            anchors = ANCHORS * (height // stride) * (width // stride)
            wanted = [(anchors, columns) for columns in COLUMNS]
            if missing := [shape for shape in wanted if shape not in shapes]:
                raise ModelError(
                    f"{self._model}: not SCRFD, since for {shape_text} its outputs are "
                    f"{', '.join(str(output.shape) for output in outputs)}, and none is {missing[0]}; {EXPECTED}"
                )
            heads.append(_Head(stride, *(shapes.index(shape) for shape in wanted)))
        return _Scale(size, height, width, tuple(heads), tuple(output.shape for output in outputs))


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


def _fit(image: NDArray[np.uint8], scale: _Scale) -> tuple[NDArray[np.uint8], Floats]:
    """The photo in the upper left of the input, padded with black; and the size of a pixel in pixels of the photo."""
    height, width = image.shape[:2]
    factor = scale.factor(image)
    size = max(1, round(width * factor)), max(1, round(height * factor))
    canvas = np.zeros((scale.height, scale.width, 3), dtype=np.uint8)
    canvas[: size[1], : size[0]] = cv2.resize(
        image, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LINEAR
    )
    return canvas, np.array([width / size[0], height / size[1]])


def _find_in_pack(path: Path, scratch: Path) -> Path:
    return find_in_pack(path, scratch, is_scrfd, wanted="SCRFD detector with five points")[0]
