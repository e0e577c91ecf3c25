"""A person's face through a video; while it is followed, sums and best shots, whose size does not grow with time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from facerts.images import decode, encode_png
from facerts.io.progress import duration as in_words_of_time
from facerts.metrics.pooling import face_weights
from facerts.scoring.face import Face, Pose
from facerts.scoring.reasons import in_order, in_words
from facerts.scoring.row import Row

Floats = NDArray[np.float64]
# Two faces of a track are different shots if they are so many seconds apart, or the head has turned by so many degrees.
MIN_SECONDS = 2.0
MIN_DEGREES = 15.0
FRONTAL = Pose(0, 0, 0)


@dataclass(frozen=True, eq=False)
class Track:
    """One person's face in a video, over cuts and absences.

    Attributes:
        path: the video's path; "frames" for images, "video" for one in memory.
        number: of the track in its video, from 1, in the order in which tracks end, or of a whole file begin.
        spans: begin and end of each time that the face is on screen, in seconds since the video began.
        faces: number of frames in which the face was looked at.
        poor_faces: how many of them are below the threshold or not a face.
        best: the best shots, best first; none are poor.
        template: ``(d,) float32`` of unit length: the mean of the embeddings, weighted by the percentiles of
            their quality; of the poor faces only if all are poor.
        percentile: of the best face.
        quality: of the best face.
        too_poor: whether all faces are poor, so that nothing can be said of who it is.
        reasons: what makes the best face poor, or, if all are, what makes most of them poor.
        parts: numbers of the unbroken tracks that it was joined of.
        model_sha256: SHA-256 of the model's file.
    """

    path: str
    number: int
    spans: tuple[tuple[float, float], ...]
    faces: int
    poor_faces: int
    best: tuple[Shot, ...]
    template: NDArray[np.float32]
    percentile: float | None
    quality: float | None
    too_poor: bool
    reasons: tuple[str, ...]
    parts: tuple[int, ...]
    model_sha256: str

    def __repr__(self) -> str:
        percentile = "" if self.percentile is None else f", percentile {int(self.percentile)}"
        poor = f", {in_words(self.reasons)}" if self.reasons else ""
        times = f"{in_words_of_time(self.start)} to {in_words_of_time(self.end)}"
        return f"<Track {self.number} of {self.path}, {times}{percentile}{poor}>"

    @property
    def start(self) -> float:
        """When the face is first seen."""
        return self.spans[0][0]

    @property
    def end(self) -> float:
        """When the face is last seen."""
        return self.spans[-1][1]

    @property
    def seconds(self) -> float:
        """How long the face is on screen."""
        return sum(end - start for start, end in self.spans)

    def as_face(self) -> Face:
        """The template as if it was the embedding of one face, for ``Gallery.match``."""
        row = Row(
            self.path,
            face=self.number,
            percentile=self.percentile,
            quality=self.quality,
            accepted=not self.too_poor,
            reasons=self.reasons,
            model_sha256=self.model_sha256,
        )
        return Face(row, self.best[0].crop if self.best else None, self.template, found=1)


def _zero() -> Floats:
    return np.zeros(())


@dataclass(eq=False)
class TrackBuilder:
    """A track that is followed, or several that were joined.

    Attributes:
        spans: begin and end of each unbroken track, in seconds, by its number.
        poor_faces: how many of them are rejected.
        good_sum: ``(d,)`` weighted sum of the embeddings of the others.
        good_weight: sum of their weights; 0 if all are rejected.
        poor_sum: ``(d,)`` weighted sum of those rejected.
        top: the row of the face with the highest quality, rejected or not.
        reasons: how many of the rejected faces have each reason.
        shots: the best faces that are not rejected, best first.
    """

    spans: dict[int, tuple[float, float]] = field(default_factory=dict)
    faces: int = 0
    poor_faces: int = 0
    good_sum: Floats = field(default_factory=_zero)
    good_weight: float = 0.0
    poor_sum: Floats = field(default_factory=_zero)
    top: Row | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    shots: list[Shot] = field(default_factory=list)

    @property
    def start(self) -> float:
        """When it is first seen."""
        return min(start for start, _ in self.spans.values())

    @property
    def end(self) -> float:
        """When it was last seen."""
        return max(end for _, end in self.spans.values())

    @property
    def too_poor(self) -> bool:
        """Whether all faces are rejected."""
        return self.good_weight == 0

    @property
    def mean(self) -> Floats:
        """``(d,)`` weighted mean of the faces that are not poor.

        The product of two means is the mean cosine of their faces, to which match thresholds of single faces apply.
        That of unit templates is higher, also for different people.
        """
        return self.good_sum / self.good_weight

    def add(self, part: int, time: float, face: Face, most: int) -> None:
        """Add the face of a frame to the unbroken track of number ``part``; ``most`` is the number of shots to keep."""
        row, embedding = face.row, face.vector
        assert embedding is not None
        begin, end = self.spans.get(part, (time, time))
        self.spans[part] = (begin, max(end, time))
        self.faces += 1
        self._add_top(row)
        weight = float(face_weights(np.nan if row.percentile is None else row.percentile))
        weighted = embedding.astype(np.float64) * weight
        if row.rejected:
            self.poor_faces += 1
            self.poor_sum = self.poor_sum + weighted
            self.reasons.update(row.reasons)
        else:
            self.good_sum = self.good_sum + weighted
            self.good_weight += weight
            add_shot(self.shots, Shot.of(face, time), most)

    def overlaps(self, other: TrackBuilder) -> bool:
        """Whether the two are on screen at the same time at least once."""
        return any(
            start <= its_end and its_start <= end
            for start, end in self.spans.values()
            for its_start, its_end in other.spans.values()
        )

    def join(self, other: TrackBuilder, most: int) -> None:
        """Take in another track of the same person."""
        self.spans |= other.spans
        self.faces += other.faces
        self.poor_faces += other.poor_faces
        self.good_sum = self.good_sum + other.good_sum
        self.good_weight += other.good_weight
        self.poor_sum = self.poor_sum + other.poor_sum
        self.reasons.update(other.reasons)
        if other.top is not None:
            self._add_top(other.top)
        for shot in other.shots:
            add_shot(self.shots, shot, most)

    def as_track(self, path: str, number: int, model_sha256: str) -> Track:
        """The finished track."""
        template = self.poor_sum if self.too_poor else self.good_sum
        best = self.top if self.too_poor else self.shots[0].row
        parts = sorted(self.spans, key=self.spans.__getitem__)
        assert best is not None
        return Track(
            path=path,
            number=number,
            spans=tuple(self.spans[part] for part in parts),
            faces=self.faces,
            poor_faces=self.poor_faces,
            best=tuple(shot.restored() for shot in self.shots),
            template=np.asarray(template / max(float(np.linalg.norm(template)), 1e-12), dtype=np.float32),
            percentile=best.percentile,
            quality=best.quality,
            too_poor=self.too_poor,
            reasons=self._common_reasons() if self.too_poor else best.reasons,
            parts=tuple(parts),
            model_sha256=model_sha256,
        )

    def _add_top(self, row: Row) -> None:
        known = -np.inf if self.top is None or self.top.quality is None else self.top.quality
        if self.top is None or (row.quality is not None and row.quality > known):
            self.top = row

    def _common_reasons(self) -> tuple[str, ...]:
        """The reasons of at least half of the poor faces, and the most common one."""
        most = max(self.reasons.values(), default=0)
        common = min(most, self.poor_faces / 2)
        return in_order(reason for reason, count in self.reasons.items() if count >= common)


def joined_best(tracks: Sequence[TrackBuilder], new: TrackBuilder, min_cosine: float) -> TrackBuilder | None:
    """The track that a new one continues: the most similar of those never on screen at the same time.

    Args:
        min_cosine: mean cosine similarity of their faces from which two are one person.
    """
    known = [] if new.too_poor else [each for each in tracks if not (each.too_poor or each.overlaps(new))]
    if not known:
        return None
    cosines = np.stack([track.mean for track in known]) @ new.mean
    best = int(np.argmax(cosines))
    return known[best] if cosines[best] >= min_cosine else None


@dataclass(frozen=True, eq=False, repr=False)
class Shot(Face):
    """One of the best faces of a track.

    Attributes:
        time: when it was seen, in seconds since the video began.
        png: its crop while the track waits to be joined, as a long video has many tracks.
    """

    time: float = 0.0
    png: bytes | None = None

    @classmethod
    def of(cls, face: Face, time: float) -> Shot:
        """The shot of a face at a time."""
        return cls(**{field.name: getattr(face, field.name) for field in fields(Face)}, time=time)

    @property
    def rank(self) -> tuple[float, float]:
        """Better shots have higher ranks; without a quality, those that the detector is sure of."""
        return (-np.inf if self.row.quality is None else self.row.quality, self.row.det_score or 0.0)

    def resembles(self, other: Shot) -> bool:
        """Whether the two would be one shot to those who look at them."""
        if abs(self.time - other.time) >= MIN_SECONDS:
            return False
        turned = np.subtract(self.pose or FRONTAL, other.pose or FRONTAL)[:2]
        return bool(np.abs(turned).max() < MIN_DEGREES)

    def compressed(self) -> Shot:
        """The shot with its crop as PNG alone."""
        assert self.crop is not None
        return replace(self, crop=None, png=encode_png(self.crop))

    def restored(self) -> Shot:
        """The shot with its crop."""
        return self if self.png is None else replace(self, crop=decode(self.png, where="a best shot"), png=None)


def add_shot(shots: list[Shot], new: Shot, most: int) -> None:
    """Add a shot to the best ones, in place, if it is one of them.

    A shot that resembles others takes their place if it is better than all of them, and is left out otherwise. So no
    two of the ``most`` best, which come first, resemble each other, and the best of all is among them.
    """
    alike = [shot for shot in shots if shot.resembles(new)]
    if any(shot.rank >= new.rank for shot in alike):
        return
    shots[:] = [shot for shot in shots if shot not in alike]
    shots.append(new)
    shots.sort(key=lambda shot: shot.rank, reverse=True)
    del shots[most:]
