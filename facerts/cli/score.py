"""``facerts score``."""

from __future__ import annotations

from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.options import (
    Detector,
    DetectorModel,
    DetectorName,
    DetThreshold,
    Images,
    Json,
    ModelOrDefault,
    Offline,
    Provider,
    ResizeCrops,
    RunBatch,
    RunThreads,
)
from facerts.cli.output import EXIT_SOME_FAILED, fields_table, print_json, warn

if TYPE_CHECKING:
    from facerts.scoring import Job

# The first few of a million broken images show what is wrong; all are in the rows.
SHOWN_ERRORS = 10


class Engine(str, Enum):
    """Where the work is done."""

    LOCAL = "local"
    RAY = "ray"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(score)


def score(
    paths: Images,
    out: Annotated[Path, typer.Option(help="File to write the rows to: .csv, .jsonl or .parquet.")],
    model: ModelOrDefault = None,
    detector: Detector = DetectorName.AUTO,
    detector_model: DetectorModel = None,
    offline: Offline = False,
    det_threshold: DetThreshold = None,
    resize_crops: ResizeCrops = False,
    largest: Annotated[
        bool, typer.Option("--largest", help="Score only the largest face of each photo.")
    ] = False,
    min_quality: Annotated[
        float | None, typer.Option(help="Accept faces with at least this quality.")
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(
            help="Accept faces above the model's calibrated threshold that keeps this fraction of good faces."
        ),
    ] = None,
    save_crops: Annotated[
        Path | None, typer.Option(help="Folder to save the aligned crops in, as PNG.")
    ] = None,
    copy_accepted: Annotated[
        Path | None, typer.Option(help="Folder to copy images with an accepted face to.")
    ] = None,
    copy_rejected: Annotated[
        Path | None, typer.Option(help="Folder to copy images without an accepted face to.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")] = False,
    batch_size: RunBatch = None,
    threads: RunThreads = 1,
    provider: Provider = None,
    engine: Annotated[
        Engine,
        typer.Option(
            help="local: in this process; ray: in many processes, on this machine or a Ray cluster."
        ),
    ] = Engine.LOCAL,
    ray_address: Annotated[
        str | None,
        typer.Option(
            help="Ray cluster to use, HOST:PORT or auto; by default Ray is started on this machine."
        ),
    ] = None,
    ray_workers: Annotated[
        int | None,
        typer.Option(min=1, help="Number of workers, each with --threads cores; by default as many as fit."),
    ] = None,
    json: Json = False,
) -> None:
    """Score images: one row per face, with quality and uncertainty. Exits with status 1 if any image could not be read.

    Example: facerts score photos/ --model m.onnx --detector yunet --detector-model yunet.onnx --out rows.csv
    """
    from facerts.datasets import open_images
    from facerts.integrations.ray import Workers, import_ray, run_job_on_ray
    from facerts.io.progress import progress_bar
    from facerts.onnx.session import CPU
    from facerts.scoring import Copies, Job, Task, load, run_job

    if engine is Engine.LOCAL and (ray_address or ray_workers):
        raise typer.BadParameter("--ray-address and --ray-workers require --engine ray")
    copies = Copies(save_crops, copy_accepted, copy_rejected)
    if min_quality is None and keep is None and (copy_accepted or copy_rejected):
        raise typer.BadParameter("--copy-accepted and --copy-rejected require --keep or --min-quality")
    open_scorer = partial(
        load,
        model,
        detector=detector.value,
        detector_model=detector_model,
        resize_crops=resize_crops,
        det_threshold=det_threshold,
        providers=provider,
        threads=threads,
        batch_size=batch_size,
    )
    scorer = open_scorer()
    task = Task(scorer.row_builder(min_quality=min_quality, keep=keep).min_quality, largest, copies)
    source = open_images(paths)
    on_gpus = provider is not None and provider[0] != CPU
    workers = Workers(ray_address, ray_workers, threads, gpus=int(on_gpus))
    if engine is Engine.RAY:
        import_ray(workers)
    with Job(out, source, {**scorer.settings(), **task.settings()}) as job:
        for damage in job.begin(resume=resume):
            warn(damage)
        with progress_bar() as bar:
            done = sum(len(job.span(number)) for number in job.finished())
            shown = bar.add_task("scoring", total=len(source), completed=done, unit="images")
            advance = partial(bar.advance, shown)
            if engine is Engine.LOCAL:
                run_job(scorer, source, job, task, advance)
            else:
                run_job_on_ray(open_scorer, partial(open_images, paths), job, task, workers, advance)
        summary = _finish(job)
    if task.min_quality is None:
        del summary["accepted"], summary["rejected"]
    if source.other_files:
        summary["other_files"] = source.other_files
    result = {**summary, "file": str(out)}
    print_json(result) if json else fields_table(result)
    if summary["failed"]:
        raise typer.Exit(EXIT_SOME_FAILED)


def _finish(job: Job) -> dict[str, int]:
    """Write the result, warn of what could not be read, and count."""
    summary = {
        "pictures": job.images,
        "faces": 0,
        "accepted": 0,
        "rejected": 0,
        "without_a_face": 0,
        "failed": 0,
    }
    for row in job.finish():
        summary["faces"] += row.face is not None
        summary["accepted"] += row.accepted is True
        summary["rejected"] += row.face is not None and row.accepted is False
        summary["without_a_face"] += row.face is None and row.error is None
        summary["failed"] += row.error is not None
        if row.error is not None and summary["failed"] <= SHOWN_ERRORS:
            warn(row.error)
    if summary["failed"] > SHOWN_ERRORS:
        warn(
            f"and {summary['failed'] - SHOWN_ERRORS:,} more images that could not be read; the rows have them all"
        )
    return summary
