"""YuNet through ONNX Runtime, with the faces that OpenCV's FaceDetectorYN finds.

Wu, Peng, Yu: "YuNet: A Tiny Millisecond-level Face Detector", Machine Intelligence Research 20, 2023.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection.base import Detection
from facerts.detection.nms import nms
from facerts.errors import ModelError
from facerts.onnx.dynamic_shape import make_shape_dynamic
from facerts.onnx.packs import ModelSignature, signature_of
from facerts.onnx.session import open_session, run_session

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

STRIDES = (8, 16, 32)
# What is told of each place of a stride, in so many numbers: that what is there is a face, and that something is
# there, whose geometric mean is the score; the box; five points.
COLUMNS = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
OUTPUTS = [f"{kind}_{stride}" for kind in COLUMNS for stride in STRIDES]
# Of two boxes that overlap more, as intersection over union, the one with the lower score is dropped.
MOST_OVERLAP = 0.3
# So many places with the best scores are looked at, whatever the threshold.
MOST_PLACES = 5000
EXPECTED = (
    "YuNet of 2023mar takes (1, 3, H, W) float and gives cls, obj, bbox and kps for the strides 8, 16 and 32; facerts "
    "models pull yunet fetches it"
)


class YuNet:
    """See ``base.Detector``.

    Args:
        model: ``face_detection_yunet_2023mar.onnx`` or another of its kind.
        threshold: least score of a face.
        size: longest side in pixels that larger photos are reduced to; YuNet misses faces that fill a large photo.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one run; None leaves ONNX Runtime's choice.

    Raises:
        ModelError: no such file, or not such a YuNet.
        MissingExtraError: ONNX Runtime is not installed.
    """

    def __init__(
        self,
        model: str | Path,
        *,
        threshold: float = 0.6,
        size: int = 1024,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
    ) -> None:
        self._model = Path(model)
        self._threshold = threshold
        self._size = size
        try:
            content = self._model.read_bytes()
        except FileNotFoundError as error:
            raise ModelError(f"{model}: no such detector model") from error
        except OSError as error:
            raise ModelError(f"{model}: cannot be read ({error.strerror})") from error
        network = signature_of(open_session(self._model, content=content, inference=False))
        if not is_yunet(network):
            outputs = ", ".join(output.name for output in network.outputs)
            raise ModelError(
                f"{model}: not YuNet, as it is {network} and its outputs are {outputs}; {EXPECTED}"
            )
        (taken,) = network.inputs
        self._input = taken.name
        # The published file promises 640 x 640, but runs at any multiple of its largest stride.
        self._session = open_session(
            self._model,
            content=make_shape_dynamic(content, where=model),
            providers=providers,
            threads=threads,
            varying_sizes=True,
        )
        self._check()
        # OpenCV's own runtime finds the same faces with other last digits, so the identity tells where it ran.
        digest = hashlib.sha256(content).hexdigest()
        self.identity = f"yunet {digest} in ONNX Runtime, threshold {threshold:g}, side {size}"

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        height, width = image.shape[:2]
        scale = min(1.0, self._size / max(height, width))
        size = max(1, round(width * scale)), max(1, round(height * scale))
        if scale < 1.0:
            image = cv2.resize(image, size, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
        corners, sizes, points, scores = self._see(to_input(image))
        # OpenCV compares boxes by their whole pixels.
        left_top = np.trunc(corners)
        whole = np.hstack([left_top, left_top + np.trunc(sizes)])
        factor = np.array([width / size[0], height / size[1]])
        boxes = np.hstack([corners * factor, (corners + sizes) * factor])
        points *= factor
        faces = [
            Detection(boxes[face], points[face], float(scores[face]))
            for face in nms(whole, scores, MOST_OVERLAP)
        ]
        return sorted(faces, key=lambda face: face.area, reverse=True)

    def _see(self, picture: Floats) -> tuple[Doubles, Doubles, Doubles, Floats]:
        """Corners and sizes ``(K, 2)``, points ``(K, 5, 2)`` and scores ``(K,)`` of faces, overlapping ones too."""
        cls, obj, boxes, points = self._run(picture)
        scores = np.sqrt(np.clip(cls, 0, 1) * np.clip(obj, 0, 1))[:, 0]
        if not np.isfinite(scores).all():
            raise ModelError(f"{self._model}: scores are not finite numbers")
        kept = np.flatnonzero(scores >= self._threshold)
        if len(kept) > MOST_PLACES:
            kept = kept[np.argsort(-scores[kept], kind="stable")[:MOST_PLACES]]
        place, stride = _grid(kept, *picture.shape[2:])
        centers = (place + boxes[kept, :2]) * stride
        with np.errstate(over="ignore"):
            sizes = np.exp(boxes[kept, 2:].astype(np.float64)) * stride
        marks = (place[:, None] + points[kept].reshape(-1, 5, 2)) * stride[:, None]
        if not (np.isfinite(centers).all() and np.isfinite(sizes).all() and np.isfinite(marks).all()):
            raise ModelError(f"{self._model}: boxes or points are not finite numbers")
        return centers - sizes / 2, sizes, marks, scores[kept]

    def _run(self, picture: Floats) -> list[Floats]:
        """For each kind in ``COLUMNS`` what is told of the places, ``(A, columns)``, stride by stride."""
        outputs = run_session(self._session, self._model, OUTPUTS, {self._input: picture})
        try:
            told: list[Floats] = [
                np.concatenate([output[0] for output in outputs[first : first + len(STRIDES)]])
                for first in range(0, len(OUTPUTS), len(STRIDES))
            ]
        except (ValueError, IndexError, TypeError) as error:
            raise ModelError(
                f"{self._model}: its outputs do not go together ({error}); {EXPECTED}"
            ) from error
        places, shapes = sum(_places(*picture.shape[2:])), [kind.shape for kind in told]
        if shapes != [(places, columns) for columns in COLUMNS.values()]:
            raise ModelError(
                f"{self._model}: for {picture.shape} it tells of its places {shapes}; {EXPECTED}"
            )
        return told

    def _check(self) -> None:
        """Run it once, on a black picture of another size than the file's."""
        self._run(np.zeros((1, 3, STRIDES[-1], 2 * STRIDES[-1]), dtype=np.float32))


def is_yunet(network: ModelSignature) -> bool:
    """Whether a network looks like YuNet of 2023mar, as far as its file tells the names and shapes."""
    if len(network.inputs) != 1 or not {output.name for output in network.outputs}.issuperset(OUTPUTS):
        return False
    (taken,) = network.inputs
    return len(taken.shape) == 4 and taken.shape[1] == 3 and taken.type == "tensor(float)"


def to_input(image: NDArray[np.uint8]) -> Floats:
    """``(H, W, 3) uint8`` RGB to ``(1, 3, H, W) float32`` BGR, with black added until all strides divide the sides."""
    sides = (-(-side // STRIDES[-1]) * STRIDES[-1] for side in image.shape[:2])
    picture = np.zeros((1, 3, *sides), dtype=np.float32)
    for channel, plane in enumerate(cv2.split(image)[::-1]):
        picture[0, channel, : image.shape[0], : image.shape[1]] = plane
    return picture


def _places(height: int, width: int) -> list[int]:
    """How many there are of each stride in a picture."""
    return [(height // stride) * (width // stride) for stride in STRIDES]


def _grid(kept: NDArray[np.intp], height: int, width: int) -> tuple[Doubles, Doubles]:
    """Of some of the places of all strides, by their numbers: column and row ``(K, 2)``, and stride ``(K, 1)``."""
    places = np.array(_places(height, width))
    ends = np.cumsum(places)
    level = np.searchsorted(ends, kept, side="right")
    stride = np.array(STRIDES)[level]
    row, column = np.divmod(kept - (ends - places)[level], width // stride)
    return np.stack([column, row], axis=1).astype(np.float64), stride[:, None].astype(np.float64)
