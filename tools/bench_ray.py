"""Compare the ray engine, with workers on this machine, with the local engine on the same crops.

The engines alternate, so that other load on the machine affects both equally. The start of Ray and the start of its
workers, which open the model and the images, are measured separately. The rows of both engines must be the same.

    python tools/bench_ray.py --count 8000
"""

from __future__ import annotations

import logging
import statistics
import tempfile
from functools import partial
from pathlib import Path

from bench import alternate, machine, parser_of, ratios, seconds_of, spread, write_faces

from facerts.datasets import open_images
from facerts.integrations.ray import OBJECT_STORE_BYTES, Workers, import_ray, run_job_on_ray
from facerts.scoring import ScoreJob, Task, load, run_job

BLOCK_SIZE = 250


def main() -> None:
    parser = parser_of(
        __doc__,
        {
            "--count": (4000, "number of synthetic crops"),
            "--model": ("facerts-small-noteacher", "model of both engines"),
            "--workers": (2, "processes of Ray"),
        },
        rounds=3,
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        images = str(write_faces(scratch / "synthetic", options.count))
        measure(images, scratch, options.model, Workers(count=options.workers), options.rounds)


def measure(images: str, scratch: Path, model: str, workers: Workers, rounds: int) -> None:
    open_scorer, open_source = partial(load, model, threads=1), partial(open_images, images)
    scorer, source = open_scorer(), open_source()
    # One image per worker, so that the time is that of starting the workers.
    few = partial(open_images, [source.location(index) for index in range(workers.count)])
    ray = import_ray(workers)
    ray_start = seconds_of(
        lambda: ray.init(
            address="local",
            num_cpus=workers.count,
            include_dashboard=False,
            object_store_memory=OBJECT_STORE_BYTES,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    )

    def run(engine: str) -> float:
        images, size = (few, 1) if engine == "start" else (open_source, BLOCK_SIZE)
        job = ScoreJob(scratch / f"{engine}.jsonl", images(), {**scorer.settings(), **Task().settings()}, size)
        job.begin(resume=False)
        if engine == "local":
            seconds = seconds_of(lambda: run_job(scorer, source, job, Task()))
        else:
            seconds = seconds_of(lambda: run_job_on_ray(open_scorer, images, job, Task(), workers))
        list(job.finish())
        return seconds

    taken = alternate({engine: partial(run, engine) for engine in ("start", "local", "ray")}, rounds, warm_up=0)
    ray.shutdown()
    if (scratch / "local.jsonl").read_bytes() != (scratch / "ray.jsonl").read_bytes():
        raise SystemExit("the two engines wrote different rows")
    scoring = [total - start for total, start in zip(taken["ray"], taken["start"], strict=True)]
    print(f"{len(source)} crops, {scorer.recognizer.opened.name}, {machine()}, {workers.count} workers")
    for name, durations in (
        ("local", taken["local"]),
        ("ray, without starting workers", scoring),
        ("ray, with starting workers", taken["ray"]),
    ):
        rates = spread([len(source) / duration for duration in durations], ".0f")
        print(f"{name}: {rates} rows/s, {spread(ratios(taken['local'], durations))} of local")
    print(f"start of Ray {ray_start:.1f} s, of its workers {statistics.median(taken['start']):.1f} s")


if __name__ == "__main__":
    main()
