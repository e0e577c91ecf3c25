"""The engine ray with some workers on this machine beside the engine of one process, in one run, on the same crops.

The engines take turns, round by round, so that what else the machine does meets both alike; both may use as many
cores as there are workers where the machine has no more. What Ray costs before the first picture is told apart: its
own start, and that of workers that open the model and the pictures. Rows are checked to be the same.

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
        "pictures", nargs="*", help="aligned crops, whatever facerts score takes; drawn if left out"
    )
    parser.add_argument("--count", type=int, default=4000, help="crops to draw")
    parser.add_argument("--model", default="facerts-small-noteacher")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--block", type=int, default=250, help="crops in a block")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        pictures = options.pictures or [draw(Path(scratch) / "drawn", options.count)]
        measure(pictures, Path(scratch), options)


def draw(folder: Path, count: int) -> str:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:07d}.jpg").write_bytes(encode_jpeg(draw_face(number, 0)))
    return str(folder)


def measure(pictures: list[str], scratch: Path, options: argparse.Namespace) -> None:
    open_scorer, open_source = partial(load, options.model, threads=1), partial(open_images, pictures)
    scorer, source = open_scorer(), open_source()
    settings = {**scorer.settings(), **Task().settings()}
    workers = Workers(number=options.workers)

    def new_job(name: str, source: Source, block: int) -> Job:
        job = Job(scratch / f"{name}.jsonl", source, settings, block)
        job.begin(resume=False)
        return job

    ray = import_ray(workers)
    start = seconds(
        lambda: ray.init(
            address="local",
            num_cpus=options.workers,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    )
    # A picture for each worker: what is left is what it takes to start them, and nothing else.
    few = partial(open_images, [source.location(index) for index in range(options.workers)])
    opening, alone, many = [], [], []
    for turn in range(options.rounds):
        nearly_empty = new_job(f"few{turn}", few(), 1)
        opening.append(
            seconds(lambda job=nearly_empty: run_job_on_ray(open_scorer, few, job, Task(), workers))
        )
        jobs = [new_job(f"{engine}{turn}", source, options.block) for engine in ("alone", "many")]
        alone.append(seconds(lambda job=jobs[0]: run_job(scorer, source, job, Task())))
        many.append(
            seconds(lambda job=jobs[1]: run_job_on_ray(open_scorer, open_source, job, Task(), workers))
        )
        for job in jobs:
            list(job.finish())
        if jobs[0].out.read_bytes() != jobs[1].out.read_bytes():
            raise SystemExit("the two engines wrote other rows")
    ray.shutdown()
    count = len(source)
    scoring = [whole - before for whole, before in zip(many, opening, strict=True)]
    print(f"{count} crops, {scorer.embedder.name}, {os.cpu_count()} cores, {options.workers} workers")
    print(f"one process: {rates(count, alone)}")
    print(f"ray, once its workers run: {rates(count, scoring)}, {ratio(alone, scoring)} of one process")
    print(f"ray, with their start: {rates(count, many)}, {ratio(alone, many)} of one process")
    print(f"start of Ray {start:.1f} s, of its workers {statistics.median(opening):.1f} s")


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rates(count: int, taken: list[float]) -> str:
    each = sorted(count / time for time in taken)
    return f"{statistics.median(each):.0f} rows/s ({each[0]:.0f} to {each[-1]:.0f})"


def ratio(taken: list[float], others: list[float]) -> str:
    return f"{statistics.median(one / other for one, other in zip(taken, others, strict=True)):.2f}"


if __name__ == "__main__":
    main()
