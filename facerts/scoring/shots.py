"""The best faces of a track: good ones, that differ from each other."""

from __future__ import annotations

import tempfile
import weakref
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from itertools import count

import numpy as np

from facerts.images import CROP_SIZE
from facerts.io.files import writing
from facerts.scoring.face import Face, Pose

# Two faces of a track are different shots if they are so many seconds apart, or the head has turned by so many degrees.
MIN_SECONDS = 2.0
MIN_DEGREES = 15.0
FRONTAL = Pose(0, 0, 0)
# Of a crop, in bytes.
SIZE = CROP_SIZE * CROP_SIZE * 3


@dataclass(frozen=True, eq=False, repr=False)
class Shot(Face):
    """One of the best faces of a track.

    Attributes:
        time: when it was seen, in seconds since the video began.
    """

    time: float = 0.0


@dataclass(eq=False)
class HeldShot:
    """A shot while its track is followed.

    Attributes:
        face: without its crop, once that is in a ``CropStore`` under the number ``stored``.
    """

    time: float
    face: Face
    stored: int | None = None

    @property
    def rank(self) -> tuple[float, float]:
        """Better shots have higher ranks; without a quality, those that the detector is sure of."""
        row = self.face.row
        return (-np.inf if row.quality is None else row.quality, row.det_score or 0.0)

    def resembles(self, other: HeldShot) -> bool:
        """Whether the two would be one shot to those who look at them."""
        if abs(self.time - other.time) >= MIN_SECONDS:
            return False
        turned = np.subtract(self.face.pose or FRONTAL, other.face.pose or FRONTAL)[:2]
        return bool(np.abs(turned).max() < MIN_DEGREES)


class CropStore:
    """The crops of shots, in a temporary file rather than in memory."""

    def __init__(self) -> None:
        with self._writing():
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        self._unused = count()
        self._free: list[int] = []

    def close(self) -> None:
        """Delete the file."""
        # Of a write that failed it tries the rest again.
        with suppress(OSError):
            self._file.close()

    def put(self, shot: HeldShot) -> None:
        """Store the crop of a shot; its place is used again when nobody knows the shot any more."""
        crop = shot.face.crop
        assert crop is not None
        number = self._free.pop() if self._free else next(self._unused)
        with self._writing():
            self._file.seek(number * SIZE)
            self._file.write(crop.tobytes())
            self._file.flush()
        shot.face, shot.stored = replace(shot.face, crop=None), number
        weakref.finalize(shot, self._free.append, number)

    def _writing(self) -> AbstractContextManager[None]:
        return writing(tempfile.gettempdir(), advice="free up space or set TMPDIR to another folder")

    def shot(self, held: HeldShot) -> Shot:
        """A shot with everything that is known of it."""
        scored = held.face
        if held.stored is not None:
            self._file.seek(held.stored * SIZE)
            crop = np.frombuffer(self._file.read(SIZE), dtype=np.uint8).copy()
            scored = replace(scored, crop=crop.reshape(CROP_SIZE, CROP_SIZE, 3))
        return Shot(**{field.name: getattr(scored, field.name) for field in fields(Face)}, time=held.time)


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
    shots[:] = [shot for shot in shots if shot not in alike]
    shots.append(new)
    shots.sort(key=lambda shot: shot.rank, reverse=True)
    del shots[most:]
