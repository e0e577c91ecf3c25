"""``facerts video``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.output import EXIT_SOME_FAILED, fields_table, print_json, rows_table, warn, warn_first
from facerts.cli.shared_options import Json, ScorerOptions
from facerts.io.progress import duration, progress_bar

if TYPE_CHECKING:
    from facerts.clips import ClipRow, TrackRow, TrackSearch
    from facerts.scoring import Scorer

# What fits on a few screens.
TABLE_ROWS = 50


def video(
    clips: Annotated[
        list[str],
        typer.Argument(
            metavar="CLIPS...",
            help="Video files, folders of them, addresses of streams (rtsp://…), or device:0 for a camera.",
        ),
    ],
    *,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR")],
    options: ScorerOptions,
    fps: Annotated[float, typer.Option(min=0.01, max=1000)] = 5.0,
    best: Annotated[int, typer.Option(min=1)] = 3,
    min_faces: Annotated[int, typer.Option(min=1)] = 2,
    no_join: Annotated[bool, typer.Option("--no-join")] = False,
    join_seconds: Annotated[float | None, typer.Option(min=0)] = None,
    min_quality: float | None = None,
    keep: float | None = None,
    gallery: Annotated[str | None, typer.Option(metavar="GALLERY")] = None,
    fpir: float = 0.01,
    annotate: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    seconds: Annotated[float | None, typer.Option(min=0)] = None,
    reconnect: Annotated[float, typer.Option(min=0)] = 60.0,
    table: Literal["csv", "jsonl", "parquet"] = "csv",
    resume: Annotated[bool, typer.Option("--resume")] = False,
    json: Json = False,
) -> None:
    """Follow the faces in videos: a row per person and clip, with times, best shots, and a template.

    Exits with status 1 if any clip could not be read, or not to its end. Ctrl-C ends a stream or a camera.

    Example: facerts video clip.mp4 --out tracks/

    Args:
        out: Folder to write to, which must be empty or new: tracks.csv, clips.csv, templates.npz, and the best shots
            in crops/.
        fps: Frames per second that are looked at.
        best: Maximum number of best shots of a track.
        min_faces: Leave out tracks with fewer faces, which are mostly errors of the detector.
        no_join: Join no tracks of one person over cuts and absences.
        join_seconds: Longest absence over which tracks are joined; by default any, and 60 for streams and cameras.
        min_quality: Minimum quality of a face that is not poor.
        keep: Likewise by the model's threshold that keeps this share of its calibration faces; by default 0.99. Poor
            faces are no best shots, and a track that has no others is too poor to be searched for.
        gallery: Gallery in which the person of each track is searched for: a file (.npz), or the address of one in a
            database, which is read into memory.
        fpir: Share of searches for people who are not in the gallery that may find somebody, above 0 and below 1.
        annotate: Folder to save the clips in with their tracks drawn in, as .mp4 without sound.
        seconds: Look only at so many seconds of each clip.
        reconnect: Seconds without a frame for which a stream or camera that has dropped is opened again and again.
        table: Format of the tables.
        resume: Continue an interrupted run with the first clip that was not done.
    """
    from facerts.clips import VideoJob, VideoTask, run_videos, video_paths
    from facerts.scoring.video_tracks import TrackOptions

    scorer = options.open()
    task = VideoTask(
        TrackOptions(fps, best, min_faces, not no_join, join_seconds),
        min_quality=min_quality,
        keep=keep,
        seconds=seconds,
        reconnect=reconnect,
        annotate=annotate,
        search=None if gallery is None else _search(scorer, gallery, fpir),
    )
    # Settings that do not fit the model are better found now than with the first clip.
    scorer.track_row_builder(min_quality=min_quality, keep=keep)
    paths = video_paths(clips)
    with VideoJob(out, paths, {**scorer.settings(), **task.settings()}, f".{table}", resume=resume) as job:
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
    rows = [row for clip in finished for row in clip.tracks]
    errors = [clip.clip.error for clip in finished if clip.clip.error is not None]
    warn_first(errors, "clips" + f".{table} has")
    summary = _summary([clip.clip for clip in finished], rows, out)
    if json:
        print_json(
            {
                **summary,
                "clips": [asdict(clip.clip) for clip in finished],
                "tracks": [asdict(row) for row in rows],
            }
        )
    else:
        _print_tracks(rows[:TABLE_ROWS], several=len(paths) > 1)
        if len(rows) > TABLE_ROWS:
            warn(f"{len(rows) - TABLE_ROWS:,} more tracks are not shown; {out / 'tracks'}.{table} has all")
        fields_table(summary)
    if errors:
        raise typer.Exit(EXIT_SOME_FAILED)


def _search(scorer: Scorer, place: str, fpir: float) -> TrackSearch:
    """A gallery of this model, as it is now."""
    from facerts.clips import TrackSearch
    from facerts.galleries import Gallery

    gallery = Gallery(Gallery(place).read())
    gallery.check_model(scorer)
    if warning := gallery.threshold(fpir).warning(fpir):
        warn(warning)
    return TrackSearch(gallery, fpir)


def _summary(clips: Sequence[ClipRow], rows: Sequence[TrackRow], out: Path) -> dict[str, object]:
    """The counts by name, as the command prints them."""
    matched = (
        {}
        if not any(row.decision for row in rows)
        else {"matches": sum(row.decision == "match" for row in rows)}
    )
    return {
        "videos": len(clips),
        "frames": sum(clip.frames for clip in clips),
        "faces": sum(clip.faces for clip in clips),
        "people": len(rows),
        "too_poor": sum(clip.too_poor for clip in clips),
        **matched,
        "left_out": sum(clip.left_out for clip in clips),
        "failed": sum(clip.error is not None for clip in clips),
        "folder": str(out),
    }


def _print_tracks(rows: Sequence[TrackRow], *, several: bool) -> None:
    """One line per track; columns that no row has a value for are left out."""
    from facerts.scoring.reasons import in_words

    if not rows:
        return
    columns = {
        "clip": [row.clip if several else "" for row in rows],
        "person": [row.person or "" if row.decision == "match" else row.decision or "" for row in rows],
        "reasons": [in_words(row.reasons) for row in rows],
        "track": [str(row.track) for row in rows],
        "from": [duration(row.start) for row in rows],
        "to": [duration(row.end) for row in rows],
        "times": [str(len(row.spans) // 2) for row in rows],
        "faces": [str(row.faces) for row in rows],
        "poor": [str(row.poor_faces) for row in rows],
        "percentile": ["" if row.percentile is None else str(int(row.percentile)) for row in rows],
        "best at": [" ".join(f"{time:.1f}" for time in row.best_times or []) for row in rows],
    }
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    words = sum(name in ("clip", "person", "reasons") for name in filled)
    rows_table("Tracks", list(filled), list(zip(*filled.values(), strict=True)), words=words)
