"""Clips to a folder of results, one clip after the other, so that an interrupted run goes on with the next.

The folder has ``tracks.csv`` with a row for each track, ``clips.csv`` with one for each clip, ``templates.npz``, and
the best shots in ``crops/``. Until all clips are done, ``unfinished/`` keeps the rows and templates of those that are.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from pydantic import ConfigDict, TypeAdapter

from facerts.errors import DataError, Error, VideoError
from facerts.images import encode_png
from facerts.io.file_names import safe_name
from facerts.io.files import atomic_write, refuse_link, remove_unfinished, sync_names
from facerts.io.job import FileState, Job, file_state, remove_finished
from facerts.scoring.annotated_video import BoxLog, DrawnTrack, write_annotated
from facerts.scoring.prepare import storable
from facerts.scoring.scorer import Keep, Scorer
from facerts.scoring.sinks import SINKS, check_sink, open_sink
from facerts.scoring.track import Track
from facerts.scoring.video_tracks import TrackOptions
from facerts.video import open_frames
from facerts.video.open_frames import is_file_name, shown_name

SCHEMA = "facerts.video-job/2"
UNFINISHED = "unfinished"
CROPS, TEMPLATES = "crops", "templates.npz"
# Called with the number of a clip, the time until which it was looked at, and its duration.
Advance = Callable[[int, float, float | None], None]
# Files of a folder that are taken for clips.
SUFFIXES = (
    *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".ts", ".mts", ".m2ts", ".flv"),
    *(".wmv", ".ogv", ".3gp", ".mxf", ".vob", ".gif"),
)


@dataclass(frozen=True)
class ClipRow:
    """A clip, or why it could not be read; fields without a value are None.

    Attributes:
        seconds: duration, as the clip itself says.
        read_until: time of the last frame that was decoded, in seconds.
        frames: number of frames that were looked at.
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


class PersonSearch(Protocol):
    """Where the person of each track is searched for, see ``facerts.galleries.TrackSearch``."""

    def columns(self, track: Track) -> Mapping[str, Any]:
        """What the row of a track says of its person."""

    def settings(self) -> list[Any]:
        """Everything that it depends on, as JSON values."""


@dataclass(frozen=True)
class VideoTask:
    """What is done with each clip; see ``Scorer.video``.

    Attributes:
        seconds: look only at so many seconds of each clip; None for all.
        annotate: folder for the clips with their tracks drawn in; None for none.
        search: where the person of each track is searched for; None for nowhere.
    """

    options: TrackOptions = field(default_factory=TrackOptions)
    min_quality: float | None = None
    keep: Keep = None
    seconds: float | None = None
    reconnect: float = 60.0
    annotate: Path | None = None
    search: PersonSearch | None = None

    def settings(self) -> dict[str, object]:
        """Everything that results depend on besides the clips and the model, as JSON values."""
        return {
            **asdict(self.options),
            **{name: getattr(self, name) for name in ("min_quality", "keep", "seconds", "reconnect")},
            "annotate": None if self.annotate is None else str(self.annotate),
            "gallery": None if self.search is None else self.search.settings(),
        }


@dataclass(frozen=True)
class FinishedClip:
    """What is kept of a clip that is done: the state of its file, if it is one, and a template for each track."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    clip: ClipRow
    tracks: list[TrackRow]
    templates: list[list[float]]
    state: FileState = None


FINISHED = TypeAdapter(FinishedClip)


def video_paths(paths: Sequence[str]) -> list[str]:
    """The clips that paths name: files, streams and cameras themselves, and the videos in folders."""
    clips: list[str] = []
    for path in paths:
        if is_file_name(path) and os.path.isdir(path):
            inside = sorted(each for each in Path(path).rglob("*") if each.suffix.lower() in SUFFIXES)
            clips += [str(each) for each in inside if each.is_file()]
        else:
            clips.append(path)
    if not clips:
        raise DataError(f"no videos in {', '.join(paths)}; give files, or folders of {', '.join(SUFFIXES)}")
    twice = next((clip for number, clip in enumerate(clips) if clip in clips[:number]), None)
    if twice is not None:
        raise DataError(f"{shown_name(twice)} is given twice; name each clip once")
    return clips


class VideoJob(Job):
    """The folder of results of some clips, of which each is a part.

    Args:
        settings: everything that results depend on besides the clips; must be JSON serializable.
        table: suffix of the tables, .csv, .jsonl or .parquet.
        replace: whether earlier results in the folder are removed, rather than refused.

    Attributes:
        shown: the clips, as tables and messages call them: addresses of streams are without passwords, and file names
            are text that can be stored.
    """

    def __init__(
        self,
        out: str | Path,
        clips: Sequence[str],
        settings: dict[str, object],
        table: str = ".csv",
        *,
        replace: bool = False,
    ) -> None:
        self.out = Path(out)
        self._replace = replace
        self.clips = list(clips)
        self.shown = [storable(shown_name(clip)) for clip in self.clips]
        self.tables = {name: self.out / f"{name}{table}" for name in ("tracks", "clips")}
        for path in self.tables.values():
            check_sink(path)
        self.names = _unique_names(self.shown)
        settings = {"schema": SCHEMA, **settings, "clips": self.shown}
        super().__init__(self.out / UNFINISHED, settings, ".json", self.out)

    @staticmethod
    def is_finished(out: Path) -> bool:
        """Whether a run has written all tables; what it was killed in removing is removed."""
        if (out / UNFINISHED).exists() or not any((out / name).is_file() for name in _table_names()):
            return False
        remove_finished(out / UNFINISHED)
        return True

    def _start(self) -> None:
        # A run that was interrupted in its first clip has only crops.
        if not (self._replace or self._file.is_file()) and any(path != self.folder for path in self.out.glob("*")):
            raise Error(f"{self.out} has other files than those of a run; --overwrite replaces what a run writes there")
        refuse_link(self.out / CROPS)
        shutil.rmtree(self.out / CROPS, ignore_errors=True)
        for name in (*_table_names(), TEMPLATES):
            (self.out / name).unlink(missing_ok=True)
        super()._start()

    def _check(self) -> None:
        refuse_link(self.out / CROPS)
        for _ in self.intact(self._read):
            pass

    def _read(self, number: int) -> FinishedClip:
        try:
            return FINISHED.validate_json(self.content(number))
        except ValueError as error:
            raise DataError(f"{self.part(number)}: damaged, this is not a clip") from error

    def done(self, number: int) -> FinishedClip | None:
        """What is kept of a clip; None if it was not done, or its file has changed since."""
        if number not in self.finished():
            return None
        clip = self._read(number)
        return clip if clip.state == _state(self.clips[number]) else None

    def save_crops(self, number: int, track: Track) -> tuple[str, ...]:
        """Save the best shots of a track as PNG; returns their files, relative to the folder of results."""
        written = []
        for rank, shot in enumerate(track.best, 1):
            assert shot.crop is not None
            path = Path(CROPS, self.names[number], f"track{track.number:04d}_{rank}.png")
            with atomic_write(self.out / path, sync_name=False) as file:
                file.write(encode_png(shot.crop))
            written.append(path)
        sync_names([self.out / path for path in written])
        return tuple(path.as_posix() for path in written)

    def finish(self) -> list[FinishedClip]:
        """Join the clips into the tables and remove what is unfinished."""
        clips = []
        for number, clip in enumerate(self.shown):
            finished = self.done(number)
            if finished is None:
                raise DataError(f"{clip} changed while others were looked at; run again with --resume")
            clips.append(finished)
        with open_sink(self.tables["tracks"], TrackRow) as put:
            for finished in clips:
                for row in finished.tracks:
                    put(row)
        with open_sink(self.tables["clips"], ClipRow) as put:
            for finished in clips:
                put(finished.clip)
        _write_templates(self.out / TEMPLATES, clips)
        self.remove()
        return clips


def run_videos(
    scorer: Scorer, job: VideoJob, task: VideoTask, advance: Advance = lambda *_: None
) -> Iterator[FinishedClip]:
    """Look at the clips of a job that are not done, one by one; those that are done come as they were kept.

    A clip that cannot be read is a row with an error.
    """
    if task.annotate is not None:
        remove_unfinished(task.annotate)
    for number in range(len(job.clips)):
        finished = job.done(number)
        if finished is None:
            finished = _run_clip(scorer, job, task, number, advance)
            job.put(number, FINISHED.dump_json(finished))
        yield finished


def _run_clip(scorer: Scorer, job: VideoJob, task: VideoTask, number: int, advance: Advance) -> FinishedClip:
    clip, shown = job.clips[number], job.shown[number]
    file = _state(clip)
    # What an interrupted run saved of it.
    shutil.rmtree(job.out / CROPS / job.names[number], ignore_errors=True)
    try:
        source = open_frames(clip, reconnect=task.reconnect)
        seconds = source.duration
    except VideoError as error:
        return FinishedClip(ClipRow(shown, error=storable(str(error))), [], [], file)
    if task.annotate is not None and source.live:
        raise Error(f"{shown}: streams and cameras cannot be read twice, as --annotate has to; leave it out")
    rows: list[TrackRow] = []
    templates: list[list[float]] = []
    drawn: dict[int, DrawnTrack] = {}
    log = BoxLog()
    stopped: str | None = None

    def add(track: Track) -> None:
        found = {} if task.search is None else task.search.columns(track)
        row = _track_row(track, shown, job.save_crops(number, track), found)
        rows.append(row)
        templates.append(track.template.tolist())
        person = row.person if row.decision == "match" else None
        drawn.update(dict.fromkeys(track.parts, DrawnTrack(track.number, not track.too_poor, person)))

    row_builder = scorer.track_row_builder(min_quality=task.min_quality, keep=task.keep)
    tracks = scorer.track(source, task.options, row_builder)
    # Ctrl-C ends a source that has no end of its own.
    with suppress(KeyboardInterrupt) if source.live else nullcontext():
        try:
            for frame in tracks.frames():
                if task.annotate is not None:
                    log.add(frame)
                for track in frame.tracks:
                    add(track)
                advance(number, frame.time, seconds)
                if task.seconds is not None and frame.time >= task.seconds:
                    break
        except VideoError as problem:
            stopped = storable(str(problem))
    for track in tracks.finish():
        add(track)
    report = source.report
    if stopped is None and report.problem is not None:
        stopped = f"{shown}: {report.problem}"
    until = tracks.time if report.until is None else report.until
    if task.annotate is not None and until is not None:
        again = open_frames(clip)
        write_annotated(task.annotate / f"{job.names[number]}.mp4", again, log, drawn, until)
    row = ClipRow(
        shown,
        seconds=None if seconds is None else round(seconds, 3),
        read_until=None if until is None else round(until, 3),
        frames=tracks.frame_count,
        faces=tracks.face_count,
        tracks=len(rows),
        too_poor=sum(not row.crops for row in rows),
        left_out=tracks.left_out,
        damaged=report.damaged,
        error=stopped,
    )
    return FinishedClip(row, rows, templates, file)


def _track_row(track: Track, clip: str, crops: tuple[str, ...], found: Mapping[str, Any]) -> TrackRow:
    """The row of a track, with the files of its best shots and the columns of a search in a gallery."""
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


def _state(clip: str) -> FileState:
    return file_state(clip) if is_file_name(clip) else None


def _table_names() -> list[str]:
    """The names of tables of all formats."""
    return [f"{table}{suffix}" for table in ("tracks", "clips") for suffix in SINKS]


def _unique_names(clips: Sequence[str]) -> list[str]:
    """A name for each clip that a folder can have."""
    names: list[str] = []
    for clip in clips:
        base = safe_name(Path(clip).name or "clip")
        name, number = base, 2
        while name in names:
            name, number = f"{base}_{number}", number + 1
        names.append(name)
    return names


def _write_templates(path: Path, clips: Sequence[FinishedClip]) -> None:
    rows = [row for finished in clips for row in finished.tracks]
    if not rows:
        return
    with atomic_write(path) as file:
        np.savez_compressed(
            file,
            clips=np.array([row.clip for row in rows]),
            tracks=np.array([row.track for row in rows], dtype=np.int32),
            templates=np.array([each for finished in clips for each in finished.templates], np.float32),
            # A missing value is not a number.
            quality=np.array([row.quality for row in rows], np.float32),
            percentile=np.array([row.percentile for row in rows], np.float32),
        )
