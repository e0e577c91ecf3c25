"""Compare the ray engine, with workers on this machine, with the local engine on the same crops.

The engines alternate, so that other load on the machine affects both equally. The start of Ray and the start of its
workers, which open the model and the images, are measured separately. The rows of both engines must be the same.

    python tools/bench_ray.py --count 8000
"""

from __future__ import annotations

import argparse
import logging
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from facerts.datasets import Source, open_images
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg
from facerts.integrations.ray import OBJECT_STORE_BYTES, Workers, import_ray, run_job_on_ray
from facerts.scoring import Job, Task, load, run_job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "images",
        nargs="*",
        help="aligned crops, anything that facerts score accepts; by default synthetic faces",
    )
    parser.add_argument("--count", type=int, default=4000, help="number of synthetic crops")
    parser.add_argument("--model", default="facerts-small-noteacher")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block-size", "--block", type=int, default=250, help="crops per block")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        images = options.images or [write_faces(Path(scratch) / "synthetic", options.count)]
        measure(images, Path(scratch), options)


def write_faces(folder: Path, count: int) -> str:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07d}.jpg").write_bytes(encode_jpeg(draw_face(number, 0)))
    return str(folder)


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
    print(f"{count} crops, {scorer.embedder.name}, {os.cpu_count()} cores, {options.workers} workers")
    print(f"local: {rates(count, local)}")
    print(f"ray, without starting workers: {rates(count, scoring)}, {ratio(local, scoring)} of local")
    print(f"ray, with starting workers: {rates(count, ray_total)}, {ratio(local, ray_total)} of local")
    print(f"start of Ray {ray_start:.1f} s, of its workers {statistics.median(startup):.1f} s")


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def rates(count: int, durations: list[float]) -> str:
    per_round = sorted(count / time for time in durations)
    return f"{statistics.median(per_round):.0f} rows/s ({per_round[0]:.0f} to {per_round[-1]:.0f})"


def ratio(durations: list[float], others: list[float]) -> str:
    return f"{statistics.median(one / other for one, other in zip(durations, others, strict=True)):.2f}"


if __name__ == "__main__":
    main()
