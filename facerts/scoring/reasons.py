"""Why a face is poor: measures of its crop and its detection against limits, and what its model says.

The limits were chosen on held-out people (docs/results/reasons.md): on clean faces they are seldom crossed, and on
faces that are poor for one of these reasons almost always.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection import Detection
from facerts.embedding import FaceOutputs
from facerts.embedding.outputs import NOT_A_FACE as NOT_A_FACE
from facerts.images.align import TEMPLATE, similarity_transform

NO_FACE = "no_face"
CUT_OFF = "cut_off"
TOO_SMALL = "too_small"
TURNED = "turned"
COVERED = "covered"
UNDER_EXPOSED = "under_exposed"
OVER_EXPOSED = "over_exposed"
BLURRED = "blurred"
NOISY = "noisy"
BELOW_THRESHOLD = "below_threshold"
# In the order in which rows list them: what explains the others comes first.
REASONS = (
    NO_FACE,
    CUT_OFF,
    TOO_SMALL,
    NOT_A_FACE,
    TURNED,
    COVERED,
    UNDER_EXPOSED,
    OVER_EXPOSED,
    BLURRED,
    NOISY,
    BELOW_THRESHOLD,
)
# Half a face, or a tiny one that was enlarged, looks like none to a model: with these it is not said to be none.
LOOKING_LIKE_NONE = (CUT_OFF, TOO_SMALL)
# One of them is why an image was rejected.
REJECTING = (NO_FACE, NOT_A_FACE, BELOW_THRESHOLD)

# Limits. Lengths are in pixels of the image, angles in degrees; measures are those of ``CropMeasures``.
MAX_OUTSIDE = 0.1
MIN_EYE_DISTANCE = 12.0
MAX_YAW = 35.0
MIN_LUMINANCE, MAX_LUMINANCE = 45.0, 238.0
MIN_SHARPNESS = -2.5
MAX_NOISE = -0.6

# The face in an aligned crop, from the brows to the chin and between the ears: left, top, right, bottom.
FACE_REGION = 16, 24, 96, 108

# Added to variances, in squared gray levels, so that the logarithm of a uniform area is finite.
FLOOR = 0.05

# Ten by ten points of the face region in an aligned crop, each in the middle of its part.
_LEFT, _TOP, _RIGHT, _BOTTOM = FACE_REGION
_GRID = np.stack(
    np.meshgrid(np.linspace(_LEFT, _RIGHT, 21)[1::2], np.linspace(_TOP, _BOTTOM, 21)[1::2]), axis=-1
).reshape(-1, 2)


@dataclass(frozen=True)
class CropMeasures:
    """Measures of the face region of a crop.

    Attributes:
        luminance: the 75th percentile of the gray levels, 0 to 255.
        sharpness: how much of the detail is fine: the logarithm of the variance of details up to 2 pixels, the mean of
            those below and above 0.7 pixels, over that of details of 4 to 8 pixels. About -1.5 for sharp faces, -4 for
            blurred ones.
        noise: the logarithm of the variance of details up to 0.7 pixels over that of details of 0.7 to 2 pixels. About
            -2 for faces, 0.8 for noise.
    """

    luminance: float
    sharpness: float
    noise: float


def measure_crop(crop: NDArray[np.uint8]) -> CropMeasures:
    """Measure the face region of an aligned crop, ``(112, 112, 3) uint8`` RGB."""
    left, top, right, bottom = FACE_REGION
    gray = cv2.cvtColor(crop[top:bottom, left:right], cv2.COLOR_RGB2GRAY)
    levels = cv2.calcHist([gray], [0], None, [256], [0, 256]).cumsum()
    pixels = gray.astype(np.float32)
    at_1 = cv2.GaussianBlur(pixels, (3, 3), 0.7)
    at_2 = cv2.GaussianBlur(at_1, (0, 0), 2.0)
    # What is left has no finer details, so half the resolution holds it; Gaussians of 4 and 8 pixels are 2 and 4 there.
    at_4 = cv2.GaussianBlur(at_2[::2, ::2], (0, 0), 2.0)
    at_8 = cv2.GaussianBlur(at_4, (0, 0), 4.0)
    # In place: memory for new arrays of this size takes longer than the arithmetic.
    cv2.subtract(pixels, at_1, dst=pixels)
    cv2.subtract(at_1, at_2, dst=at_1)
    cv2.subtract(at_4, at_8, dst=at_4)
    below_1, below_2, below_8 = (_log_variance(details) for details in (pixels, at_1, at_4))
    return CropMeasures(
        luminance=float(np.searchsorted(levels, 0.75 * levels[-1])),
        sharpness=(below_1 + below_2) / 2 - below_8,
        noise=below_1 - below_2,
    )


def _log_variance(values: NDArray[np.integer | np.floating]) -> float:
    _, deviation = cv2.meanStdDev(values)
    return float(np.log(deviation.item() ** 2 + FLOOR))


def crop_reasons(crop: NDArray[np.uint8]) -> tuple[str, ...]:
    """Reasons that an aligned crop shows, ``(112, 112, 3) uint8`` RGB.

    Too little or too much light hides details, so sharpness and noise count only without either.
    """
    measures = measure_crop(crop)
    if measures.luminance < MIN_LUMINANCE:
        return (UNDER_EXPOSED,)
    if measures.luminance > MAX_LUMINANCE:
        return (OVER_EXPOSED,)
    return (BLURRED,) * (measures.sharpness < MIN_SHARPNESS) + (NOISY,) * (measures.noise > MAX_NOISE)


def detection_reasons(detection: Detection, height: int, width: int) -> tuple[str, ...]:
    """Reasons that a detection shows in a photo of a size in pixels."""
    eyes = float(np.linalg.norm(detection.points[1] - detection.points[0]))
    outside = share_outside(detection, height, width)
    return (
        (CUT_OFF,) * (outside > MAX_OUTSIDE)
        + (TOO_SMALL,) * (eyes < MIN_EYE_DISTANCE)
        + (TURNED,) * (abs(detection.pose[0]) > MAX_YAW)
    )


def share_outside(detection: Detection, height: int, width: int) -> float:
    """The share of the face region that lies outside the photo, 0 to 1."""
    matrix = similarity_transform(TEMPLATE, detection.points)
    x, y = (_GRID @ matrix[:, :2].T + matrix[:, 2]).T
    return float(np.mean((x < -0.5) | (y < -0.5) | (x > width - 0.5) | (y > height - 0.5)))


def in_order(reasons: Iterable[str]) -> tuple[str, ...]:
    """Reasons in the order in which rows list them, without ``not_a_face`` where another explains it."""
    given = set(reasons)
    if not given.isdisjoint(LOOKING_LIKE_NONE):
        given.discard(NOT_A_FACE)
    return tuple(sorted(given, key=REASONS.index))


def in_words(reasons: Iterable[str], keep: float | None = None, pose: Sequence[float] | None = None) -> str:
    """Reasons as people read them, separated by semicolons; the threshold only where nothing else explains it.

    Args:
        keep: the share of the calibration faces that the threshold keeps, if it is known.
        pose: yaw, pitch and roll in degrees, if they are known.
    """
    share = "" if keep is None else f" that keeps {100 * keep:g}%"
    words = {BELOW_THRESHOLD: f"below the threshold{share}", NO_FACE: "no face found"}
    if pose is not None:
        words[TURNED] = f"turned: yaw {abs(pose[0]):.0f}°"
    given = list(reasons)
    said = [reason for reason in given if reason != BELOW_THRESHOLD] or given
    return "; ".join(words.get(reason, reason.replace("_", " ")) for reason in said)


def model_reasons(outputs: FaceOutputs, at: int) -> tuple[str, ...]:
    """Reasons that a row of a model's outputs shows, as far as the model gives any; a non-face is not covered, too."""
    for reason, flags in ((NOT_A_FACE, outputs.not_a_face), (COVERED, outputs.covered)):
        if flags is not None and flags[at]:
            return (reason,)
    return ()
