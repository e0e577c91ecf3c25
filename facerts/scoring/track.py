"""A person's face through a video."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.io.progress import duration as in_words_of_time
from facerts.scoring.reasons import in_words
from facerts.scoring.row import Row
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.shots import Shot


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

    def as_face(self) -> ScoredFace:
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
        return ScoredFace(row, self.best[0].crop if self.best else None, self.template, found=1)
