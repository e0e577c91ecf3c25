"""The rows of clips and of their tracks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from facerts.scoring.track import Track


@dataclass(frozen=True)
class ClipRow:
    """A clip, or why it could not be read; fields without a value are None.

    Attributes:
        seconds: duration, as the clip itself says.
        read_until: time of the last frame that was decoded, in seconds.
        frames: number of frames that were looked at.
        faces: number of faces in them.
        tracks: number of tracks.
        too_poor: how many of them have only poor faces.
        left_out: number of tracks with fewer faces than the minimum.
        damaged: number of packets and frames that were damaged.
        error: why it could not be read, or not to its end.
    """

    clip: str
    seconds: float | None = None
    read_until: float | None = None
    frames: int = 0
    faces: int = 0
    tracks: int = 0
    too_poor: int = 0
    left_out: int = 0
    damaged: int = 0
    error: str | None = None


@dataclass(frozen=True)
class TrackRow:
    """A track, see ``facerts.Track``; fields without a value are None.

    Attributes:
        track: its number in the clip, from 1.
        spans: begin and end of each time that it is on screen, one after the other, in seconds.
        best_times: times of the best shots, best first, in seconds.
        crops: their files, relative to the folder of results.
        decision: of the search in the gallery; None without one.
        person: the most similar person, also where the decision is "unknown".
        threshold: minimum cosine similarity of a match at the false positive identification rate.
        fpir: that rate.
    """

    clip: str
    track: int
    start: float
    end: float
    spans: list[float]
    faces: int
    poor_faces: int
    percentile: float | None = None
    quality: float | None = None
    reasons: tuple[str, ...] = ()
    best_times: list[float] | None = None
    crops: tuple[str, ...] = ()
    decision: str | None = None
    person: str | None = None
    cosine: float | None = None
    threshold: float | None = None
    fpir: float | None = None
    model_sha256: str = ""


def track_row(track: Track, clip: str, crops: tuple[str, ...], found: Mapping[str, Any]) -> TrackRow:
    """The row of a track.

    Args:
        crops: names of the files of its best shots.
        found: columns of a search in a gallery.
    """
    return TrackRow(
        clip,
        track.number,
        start=round(track.start, 3),
        end=round(track.end, 3),
        spans=[round(side, 3) for span in track.spans for side in span],
        faces=track.faces,
        poor_faces=track.poor_faces,
        percentile=track.percentile,
        quality=track.quality,
        reasons=track.reasons,
        best_times=[round(shot.time, 3) for shot in track.best],
        crops=crops,
        model_sha256=track.model_sha256,
        **found,
    )
