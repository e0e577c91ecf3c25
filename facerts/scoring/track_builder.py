"""What is known of a track while it is followed: sums and the best shots, whose size does not grow with time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from facerts.io.json_arrays import Float32Array, Float64Array
from facerts.metrics.pooling import face_weights
from facerts.scoring.crop_store import CropStore
from facerts.scoring.reasons import in_order
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.shots import HeldShot, add_shot
from facerts.scoring.track import Track


@dataclass
class TrackBuilder:
    """A track that is followed, or several that were joined.

    Attributes:
        parts: numbers of the unbroken tracks, in the order of their spans.
        spans: begin and end of each, in seconds.
        faces: number of faces.
        poor_faces: how many of them are rejected.
        good_sum: ``(d,)`` weighted sum of the embeddings of the others; None if there are none.
        good_weight: sum of their weights.
        poor_sum: likewise of those rejected.
        top_quality: of all faces; None if the model has no quality.
        top_percentile: likewise.
        reasons: how many of the rejected faces have each reason.
        shots: the best faces that are not rejected, best first.
    """

    parts: list[int]
    spans: list[tuple[float, float]]
    faces: int = 0
    poor_faces: int = 0
    good_sum: Float64Array | None = None
    good_weight: float = 0.0
    poor_sum: Float64Array | None = None
    top_quality: float | None = None
    top_percentile: float | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    shots: list[HeldShot] = field(default_factory=list)

    @property
    def start(self) -> float:
        """When it is first seen."""
        return min(start for start, _ in self.spans)

    @property
    def end(self) -> float:
        """When it was last seen."""
        return max(end for _, end in self.spans)

    @property
    def mean(self) -> Float64Array | None:
        """``(d,)`` weighted mean of the faces that are not poor; None if all are.

        The product of two means is the mean cosine of their faces, to which match thresholds of single faces apply.
        That of unit templates is higher, also for different people.
        """
        return None if self.good_sum is None else self.good_sum / self.good_weight

    def add(self, time: float, face: ScoredFace, most: int) -> None:
        """Add the face of a frame.

        Args:
            most: number of shots to keep.
        """
        row, embedding = face.row, face.embedding
        assert embedding is not None
        begin, end = self.spans[-1]
        self.spans[-1] = (begin, max(end, time))
        self.faces += 1
        if row.quality is not None and (self.top_quality is None or row.quality > self.top_quality):
            self.top_quality, self.top_percentile = row.quality, row.percentile
        weight = float(face_weights(np.nan if row.percentile is None else row.percentile))
        weighted = embedding.astype(np.float64) * weight
        if row.rejected:
            self.poor_faces += 1
            self.poor_sum = _added(self.poor_sum, weighted)
            for reason in row.reasons:
                self.reasons[reason] = self.reasons.get(reason, 0) + 1
            return
        self.good_sum = _added(self.good_sum, weighted)
        self.good_weight += weight
        add_shot(self.shots, HeldShot(time, row, face.norm, embedding, face.crop), most)

    def overlaps(self, other: TrackBuilder) -> bool:
        """Whether the two are on screen at the same time at least once."""
        return any(
            start <= its_end and its_start <= end
            for start, end in self.spans
            for its_start, its_end in other.spans
        )

    def join(self, other: TrackBuilder, most: int) -> None:
        """Take in another track of the same person."""
        ordered = sorted(
            zip([*self.spans, *other.spans], [*self.parts, *other.parts], strict=True),
            key=lambda each: each[0],
        )
        self.spans, self.parts = [span for span, _ in ordered], [part for _, part in ordered]
        self.faces += other.faces
        self.poor_faces += other.poor_faces
        self.good_sum = _added(self.good_sum, other.good_sum)
        self.good_weight += other.good_weight
        self.poor_sum = _added(self.poor_sum, other.poor_sum)
        if other.top_quality is not None and (
            self.top_quality is None or other.top_quality > self.top_quality
        ):
            self.top_quality, self.top_percentile = other.top_quality, other.top_percentile
        for reason, count in other.reasons.items():
            self.reasons[reason] = self.reasons.get(reason, 0) + count
        for shot in other.shots:
            add_shot(self.shots, shot, most)

    def put_away(self, store: CropStore) -> None:
        """Keep the crops in a store rather than in memory."""
        for shot in self.shots:
            if shot.crop is not None:
                shot.stored, shot.crop = store.put(shot.crop), None

    def as_track(self, path: str, number: int, store: CropStore, model_sha256: str) -> Track:
        """The finished track."""
        template = self.good_sum if self.good_sum is not None else self.poor_sum
        assert template is not None
        shots = [
            shot.as_shot(shot.crop if shot.crop is not None else store.get(shot.stored or 0))
            for shot in self.shots
        ]
        return Track(
            path=path,
            number=number,
            spans=tuple(self.spans),
            faces=self.faces,
            poor_faces=self.poor_faces,
            best=tuple(shots),
            template=_unit(template),
            percentile=self.top_percentile if self.good_sum is None else shots[0].percentile,
            quality=self.top_quality if self.good_sum is None else shots[0].quality,
            too_poor=self.good_sum is None,
            reasons=self._common_reasons() if self.good_sum is None else shots[0].reasons,
            parts=tuple(self.parts),
            model_sha256=model_sha256,
        )

    def _common_reasons(self) -> tuple[str, ...]:
        """The reasons of at least half of the poor faces, and the most common one."""
        most = max(self.reasons.values(), default=0)
        return in_order(
            reason
            for reason, count in self.reasons.items()
            if count in (most,) or 2 * count >= self.poor_faces
        )


def joined_best(tracks: Sequence[TrackBuilder], new: TrackBuilder, min_cosine: float) -> TrackBuilder | None:
    """The track that a new one continues: the most similar of those never on screen at the same time.

    Args:
        min_cosine: mean cosine similarity of their faces from which two are one person.
    """
    mean = new.mean
    others = [(track, track.mean) for track in tracks]
    known = [(track, its) for track, its in others if its is not None]
    if mean is None or not known:
        return None
    cosines = np.stack([its for _, its in known]) @ mean
    order: list[int] = np.argsort(-cosines, kind="stable").tolist()
    for at in order:
        if cosines[at] < min_cosine:
            return None
        if not known[at][0].overlaps(new):
            return known[at][0]
    return None


def _added(first: Float64Array | None, second: Float64Array | None) -> Float64Array | None:
    return second if first is None else first if second is None else first + second


def _unit(total: Float64Array) -> Float32Array:
    return np.asarray(total / max(float(np.linalg.norm(total)), 1e-12), dtype=np.float32)
