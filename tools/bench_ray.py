"""Compare the ray engine, with workers on this machine, with the local engine on the same crops.

The engines alternate, so that other load on the machine affects both equally. The start of Ray and the start of its
workers, which open the model and the images, are measured separately. The rows of both engines must be the same.

    python tools/bench_ray.py --count 8000
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench import machine, parser_of, ratios, spread, write_faces

from facerts.datasets import Source, open_images
from facerts.integrations.ray import OBJECT_STORE_BYTES, Workers, import_ray, run_job_on_ray
from facerts.scoring import Job, Task, load, run_job


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument(
        "images",
        nargs="*",
        help="aligned crops, anything that facerts score accepts; by default synthetic faces",
    )
    parser.add_argument("--count", type=int, default=4000, help="number of synthetic crops")
    parser.add_argument("--model", default="facerts-small-noteacher")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block-size", "--block", type=int, default=250, help="crops per block")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        images = options.images or [str(write_faces(Path(scratch) / "synthetic", options.count))]
        measure(images, Path(scratch), options)


def measure(images: list[str], scratch: Path, options: argparse.Namespace) -> None:
    open_scorer, open_source = partial(load, options.model, threads=1), partial(open_images, images)
    scorer, source = open_scorer(), open_source()
    settings = {**scorer.settings(), **Task().settings()}
    workers = Workers(count=options.workers)

    def new_job(name: str, source: Source, block_size: int) -> Job:
        job = Job(scratch / f"{name}.jsonl", source, settings, block_size)
        job.begin(resume=False)
        return job

    ray = import_ray(workers)
    ray_start = seconds(
        lambda: ray.init(
            address="local",
            num_cpus=options.workers,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    )
    # One image per worker, so that the time is that of starting the workers.
    few = partial(open_images, [source.location(index) for index in range(options.workers)])
    startup, local, ray_total = [], [], []
    for turn in range(options.rounds):
        nearly_empty = new_job(f"few{turn}", few(), 1)
        startup.append(
            seconds(lambda job=nearly_empty: run_job_on_ray(open_scorer, few, job, Task(), workers))
        )
        jobs = [new_job(f"{engine}{turn}", source, options.block_size) for engine in ("local", "ray")]
        local.append(seconds(lambda job=jobs[0]: run_job(scorer, source, job, Task())))
        ray_total.append(
            seconds(lambda job=jobs[1]: run_job_on_ray(open_scorer, open_source, job, Task(), workers))
        )
        for job in jobs:
            list(job.finish())
        if jobs[0].out.read_bytes() != jobs[1].out.read_bytes():
            raise SystemExit("the two engines wrote different rows")
    ray.shutdown()
    count = len(source)
    scoring = [total - start for total, start in zip(ray_total, startup, strict=True)]
    print(f"{count} crops, {scorer.embedder.name}, {machine()}, {options.workers} workers")
    for name, durations in (
        ("local", local),
        ("ray, without starting workers", scoring),
        ("ray, with starting workers", ray_total),
    ):
        rates = spread([count / duration for duration in durations], ".0f")
        print(f"{name}: {rates} rows/s, {spread(ratios(local, durations))} of local")
    print(f"start of Ray {ray_start:.1f} s, of its workers {statistics.median(startup):.1f} s")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
