"""Boxes of one frame after the other to tracks, by ByteTrack.

Zhang et al., "ByteTrack: Multi-object tracking by associating every detection box", ECCV 2022: sure detections are
associated with the predicted boxes of all tracks; then unsure ones with those that are left of the tracks seen last,
which they continue, but they never begin a track. Two things differ, as frames may be a fifth of a second apart, and
faces have embeddings. Boxes are enlarged before they are compared (Yang et al., "Hard to track objects with irregular
motions and similar appearances?", WACV 2023), so that a face which moves by its own width is not lost; and a pair whose
embeddings are too unlike to be one person is not associated, as after a cut. docs/decisions/index.md says why this is
not a package.

Where a box will be is predicted by a Kalman filter of constant velocity. Its state is the box's center, height and
ratio of width to height, and their changes per unit of time; the deviations are in proportion to the height (Wojke et
al., "Simple online and realtime tracking with a deep association metric", ICIP 2017). Here a unit of time is a
thirtieth of a second, the frame rate that its deviations were chosen for, however far apart the frames are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import importing

Floats = NDArray[np.float64]

# Detector scores from which a face may begin a track.
SURE = 0.6
# Minimum intersection over union of enlarged boxes, for sure and for unsure detections.
MIN_IOU, MIN_IOU_UNSURE = 0.2, 0.5
# Boxes grow by this share of their sides, on each side.
ENLARGED_BY = 0.3
# Seconds without a face after which a track ends.
MAX_GAP = 1.0
# Of the motion of boxes.
UNITS_PER_SECOND = 30.0
POSITION_DEVIATION, VELOCITY_DEVIATION = 1 / 20, 1 / 160
RATIO_DEVIATION, RATIO_VELOCITY_DEVIATION, RATIO_NOISE = 1e-2, 1e-5, 1e-1
# Of the state, what is measured: x, y, ratio, height.
_MEASURED = np.eye(4, 8)


@dataclass
class BoxMotion:
    """The motion of one box.

    Attributes:
        mean: ``(8,)`` center x, center y, ratio, height, and the change of each per unit of time.
        covariance: ``(8, 8)``.
    """

    mean: Floats
    covariance: Floats

    @classmethod
    def of(cls, box: Floats) -> BoxMotion:
        """A box, left, top, right and bottom, of which no motion is known yet."""
        measured = _to_measurement(box)
        height = measured[3]
        covariance = _covariance(2 * POSITION_DEVIATION * height, 10 * VELOCITY_DEVIATION * height)
        return cls(np.concatenate([measured, np.zeros(4)]), covariance)

    @property
    def box(self) -> Floats:
        """``(4,)`` left, top, right and bottom."""
        x, y, ratio, height = self.mean[:4]
        across, down = max(ratio, 0.0) * height / 2, height / 2
        return np.array([x - across, y - down, x + across, y + down])

    def predict(self, seconds: float) -> None:
        """Move on by a time."""
        units = seconds * UNITS_PER_SECOND
        step = np.eye(8) + units * np.eye(8, k=4)
        noise = _covariance(POSITION_DEVIATION * self.mean[3], VELOCITY_DEVIATION * self.mean[3])
        self.mean = step @ self.mean
        self.covariance = step @ self.covariance @ step.T + units * noise

    def update(self, box: Floats) -> None:
        """Take in a box that was seen now."""
        height = POSITION_DEVIATION * self.mean[3]
        noise = np.diag(np.square([height, height, RATIO_NOISE, height]))
        innovation = _MEASURED @ self.covariance @ _MEASURED.T + noise
        gain = np.linalg.solve(innovation, _MEASURED @ self.covariance).T
        self.mean = self.mean + gain @ (_to_measurement(box) - _MEASURED @ self.mean)
        self.covariance = self.covariance - gain @ innovation @ gain.T


@dataclass
class BoxTrack:
    """A face that is followed.

    Attributes:
        number: in the order in which tracks begin, from 0.
        seen: time of its last box.
        embedding: ``(d,)`` of its last face that can be compared; None before the first.
    """

    number: int
    motion: BoxMotion
    seen: float
    embedding: NDArray[np.float32] | None = None


@dataclass(frozen=True)
class SeenBox:
    """A face in a frame.

    Attributes:
        box: ``(4,)`` left, top, right and bottom in pixels.
        score: of the detector, 0 to 1.
        embedding: ``(d,)`` of unit length; None for a face that is too poor to be compared.
    """

    box: Floats
    score: float
    embedding: NDArray[np.float32] | None = None


@dataclass
class Tracker:
    """Follows faces through the frames of a video.

    Attributes:
        min_cosine: faces whose cosine similarity is lower are not of one track; None compares boxes alone.
        max_gap: seconds without a face after which a track ends.
        time: of the last frame; None before the first.
        tracks: those that have not ended.
        begun: how many have begun.
    """

    min_cosine: float | None = None
    max_gap: float = MAX_GAP
    time: float | None = None
    tracks: list[BoxTrack] = field(default_factory=list)
    begun: int = 0

    def update(self, time: float, faces: Sequence[SeenBox]) -> tuple[list[int | None], list[int]]:
        """Associate the faces of the next frame.

        Returns the number of each face's track, None for an unsure face that continues none; and the numbers of the
        tracks that have ended.
        """
        ended = [track.number for track in self.tracks if time - track.seen > self.max_gap]
        self.tracks = [track for track in self.tracks if time - track.seen <= self.max_gap]
        before = self.time
        for track in self.tracks:
            track.motion.predict(time - (track.seen if before is None else before))
        sure = [number for number, face in enumerate(faces) if face.score >= SURE]
        unsure = [number for number, face in enumerate(faces) if face.score < SURE]
        found: list[int | None] = [None] * len(faces)
        free = self._associate(time, faces, self.tracks, sure, MIN_IOU, found)
        recent = [track for track in free if track.seen == before]
        self._associate(time, faces, recent, unsure, MIN_IOU_UNSURE, found)
        for number in sure:
            if found[number] is None:
                found[number] = self._begin(time, faces[number])
        self.time = time
        return found, ended

    def _associate(
        self,
        time: float,
        faces: Sequence[SeenBox],
        tracks: Sequence[BoxTrack],
        numbers: Sequence[int],
        min_iou: float,
        found: list[int | None],
    ) -> list[BoxTrack]:
        if not tracks or not numbers:
            return list(tracks)
        shared = enlarged_iou(
            np.array([track.motion.box for track in tracks]),
            np.array([faces[number].box for number in numbers]),
        )
        for row, track in enumerate(tracks):
            for column, number in enumerate(numbers):
                if not self._alike(track.embedding, faces[number].embedding):
                    shared[row, column] = 0.0
        taken = set()
        for row, column in best_pairs(shared, min_iou):
            track, face = tracks[row], faces[numbers[column]]
            track.motion.update(face.box)
            track.seen = time
            track.embedding = track.embedding if face.embedding is None else face.embedding
            found[numbers[column]] = track.number
            taken.add(row)
        return [track for row, track in enumerate(tracks) if row not in taken]

    def _alike(self, first: NDArray[np.float32] | None, second: NDArray[np.float32] | None) -> bool:
        if self.min_cosine is None or first is None or second is None:
            return True
        return float(first @ second) >= self.min_cosine

    def _begin(self, time: float, face: SeenBox) -> int:
        number, self.begun = self.begun, self.begun + 1
        self.tracks.append(BoxTrack(number, BoxMotion.of(face.box), time, face.embedding))
        return number


def import_assignment() -> Callable[..., Any]:
    """SciPy's solver of assignment problems."""
    with importing("tracks need SciPy", "use"):
        from scipy.optimize import linear_sum_assignment
    solver: Callable[..., Any] = linear_sum_assignment
    return solver


def best_pairs(shared: Floats, minimum: float) -> list[tuple[int, int]]:
    """Pairs of rows and columns ``(R, C)`` with the greatest sum, each in one pair at most, none below a minimum."""
    worth = np.where(shared >= minimum, shared, 0.0)
    rows, columns = import_assignment()(worth, maximize=True)
    return [
        (row, column) for row, column in zip(rows.tolist(), columns.tolist(), strict=True) if worth[row, column] > 0
    ]


def enlarged_iou(first: Floats, second: Floats) -> Floats:
    """``(R, C)`` intersection over union of boxes ``(R, 4)`` and ``(C, 4)`` that are enlarged."""
    first, second = _enlarged(first), _enlarged(second)
    top_left = np.maximum(first[:, None, :2], second[None, :, :2])
    bottom_right = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.prod(np.clip(bottom_right - top_left, 0, None), axis=2)
    together = _area(first)[:, None] + _area(second)[None] - shared
    return np.asarray(shared / np.maximum(together, 1e-9), dtype=np.float64)


def _enlarged(boxes: Floats) -> Floats:
    margin = ENLARGED_BY * (boxes[:, 2:] - boxes[:, :2])
    return np.concatenate([boxes[:, :2] - margin, boxes[:, 2:] + margin], axis=1)


def _area(boxes: Floats) -> Floats:
    return np.asarray(np.prod(np.clip(boxes[:, 2:] - boxes[:, :2], 0, None), axis=1), dtype=np.float64)


def _covariance(position: float, velocity: float) -> Floats:
    """``(8, 8)`` of a state whose center and height deviate by a position, and their changes by a velocity."""
    deviations = [
        *(position, position, RATIO_DEVIATION, position),
        *(velocity, velocity, RATIO_VELOCITY_DEVIATION, velocity),
    ]
    return np.diag(np.square(deviations))


def _to_measurement(box: Floats) -> Floats:
    """Center x, center y, ratio of width to height, and height."""
    left, top, right, bottom = box.tolist()
    height = max(bottom - top, 1e-3)
    return np.array([(left + right) / 2, (top + bottom) / 2, (right - left) / height, height])
