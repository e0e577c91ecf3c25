"""Distribute a scoring run with Ray Data over the cores of one machine or a cluster.

Ray starts the workers, assigns blocks to them, and reassigns the block of a worker that died. The calling process
stores the rows, so a run that ends early can be resumed like any other, with or without Ray.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2

from facerts.datasets.source import Source
from facerts.errors import Error, first_line, importing
from facerts.scoring.prepare import storable
from facerts.scoring.score_job import BLOCK, ScoreJob, Task, names_sha256, score_spans
from facerts.scoring.scorer import Scorer
from facerts.version import __version__

# Ray reads these when it is imported; values set by the user take precedence.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run` Ray would upload the whole working folder to every machine.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
# The default of twenty attempts to reach a missing cluster takes a quarter of an hour.
ONE_ATTEMPT = {"RAY_NUM_REDIS_GET_RETRIES": "1"}
# The store holds the rows of only a few blocks at a time.
OBJECT_STORE_BYTES = 128 << 20
# A span of images, or the result of a block: what Ray passes between processes.
RayRow = dict[str, Any]


@dataclass(frozen=True)
class Workers:
    """The worker processes.

    Attributes:
        address: address of the Ray cluster, ``HOST:PORT``, or "auto" for the cluster that this machine is part of;
            None starts Ray on this machine for the duration of the run. Ignored if the caller is already connected
            to Ray.
        count: number of workers; None for as many as fit on the cores, or on the GPUs if workers use them.
        threads: cores per worker, which equals the threads per batch.
        gpus: GPUs per worker.
    """

    address: str | None = None
    count: int | None = None
    threads: int = 1
    gpus: int = 0


def import_ray(workers: Workers) -> Any:
    """Import Ray and Ray Data, with usage reports disabled."""
    for name, value in (ENVIRONMENT | (ONE_ATTEMPT if workers.address else {})).items():
        os.environ.setdefault(name, value)
    with importing("the engine ray needs Ray", "ray"):
        import ray.data
    return ray


def run_job_on_ray(
    open_scorer: Callable[[], Scorer],
    open_source: Callable[[], Source],
    job: ScoreJob,
    task: Task,
    workers: Workers | None = None,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Score the unfinished blocks of a job in processes started by Ray; finished blocks are kept if it fails.

    Args:
        open_scorer: opens the model; called once in each worker, so that the model itself is not sent.
        advance: called with the number of images in each finished block.
    """
    workers = workers or Workers()
    missing = job.missing()
    if not missing:
        return
    ray = import_ray(workers)
    spans = [{"block": number, "start": job.span(number).start, "stop": job.span(number).stop} for number in missing]
    arguments = {
        "open_scorer": open_scorer,
        "open_source": open_source,
        "task": task,
        "threads": workers.threads,
        "folder": os.getcwd(),
        "expected": {**job.settings, "facerts": __version__},
    }
    # Ray reports dead workers on standard output, which is for results.
    with redirect_stdout(sys.stderr), _started(ray, workers), _quiet(ray):
        blocks = ray.data.from_items(spans, override_num_blocks=len(spans)).map(
            BlockScorer,
            fn_constructor_kwargs=arguments,
            # By default several blocks could queue for one worker while others are idle.
            compute=ray.data.ActorPoolStrategy(
                size=min(_worker_count(ray, workers), len(spans)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=workers.threads,
            num_gpus=workers.gpus,
        )
        for result in _results(ray, blocks):
            if result["error"]:
                raise Error(result["error"])
            job.put(result["block"], result["content"])
            if advance is not None:
                advance(len(job.span(result["block"])))


@dataclass
class BlockScorer:
    """The worker: scores blocks with a model and images that it opens for the first block; see ``run_job_on_ray``.

    An ``Error``, which the user can fix, is returned instead of raised, because Ray would bury it in a traceback. Any
    other exception ends the run with Ray's report of it. ``expected`` is everything that the rows depend on, as seen by
    the calling process.
    """

    open_scorer: Callable[[], Scorer]
    open_source: Callable[[], Source]
    task: Task
    threads: int
    folder: str
    expected: dict[str, object]

    def __call__(self, span: RayRow) -> RayRow:
        """The content of the file of a block, or an error.

        ``span`` has ``block``, its number, and ``start`` and ``stop``, the indices of its images.
        """
        try:
            scorer, source = self._opened
            (block,) = score_spans(
                scorer, source, [range(span["start"], span["stop"])], self.task, workers=self.threads
            )
        except Error as error:
            message = f"{error} (in a worker on {socket.gethostname()})"
            return {"block": span["block"], "content": b"", "error": storable(message)}
        return {"block": span["block"], "content": BLOCK.dump_json(block), "error": ""}

    @cached_property
    def _opened(self) -> tuple[Scorer, Source]:
        try:
            os.chdir(self.folder)
        except OSError as error:
            raise Error(
                f"{self.folder}: not a folder on this machine ({error.strerror}); run the command in a folder on "
                "storage shared by all machines"
            ) from error
        cv2.setNumThreads(self.threads)
        scorer, source = self.open_scorer(), self.open_source()
        actual = {
            "facerts": __version__,
            **scorer.settings(),
            "images": len(source),
            "images_sha256": names_sha256(source),
        }
        different = [name for name, value in actual.items() if value != self.expected[name]]
        if different:
            raise Error(
                f"{', '.join(different)} on this machine differ from the machine that started the run; all machines "
                "need the same files at the same paths, on shared storage, and the same version of facerts"
            )
        return scorer, source


def _results(ray: Any, blocks: Any) -> Iterator[RayRow]:
    """The results of the workers, each as soon as it is there; with prefetching it would wait for the next one."""
    try:
        for batch in blocks.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except ray.exceptions.ActorDiedError as error:
        # Ray restarts a worker that was killed; this one failed to start.
        reason = str(error).strip().splitlines()[-1]
        raise Error(
            f"a worker cannot be started ({reason}); every machine needs the same version of facerts with the extra ray"
        ) from error


@contextmanager
def _started(ray: Any, workers: Workers) -> Iterator[None]:
    """Start or join Ray for the duration of the run, unless the caller has already done so."""
    if ray.is_initialized():
        yield
        return
    options: dict[str, object] = {"address": workers.address}
    if workers.address is None:
        options = {
            "address": "local",
            "num_cpus": workers.count and workers.count * workers.threads,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    try:
        ray.init(**options, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # Ray raises exceptions without a common base class
        ray.shutdown()
        reason = first_line(error)
        if workers.address is None:
            raise Error(
                f"Ray cannot start on this machine ({reason}); it needs space in a folder with a short path, /tmp or "
                "RAY_TMPDIR; --engine local works without Ray"
            ) from error
        raise Error(
            f"no Ray cluster at {workers.address} ({reason}); check it with `ray status` on one of its machines, or "
            "leave out --ray-address to start Ray on this machine"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray Data without its own progress bars, logs and time limits."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    settings = {"enable_progress_bars": False, "execution_no_progress_timeout_s": -1}
    # Older versions of Ray have no time limit.
    before = {name: getattr(context, name) for name in settings if hasattr(context, name)}
    level = logger.level
    # Errors that it logs are raised as well.
    logger.setLevel(logging.CRITICAL)
    for name in before:
        setattr(context, name, settings[name])
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)


def _worker_count(ray: Any, workers: Workers) -> int:
    """The number of workers; by default as many as fit."""
    if workers.count is not None:
        return workers.count
    resources = ray.cluster_resources()
    cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
    room = min(cores // workers.threads, gpus // workers.gpus if workers.gpus else cores)
    if not room:
        raise Error(
            f"Ray has {cores} cores and {gpus} GPUs, and each worker needs {workers.threads} and {workers.gpus}; "
            "use fewer per worker, or set the number of workers if the cluster scales on demand"
        )
    return room
