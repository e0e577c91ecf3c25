"""Why a face is poor: measures of its crop and its detection against limits.

The limits were chosen on held-out people (docs/results/use.md): on clean faces they are seldom crossed, and on
faces that are poor for one of these reasons almost always.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection
from facerts.detection.pose import head_pose
from facerts.embedding import FaceOutputs
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.measures import FACE_REGION, measure_crop
from facerts.io.json_file import read_json

NOT_A_FACE = "not_a_face"
CUT_OFF = "cut_off"
TOO_SMALL = "too_small"
TURNED_AWAY = "turned_away"
UNDER_EXPOSED = "under_exposed"
OVER_EXPOSED = "over_exposed"
BLURRED = "blurred"
NOISY = "noisy"
# In the order in which rows list them: what explains the others comes first. Half a face looks like none to a model.
REASONS = (
    CUT_OFF,
    TOO_SMALL,
    NOT_A_FACE,
    TURNED_AWAY,
    UNDER_EXPOSED,
    OVER_EXPOSED,
    BLURRED,
    NOISY,
)
# Probes by the SHA-256 of their model; written by eval/reasons.py --fit.
PROBES = Path(__file__).with_name("probes.json")

# Limits. Lengths are in pixels of the image, angles in degrees; measures are those of ``CropMeasures``.
MAX_OUTSIDE = 0.1
MIN_EYE_DISTANCE = 12.0
MAX_YAW = 45.0
MIN_LUMINANCE, MAX_LUMINANCE = 45.0, 238.0
MIN_SHARPNESS = -2.5
MAX_NOISE = -0.6

# Ten by ten points of the face region in an aligned crop, each in the middle of its part.
_LEFT, _TOP, _RIGHT, _BOTTOM = FACE_REGION
_GRID = np.stack(
    np.meshgrid(np.linspace(_LEFT, _RIGHT, 21)[1::2], np.linspace(_TOP, _BOTTOM, 21)[1::2]), axis=-1
).reshape(-1, 2)


def crop_reasons(crop: NDArray[np.uint8]) -> tuple[str, ...]:
    """Reasons that an aligned crop shows, ``(112, 112, 3) uint8`` RGB.

    Too little or too much light hides details, so sharpness and noise count only without either.
    """
    measures = measure_crop(crop)
    if measures.luminance < MIN_LUMINANCE:
        return (UNDER_EXPOSED,)
    if measures.luminance > MAX_LUMINANCE:
        return (OVER_EXPOSED,)
    return _names({BLURRED: measures.sharpness < MIN_SHARPNESS, NOISY: measures.noise > MAX_NOISE})


def detection_reasons(detection: Detection, height: int, width: int) -> tuple[str, ...]:
    """Reasons that a detection shows in a photo of a size in pixels."""
    yaw, _ = head_pose(detection.points)
    return _names(
        {
            CUT_OFF: share_outside(detection, height, width) > MAX_OUTSIDE,
            TOO_SMALL: float(np.linalg.norm(detection.points[1] - detection.points[0])) < MIN_EYE_DISTANCE,
            TURNED_AWAY: abs(yaw) > MAX_YAW,
        }
    )


def share_outside(detection: Detection, height: int, width: int) -> float:
    """The share of the face region that lies outside the photo, 0 to 1."""
    matrix = similarity_transform(TEMPLATE, detection.points)
    x, y = (_GRID @ matrix[:, :2].T + matrix[:, 2]).T
    return float(np.mean((x < -0.5) | (y < -0.5) | (x > width - 0.5) | (y > height - 0.5)))


def in_order(reasons: Iterable[str]) -> tuple[str, ...]:
    """Reasons in the order in which rows list them."""
    return tuple(sorted(reasons, key=REASONS.index))


@dataclass(frozen=True)
class Probe:
    """Separates faces, poor ones included, from non-faces, linearly in the outputs of one model.

    Attributes:
        embedding: ``(d,)`` weights of the embedding before normalization.
        norm: weight of its norm.
        quality: weight of the quality.
        bias: added to the weighted sum; what is above 0 is not a face.
    """

    embedding: NDArray[np.float64]
    norm: float
    quality: float
    bias: float

    def __call__(self, outputs: FaceOutputs) -> NDArray[np.float64]:
        """Weighted sums ``(N,)`` for outputs with norm and quality; above 0 for non-faces."""
        assert outputs.norm is not None
        assert outputs.quality is not None
        direction = outputs.embedding @ self.embedding
        return outputs.norm * (direction + self.norm) + outputs.quality * self.quality + self.bias


@cache
def find_probe(sha256: str) -> Probe | None:
    """The probe of a model; None if it has none."""
    entry = read_json(PROBES).get(sha256)
    return None if entry is None else Probe(np.array(entry.pop("embedding")), **entry)


def model_reasons(sha256: str, outputs: FaceOutputs) -> list[tuple[str, ...]]:
    """Reasons that the outputs of a model show, for each face; none for models without a probe."""
    probe = find_probe(sha256)
    if probe is None:
        return [()] * len(outputs)
    return [_names({NOT_A_FACE: value > 0}) for value in probe(outputs).tolist()]


def _names(reasons: dict[str, bool]) -> tuple[str, ...]:
    return tuple(name for name, applies in reasons.items() if applies)
