"""The best faces of a track: good ones, that differ from each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from facerts.detection.pose import head_pose
from facerts.io.json_arrays import Float32Array, Uint8Array
from facerts.scoring.face import Face
from facerts.scoring.row import Row

# Two faces of a track are different shots if they are so many seconds apart, or the head has turned by so many degrees.
MIN_SECONDS = 2.0
MIN_DEGREES = 15.0


@dataclass(frozen=True, eq=False)
class Shot(Face):
    """One of the best faces of a track.

    Attributes:
        time: when it was seen, in seconds since the video began.
    """

    time: float


@dataclass
class HeldShot:
    """A shot while its track is followed.

    Attributes:
        crop: None once it is in a ``CropStore``, where it has the number ``stored``.
    """

    time: float
    row: Row
    norm: float | None
    embedding: Float32Array
    crop: Uint8Array | None = None
    stored: int | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Better shots have higher ranks; without a quality, those that the detector is sure of."""
        quality = self.row.quality
        return (-np.inf if quality is None else quality, self.row.det_score or 0.0)

    def resembles(self, other: HeldShot) -> bool:
        """Whether the two would be one shot to those who look at them."""
        if abs(self.time - other.time) >= MIN_SECONDS:
            return False
        turned = np.subtract(_pose(self.row), _pose(other.row))
        return bool(np.abs(turned).max() < MIN_DEGREES)

    def as_shot(self, crop: Uint8Array) -> Shot:
        """The shot with everything that is known of it."""
        row = self.row
        return Shot(
            path=row.path,
            number=row.face or 0,
            box=None if row.box is None else np.array(row.box),
            points=None if row.points is None else np.array(row.points).reshape(-1, 2),
            det_score=row.det_score,
            crop=crop,
            embedding=self.embedding,
            norm=self.norm,
            percentile=row.percentile,
            quality=row.quality,
            uncertainty=row.uncertainty,
            accepted=row.accepted,
            reasons=row.reasons,
            model_sha256=row.model_sha256,
            time=self.time,
        )


def add_shot(shots: list[HeldShot], new: HeldShot, most: int) -> None:
    """Add a shot to the best ones, in place, if it is one of them.

    A shot that resembles others takes their place if it is better than all of them, and is left out otherwise. So no
    two of the best resemble each other, and the best of all is among them.

    Args:
        shots: best first.
        most: how many are kept.
    """
    alike = [shot for shot in shots if shot.resembles(new)]
    if any(shot.rank >= new.rank for shot in alike):
        return
    shots[:] = [shot for shot in shots if not any(shot is other for other in alike)]
    shots.append(new)
    shots.sort(key=lambda shot: shot.rank, reverse=True)
    del shots[most:]


def _pose(row: Row) -> tuple[float, float]:
    return (0.0, 0.0) if row.points is None else head_pose(np.reshape(row.points, (-1, 2)))
