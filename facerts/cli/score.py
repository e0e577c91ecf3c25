"""``facerts score``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.output import EXIT_SOME_FAILED, SHOWN_ERRORS, RawOutput, fields_table, print_json, warn
from facerts.cli.row_table import print_rows
from facerts.cli.shared_options import Images, Json, Keep, QualityOptions
from facerts.io.console import stderr
from facerts.io.progress import progress_bar

if TYPE_CHECKING:
    from facerts.datasets.source import Source
    from facerts.scoring import Row, Scorer, Task

# What fits on a few screens.
TABLE_ROWS = 50
STDOUT = Path("-")


def score(
    paths: Images,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o")] = None,
    options: QualityOptions,
    largest: Annotated[bool, typer.Option("--largest")] = False,
    min_quality: float | None = None,
    keep: Keep = None,
    save_crops: Path | None = None,
    copy_accepted: Path | None = None,
    copy_rejected: Path | None = None,
    annotate: Annotated[Path | None, typer.Option(metavar="DIR")] = None,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    engine: Literal["local", "ray"] = "local",
    ray_address: str | None = None,
    ray_workers: Annotated[int | None, typer.Option(min=1)] = None,
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
        engine: local: in this process; ray: in many processes, on this machine or a Ray cluster.
        ray_address: Ray cluster to use, HOST:PORT or auto; by default Ray is started on this machine.
        ray_workers: Number of workers, each with --threads cores; by default as many as fit.
    """
    from facerts.datasets import open_images
    from facerts.integrations.ray import Workers, import_ray, run_job_on_ray
    from facerts.onnx.providers import GPU_PROVIDERS
    from facerts.scoring import Copies, Job, Task, run_job
    from facerts.scoring.sinks import put_csv, put_json_lines

    to_file = out not in (None, STDOUT)
    if engine == "local" and (ray_address or ray_workers):
        raise typer.BadParameter("--ray-address and --ray-workers require --engine ray")
    if not to_file and (resume or engine == "ray"):
        raise typer.BadParameter("--resume and --engine ray require --out FILE")
    copies = Copies(save_crops, copy_accepted, copy_rejected, annotate)
    if keep == "none" and (copy_accepted or copy_rejected):
        raise typer.BadParameter("--copy-accepted and --copy-rejected need a decision; leave out --keep none")
    scorer = options.open()
    task = Task(scorer.min_quality(min_quality, keep), largest, copies)
    source = open_images(paths)
    # The workers compute on what this machine chose, so that all rows are of one kind.
    provider = scorer.model(embed=False).provider
    options = replace(options, provider=[provider])
    on_gpus = provider in GPU_PROVIDERS
    workers = Workers(ray_address, ray_workers, options.threads, gpus=int(on_gpus))
    if engine == "ray":
        import_ray(workers)
    counts = _Counts(len(source), source.other_files, decided=task.min_quality is not None)
    if to_file:
        with Job(str(out), source, {**scorer.settings(embed=False), **task.settings()}) as job:
            for damage in job.begin(resume=resume):
                warn(damage)
            copies.remove_unfinished()
            with progress_bar() as bar:
                done = sum(len(job.span(number)) for number in job.finished())
                shown = bar.add_task("scoring", total=len(source), completed=done, unit="images")
                advance = partial(bar.advance, shown)
                if engine == "local":
                    run_job(scorer, source, job, task, advance)
                else:
                    run_job_on_ray(options.open, partial(open_images, paths), job, task, workers, advance)
            for row in job.finish():
                counts.add(row)
        result = {**counts.summary(), "file": str(out)}
        print_json(result) if json else fields_table(result)
    elif out == STDOUT:
        put = put_json_lines(RawOutput()) if json else put_csv(RawOutput())
        for row in _score(scorer, source, task, bar=not sys.stdout.isatty()):
            counts.add(row)
            put(row)
        fields_table(counts.summary(), stderr)
    else:
        _print(_score(scorer, source, task, bar=len(source) > TABLE_ROWS), counts, keep, json=json)
    if counts.failed:
        raise typer.Exit(EXIT_SOME_FAILED)


def _score(scorer: Scorer, source: Source, task: Task, *, bar: bool) -> Iterator[Row]:
    """The rows of all images, with a progress bar."""
    from facerts.scoring import score_rows

    with progress_bar(shown=bar) as shown:
        scored = shown.add_task("scoring", total=len(source), unit="images")
        yield from score_rows(scorer, source, task, partial(shown.advance, scored))


def _print(rows: Iterable[Row], counts: _Counts, keep: float | None, *, json: bool) -> None:
    """Print rows as JSON, or the first of them as a table."""
    if not json and counts.images > TABLE_ROWS:
        warn(
            f"the table will have {TABLE_ROWS} rows, for {counts.images:,} images; --out rows.csv writes all"
        )
    printed: list[Row] = []
    for row in rows:
        listed = json or len(printed) < TABLE_ROWS
        printed += [row] if listed else []
        counts.add(row, listed=listed)
    if json:
        print_json({**counts.summary(), "rows": [asdict(row) for row in printed]})
        return
    print_rows(printed, keep)
    if counts.rows > len(printed):
        warn(f"{counts.rows - len(printed):,} more rows are not shown; --out rows.csv writes all")
    if counts.images > 1 or counts.smaller_faces:
        fields_table(counts.summary())


@dataclass
class _Counts:
    """Counts of scored and failed images; errors are printed as they are counted."""

    images: int
    other_files: int
    decided: bool
    rows: int = 0
    faces: int = 0
    accepted: int = 0
    rejected: int = 0
    smaller_faces: int = 0
    without_a_face: int = 0
    failed: int = 0

    def add(self, row: Row, *, listed: bool = False) -> None:
        """Count a row, and print its error unless the table lists it."""
        self.rows += 1
        self.faces += row.face is not None
        self.accepted += row.accepted is True
        self.rejected += row.face is not None and row.accepted is False
        if not row.face:
            self.smaller_faces += row.smaller_faces or 0
        self.without_a_face += row.face is None and row.error is None
        self.failed += row.error is not None
        if row.error is not None and not listed and self.failed <= SHOWN_ERRORS:
            warn(row.error)

    def summary(self) -> dict[str, int]:
        """The counts by name, as commands print them."""
        if self.failed > SHOWN_ERRORS:
            more = self.failed - SHOWN_ERRORS
            warn(f"and {more:,} more images that could not be read; the rows have them all")
        decisions = {"accepted": self.accepted, "rejected": self.rejected} if self.decided else {}
        smaller = {"smaller_faces_left_out": self.smaller_faces} if self.smaller_faces else {}
        others = {"other_files": self.other_files} if self.other_files else {}
        return {
            "images": self.images,
            "faces": self.faces,
            **decisions,
            **smaller,
            "without_a_face": self.without_a_face,
            "failed": self.failed,
            **others,
        }
