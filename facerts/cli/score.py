"""``facerts score``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.option_groups import NEW
from facerts.cli.output import MAX_ROWS, STDOUT, Column, note, print_result, warn
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Images, Json, Keep, ScoringModel
from facerts.io.console import say
from facerts.io.progress import progress_bar

if TYPE_CHECKING:
    from facerts.datasets.source import Source
    from facerts.scoring import Row, Scorer, Task

VERDICTS = "good", "usable", "poor", "not_a_face"
# The counts in the order in which they are printed.
COUNTS = (
    *("images", "faces", "accepted", "rejected", *VERDICTS, "smaller_faces_left_out"),
    *("without_a_face", "failed", "other_files"),
)


def score(
    paths: Images,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o"), NEW] = None,
    model: ScoringModel = None,
    largest: Annotated[bool, typer.Option("--largest")] = False,
    min_quality: float | None = None,
    keep: Keep = None,
    save_crops: Path | None = None,
    copy_accepted: Path | None = None,
    copy_rejected: Path | None = None,
    annotate: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    engine: Literal["local", "ray"] = "local",
    settings: CommandSettings,
    json: Json = False,
) -> None:
    """Score images: one row per face, with quality and uncertainty. Exits with status 1 if any image could not be read.

    Example: facerts score photo.jpg

    Args:
        out: File to write the rows to: .csv, .jsonl or .parquet; - for CSV on standard output, or JSON lines with
            --json. By default, a table shows the first 50 rows.
        largest: Score only the largest face of each photo.
        min_quality: Accept faces with at least this quality.
        keep: Accept faces above the threshold that keeps this share of good faces; 0.95 by default, if the quality is
            calibrated; none for no decision. What is not a face is rejected.
        save_crops: Folder to save the aligned crops in, as PNG.
        copy_accepted: Folder to copy images with an accepted face to.
        copy_rejected: Folder to copy images without an accepted face to.
        annotate: Folder to save the images in with their faces drawn in, as JPEG: boxes, points and percentile, in the
            color of the decision.
        resume: Continue an interrupted run.
        engine: local: in this process; ray: in many processes, on this machine or the Ray cluster of the settings.
    """
    from facerts.datasets import open_images
    from facerts.integrations.ray import Workers, import_ray, run_job_on_ray
    from facerts.onnx.providers import GPU_PROVIDERS
    from facerts.scoring import Copies, Row, ScoreJob, Task, run_job

    to_file = out not in (None, STDOUT)
    if not to_file and (resume or engine == "ray"):
        raise typer.BadParameter("--resume and --engine ray require --out FILE")
    copies = Copies(save_crops, copy_accepted, copy_rejected, annotate)
    if keep == "none" and (copy_accepted or copy_rejected):
        raise typer.BadParameter("--copy-accepted and --copy-rejected need a decision; leave out --keep none")
    acceptance = settings.acceptance(min_quality, keep)
    keep = acceptance["keep"]
    if settings.quality != "own" and not settings.typed("recognizer"):
        settings = replace(settings, recognizer=None)  # which is not used, and may be broken
    scorer = settings.scorer(model)
    task = Task(scorer.min_quality(**acceptance), largest, copies)
    source = open_images(paths)
    run_blocks: Callable[..., None] = partial(run_job, scorer, source)
    if engine == "ray":
        # The workers compute on what this machine chose, so that all rows are of one kind.
        provider = scorer.model(embed=False).provider
        open_scorer = partial(replace(settings, provider=[provider]).scorer, model)
        gpus = int(provider in GPU_PROVIDERS)
        workers = Workers(settings.ray.address, settings.ray.workers, settings.threads or 1, gpus=gpus)
        import_ray(workers)
        run_blocks = partial(run_job_on_ray, open_scorer, partial(open_images, paths), workers=workers)
    counts = _Counts(source, decided=task.min_quality is not None)
    if to_file:
        if resume and ScoreJob.is_finished(Path(str(out))):
            say(f"{out} is finished; --overwrite scores its images again")
            return
        with ScoreJob(str(out), source, {**scorer.settings(embed=False), **task.settings()}) as job:
            for damage in job.begin(resume=resume):
                warn(damage)
            copies.remove_unfinished()
            with progress_bar() as bar:
                done = sum(len(job.span(number)) for number in job.finished())
                shown = bar.add_task("scoring", total=len(source), completed=done, unit="images")
                run_blocks(job, task, advance=partial(bar.advance, shown))
            rows, result = job.finish(), {"file": str(out)}
            print_result(lambda: {**counts.summary(every=json), **result}, json, counts.of(rows), all_in=f"{out} has")
    else:
        if not (json or out) and len(source) > MAX_ROWS:
            warn(f"the table will have {MAX_ROWS} rows, for {len(source):,} images; --out FILE writes all")
        rows = _score(scorer, source, task, bar=not sys.stdout.isatty() if out else len(source) > MAX_ROWS)
        columns: list[Column] = [("image", "path"), "face", "percentile", "quality", "verdict", "accepted"]
        columns.append(("note", partial(note, keep=None if keep == "none" else keep)))
        summary = partial(counts.summary, every=json, brief=not (json or out))
        print_result(summary, json, counts.of(rows), columns, name="rows", out=out, kind=Row)


def _score(scorer: Scorer, source: Source, task: Task, *, bar: bool) -> Iterator[Row]:
    from facerts.scoring import score_rows

    with progress_bar(shown=bar) as shown:
        scored = shown.add_task("scoring", total=len(source), unit="images")
        yield from score_rows(scorer, source, task, partial(shown.advance, scored))


class _Counts:
    """What the rows of a source are, counted as they are read."""

    def __init__(self, source: Source, *, decided: bool) -> None:
        self._counts = Counter(images=len(source), other_files=source.other_files)
        self._never = set[str]() if decided else {"accepted", "rejected"}
        self._only_if_any = {*VERDICTS, "smaller_faces_left_out", "other_files", *self._never}

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows, which are counted."""
        counts = self._counts
        for row in rows:
            counts["faces"] += row.face is not None
            counts["accepted"] += row.accepted is True
            counts["rejected"] += row.face is not None and row.accepted is False
            if row.verdict is not None:
                counts[row.verdict.replace(" ", "_")] += 1
            counts["smaller_faces_left_out"] += 0 if row.face else row.smaller_faces or 0
            counts["without_a_face"] += row.face is None and row.error is None
            counts["failed"] += row.error is not None
            yield row

    def summary(self, *, every: bool, brief: bool = False) -> dict[str, int]:
        """The counts by name: every one, or without what did not occur; if brief, none for an image that says all."""
        if brief and self._counts["images"] == 1 and not self._counts["smaller_faces_left_out"]:
            return {}
        hidden = self._never if every else self._only_if_any
        return {name: self._counts[name] for name in COUNTS if self._counts[name] or name not in hidden}
