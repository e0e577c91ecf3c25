"""``facerts video``."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.option_groups import GIVEN
from facerts.cli.output import Column, number, print_result, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Json, NewFolder, ScorerOptions
from facerts.io.console import say
from facerts.io.progress import duration, progress_bar

if TYPE_CHECKING:
    from facerts.galleries import TrackSearch
    from facerts.scoring import Scorer

# The columns of the table of tracks.
COLUMNS: list[Column] = [
    "clip",
    ("person", lambda row: row.person if row.decision == "match" else row.decision),
    "track",
    ("from", lambda row: number(duration(row.start))),
    ("to", lambda row: number(duration(row.end))),
    ("times", lambda row: len(row.spans) // 2),
    "faces",
    ("poor", "poor_faces"),
    "percentile",
    "reasons",
    ("best at", lambda row: number(" ".join(f"{time:.1f}" for time in row.best_times or []))),
]


def video(
    clips: Annotated[
        list[str],
        typer.Argument(
            metavar="CLIPS...",
            help="Video files, folders of them, addresses of streams (rtsp://…), or device:0 for a camera.",
        ),
        GIVEN,
    ],
    *,
    out: NewFolder,
    models: ScorerOptions,
    fps: Annotated[float, typer.Option(min=0.01, max=1000)] = 5.0,
    best: Annotated[int, typer.Option(min=1)] = 3,
    gallery: Annotated[str | None, typer.Option(metavar="GALLERY")] = None,
    fpir: float = 0.01,
    annotate: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    seconds: Annotated[float | None, typer.Option(min=0)] = None,
    table: Literal["csv", "jsonl", "parquet"] = "csv",
    resume: Annotated[bool, typer.Option("--resume")] = False,
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Follow the faces in videos: a row per person and clip, with times, best shots, and a template.

    Exits with status 1 if any clip could not be read, or not to its end. Ctrl-C ends a stream or a camera.

    Example: facerts video clip.mp4 --out tracks/

    Args:
        out: Folder to write to: tracks.csv, clips.csv, templates.npz, and the best shots in crops/.
        fps: Frames per second to process.
        best: Maximum number of best shots of a track.
        gallery: Gallery in which the person of each track is searched for: a file (.npz), or the address of one in a
            database, which is read into memory.
        fpir: Share of searches for people who are not in the gallery that may find somebody, above 0 and below 1.
        annotate: Folder to save the clips in with their tracks drawn in, as .mp4 without sound.
        seconds: Process only this many seconds of each clip.
        table: Format of the tables.
        resume: Continue an interrupted run with the first unfinished clip.
    """
    from facerts.scoring.video_job import VideoJob, VideoTask, run_videos, video_paths
    from facerts.scoring.video_tracks import TrackOptions

    if resume and VideoJob.is_finished(out):
        say(f"{out} is finished; --overwrite looks at its clips again")
        return
    scorer = models.open(settings)
    acceptance = settings.acceptance()
    task = VideoTask(
        TrackOptions(fps, best, settings.video.min_faces, settings.video.join_seconds),
        **acceptance,
        seconds=seconds,
        reconnect=settings.video.reconnect,
        annotate=annotate,
        search=None if gallery is None else _search(scorer, gallery, fpir),
    )
    # Settings that do not fit the model are better found now than with the first clip.
    scorer.track_row_builder(**acceptance)
    paths = video_paths(clips)
    run_settings = {**scorer.settings(), **task.settings()}
    with VideoJob(out, paths, run_settings, f".{table}", replace=not resume) as job:
        for damage in job.begin(resume=resume):
            warn(damage)
        with progress_bar() as bar:
            shown = {}

            def advance(number: int, time: float, of: float | None) -> None:
                if number not in shown:
                    total = None if of is None else min(of, seconds or math.inf)
                    shown[number] = bar.add_task(job.shown[number], total=total, unit="seconds of video")
                bar.update(shown[number], completed=time)

            for _ in run_videos(scorer, job, task, advance):
                pass
        finished = job.finish()
    clips_done, rows = [clip.clip for clip in finished], [row for clip in finished for row in clip.tracks]
    errors = [clip.error for clip in clips_done if clip.error is not None]
    names = ("frames", "faces", "too_poor", "left_out")
    summary = {"videos": len(clips_done), "people": len(rows)}
    summary |= {name: sum(getattr(clip, name) for clip in clips_done) for name in names}
    if any(row.decision for row in rows):
        summary["matches"] = sum(row.decision == "match" for row in rows)
    print_result(
        {**summary, "failed": len(errors), "folder": str(out)},
        json,
        rows,
        COLUMNS[len(paths) == 1 :],
        name="tracks",
        all_in=f"{out}/*.{table} have",
        details={"clips": [asdict(clip) for clip in clips_done]},
        problems=errors,
    )


def _search(scorer: Scorer, place: str, fpir: float) -> TrackSearch:
    """A gallery of this model, as it is now."""
    from facerts.galleries import Gallery, TrackSearch

    gallery = Gallery(Gallery(place).read())
    gallery.check_model(scorer)
    # A gallery that cannot be searched is not to fail at the first track, nor a warning to come then.
    gallery.threshold(fpir, scorer.recognizer)
    return TrackSearch(gallery, fpir, scorer.recognizer)
