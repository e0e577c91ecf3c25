"""SCRFD through ONNX Runtime: the detector of insightface's model packs.

Guo, Deng, Lattas, Zafeiriou: "Sample and Computation Redistribution for Efficient Face Detection", ICLR 2022.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection.base import Detection
from facerts.detection.nms import nms
from facerts.errors import ModelError
from facerts.io.files import sha256_file
from facerts.onnx.packs import ModelSignature, find_in_pack, is_pack, signature_of
from facerts.onnx.session import open_session, run_session

Floats = NDArray[np.float64]

STRIDES = (8, 16, 32)
ANCHORS = 2
# What is told of an anchor: its score, distances to the sides of the box, five points.
COLUMNS = (1, 4, 10)
DEFAULT_SIZE = 640
# The second look is so much smaller, and is for faces with a side of at least so many pixels in the first.
CLOSE_UP = 4
LARGE = 320
# Of two boxes that overlap more, as intersection over union, the one with the lower score is dropped.
MOST_OVERLAP = 0.4
EXPECTED = (
    "SCRFD takes (1, 3, H, W) float, H and W free or multiples of 32, and gives scores (A, 1), boxes (A, 4) and five "
    "points (A, 10), each at the strides 8, 16 and 32 with two anchors a place"
)


class _Head(NamedTuple):
    """Which outputs tell of the anchors of a stride."""

    stride: int
    scores: int
    boxes: int
    points: int


class _Look(NamedTuple):
    """One of the sizes in which a photo is looked at.

    Attributes:
        size: of the square that it is fitted into, in the upper left of the input.
        height: of the input.
        width: of the input.
        heads: one for each stride.
        shapes: of all outputs.
    """

    size: int
    height: int
    width: int
    heads: tuple[_Head, ...]
    shapes: tuple[tuple[int, ...], ...]

    def scale(self, image: NDArray[np.uint8]) -> float:
        """Pixels of the input for one of the photo."""
        height, width = image.shape[:2]
        return float(min(self.size / max(height, width), self.height / height, self.width / width))


class SCRFD:
    """See ``base.Detector``.

    SCRFD sees no face of more than about 400 pixels. So each photo is looked at twice: fitted into ``size``; and into
    a quarter of that, where only faces count that have 320 pixels and more in the first look.

    Args:
        model: an .onnx file of SCRFD with five points, or an insightface model pack, a folder or .zip, that has one.
        threshold: least score of a face.
        size: the square in pixels that photos are fitted into, small ones enlarged; by default the longest side of
            the model's input where that is fixed, otherwise 640.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one run; None leaves ONNX Runtime's choice.

    Raises:
        ModelError: no such file, not SCRFD with five points, or its input is fixed and smaller than ``size``.
        MissingExtraError: ONNX Runtime is not installed.
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
        with tempfile.TemporaryDirectory() as scratch:
            file = _find_in_pack(self._model, Path(scratch)) if is_pack(self._model) else self._model
            self._session = open_session(file, providers=providers, threads=threads)
            digest = sha256_file(file)
        network = signature_of(self._session)
        if not is_scrfd(network):
            raise ModelError(f"{model}: not SCRFD, as it is {network}; {EXPECTED}")
        (taken,) = network.inputs
        self._input = taken.name
        sides = taken.shape[2:]
        fixed = [side for side in sides if isinstance(side, int)]
        size = size or max(fixed, default=DEFAULT_SIZE)
        if fixed and size > max(fixed):
            raise ModelError(f"{model}: its input is {taken.shape}, so photos cannot be fitted into {size}")
        self._whole = self._look(size, sides)
        self._from_afar = self._look(math.ceil(size / CLOSE_UP), sides) if size > LARGE else None
        self.identity = f"scrfd {digest}, threshold {threshold:g}, side {size}"

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        seen = self._see(image, self._whole)
        ranks = seen[0]
        if self._from_afar is not None:
            far = self._see(image, self._from_afar)
            sides = np.max(far[1][:, 2:] - far[1][:, :2], axis=1, initial=0)
            large = sides * self._whole.scale(image) >= LARGE
            # Of a face that both saw, the first look has the finer points.
            ranks = np.concatenate([ranks, far[0][large] - 1])
            seen = tuple(np.concatenate([near, more[large]]) for near, more in zip(seen, far, strict=True))
        scores, boxes, points = seen
        faces = [
            Detection(boxes[face], points[face], float(scores[face]))
            for face in nms(boxes, ranks, MOST_OVERLAP)
        ]
        return sorted(faces, key=lambda face: face.area, reverse=True)

    def _see(self, image: NDArray[np.uint8], look: _Look) -> tuple[Floats, ...]:
        """Scores ``(K,)``, boxes ``(K, 4)`` and points ``(K, 5, 2)``, in pixels of the photo, overlapping ones too."""
        canvas, factor = _fit(image, look)
        outputs = self._run(canvas)
        if tuple(output.shape for output in outputs) != look.shapes:
            raise ModelError(f"{self._model}: for inputs of one size it gives outputs of several; {EXPECTED}")
        seen = []
        for head in look.heads:
            scores = outputs[head.scores].reshape(-1).astype(np.float64)
            for what, values in (
                ("scores", scores),
                ("boxes", outputs[head.boxes]),
                ("points", outputs[head.points]),
            ):
                if not np.isfinite(values).all():
                    raise ModelError(f"{self._model}: {what} of stride {head.stride} are not finite numbers")
            kept = np.flatnonzero(scores >= self._threshold)
            row, column = np.divmod(kept // ANCHORS, look.width // head.stride)
            place = np.stack([column, row], axis=1)[:, None].astype(np.float64)
            corners = place + outputs[head.boxes].reshape(-1, 2, 2)[kept] * [[[-1.0], [1.0]]]
            points = place + outputs[head.points].reshape(-1, 5, 2)[kept]
            pixels = head.stride * factor
            seen.append((scores[kept], (corners * pixels).reshape(-1, 4), points * pixels))
        return tuple(np.concatenate(of_strides) for of_strides in zip(*seen, strict=True))

    def _run(self, canvas: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
        # Planes are copied while they are bytes; then they become floats in one pass.
        planes = np.ascontiguousarray(canvas.transpose(2, 0, 1)[None])
        shifted = np.multiply(planes, np.float32(1 / 128), dtype=np.float32)
        shifted -= np.float32(127.5 / 128)
        return run_session(self._session, self._model, None, {self._input: shifted})

    def _look(self, size: int, sides: Sequence[int | str | None]) -> _Look:
        """What the outputs are is told by the shapes that they have for a black photo, not by their names and order.

        Args:
            size: that photos are fitted into.
            sides: of the input, where they are fixed.
        """
        # Each stride must divide the sides of the input.
        free = math.ceil(size / STRIDES[-1]) * STRIDES[-1]
        height, width = (side if isinstance(side, int) else free for side in sides)
        taken = f"(1, 3, {height}, {width})"
        try:
            outputs = self._run(np.zeros((height, width, 3), dtype=np.uint8))
        except ModelError as error:
            raise ModelError(f"{error}, for {taken}; {EXPECTED}") from error
        shapes = [
            (math.prod(output.shape[:-1]), output.shape[-1] if output.ndim else 0) for output in outputs
        ]
        heads = []
        for stride in STRIDES:
            anchors = ANCHORS * (height // stride) * (width // stride)
            wanted = [(anchors, columns) for columns in COLUMNS]
            if missing := [shape for shape in wanted if shape not in shapes]:
                raise ModelError(
                    f"{self._model}: not SCRFD, as for {taken} it gives "
                    f"{', '.join(str(output.shape) for output in outputs)}, and none is {missing[0]}; {EXPECTED}"
                )
            heads.append(_Head(stride, *(shapes.index(shape) for shape in wanted)))
        return _Look(size, height, width, tuple(heads), tuple(output.shape for output in outputs))


def is_scrfd(network: ModelSignature) -> bool:
    """Whether a network looks like SCRFD with five points, as far as its file tells the shapes."""
    if len(network.inputs) != 1 or len(network.outputs) != len(COLUMNS) * len(STRIDES):
        return False
    (taken,) = network.inputs
    if len(taken.shape) != 4 or taken.type != "tensor(float)":
        return False
    if any(output.type != "tensor(float)" for output in network.outputs):
        return False
    batch, channels, *sides = taken.shape
    told = Counter(output.shape[-1] for output in network.outputs if output.shape)
    return (
        (batch == 1 or not isinstance(batch, int))
        and channels == 3
        and all(side % STRIDES[-1] == 0 for side in sides if isinstance(side, int))
        and all(told[columns] <= len(STRIDES) for columns in COLUMNS)
        and all(columns in COLUMNS for columns in told if isinstance(columns, int))
    )


def _fit(image: NDArray[np.uint8], look: _Look) -> tuple[NDArray[np.uint8], Floats]:
    """The photo in the upper left of the input, black beside it; and a pixel's size in pixels of the photo."""
    height, width = image.shape[:2]
    scale = look.scale(image)
    size = max(1, round(width * scale)), max(1, round(height * scale))
    canvas = np.zeros((look.height, look.width, 3), dtype=np.uint8)
    canvas[: size[1], : size[0]] = cv2.resize(
        image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    )
    return canvas, np.array([width / size[0], height / size[1]])


def _find_in_pack(path: Path, scratch: Path) -> Path:
    return find_in_pack(path, scratch, is_scrfd, wanted="SCRFD detector with five points")[0]
