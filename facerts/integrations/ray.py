"""A scoring run on Ray Data, over the processors of one machine or of many: blocks go out, rows come back.

Ray starts the workers, hands them blocks, and gives the block of a worker that died to another one. Rows are kept by
the process that was called, so a run that ends early, however it does, is resumed like any other, on Ray or without.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import cv2

from facerts.datasets.source import Source
from facerts.errors import Error, MissingExtraError
from facerts.scoring.blocks import Block
from facerts.scoring.job import Job, names_sha256
from facerts.scoring.prepare import printable
from facerts.scoring.row import Row
from facerts.scoring.run import Task, score_spans
from facerts.scoring.scorer import Scorer
from facerts.version import __version__

# Ray reads these when it is imported; what a user has set stays.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Under `uv run` it would send the whole working folder to every machine.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
}
# Twenty attempts at an address where nobody answers would take a quarter of an hour.
ONE_ATTEMPT = {"RAY_NUM_REDIS_GET_RETRIES": "1"}
# What is under way at one time are the rows of a few blocks.
OBJECT_STORE_BYTES = 128 << 20


@dataclass(frozen=True)
class Workers:
    """The processes that score.

    Attributes:
        address: of the Ray cluster that they belong to, ``HOST:PORT``, or "auto" for the one that this machine is
            part of; None starts Ray on this machine for the time of the run. Where the caller has started Ray or
            connected to it, it is that one, whatever the address.
        number: how many; None for as many as there are cores, or GPUs where each has one.
        threads: cores of each, as many as a run of the network has threads.
        gpus: of each.
    """

    address: str | None = None
    number: int | None = None
    threads: int = 1
    gpus: int = 0


def import_ray(workers: Workers) -> Any:
    """Ray with its library for data, which reports nothing to its makers.

    Raises:
        MissingExtraError: it is not installed.
    """
    for name, value in (ENVIRONMENT | (ONE_ATTEMPT if workers.address else {})).items():
        os.environ.setdefault(name, value)
    try:
        import ray.data
    except ImportError as error:
        raise MissingExtraError("the engine ray needs Ray: pip install 'facerts[ray]'") from error
    return ray


def run_job_on_ray(
    open_scorer: Callable[[], Scorer],
    open_source: Callable[[], Source],
    job: Job,
    task: Task,
    workers: Workers | None = None,
    advance: Callable[[int], None] | None = None,
) -> None:
    """Score the blocks of a job that are missing, in processes that Ray starts.

    Args:
        open_scorer: gives the model; called once by each worker, so that its arguments travel and not the model.
        open_source: gives the pictures, in the same way.
        job: whose blocks they are.
        task: what is done with each picture.
        workers: what scores; None for one on each core of this machine.
        advance: is called with the number of pictures in a block whenever one is finished.

    Raises:
        MissingExtraError: Ray is not installed.
        Error: Ray cannot be started or reached or has no room for a worker; a worker does not find the same
            pictures, model or facerts; or one of those of ``score_spans``. Blocks that were finished stay.
    """
    workers = workers or Workers()
    missing = job.missing()
    if not missing:
        return
    ray = import_ray(workers)
    orders = [
        {"block": number, "start": job.span(number).start, "stop": job.span(number).stop}
        for number in missing
    ]
    scoring = {
        "open_scorer": open_scorer,
        "open_source": open_source,
        "task": task,
        "threads": workers.threads,
        "folder": os.getcwd(),
        "told": {**job.told, "facerts": __version__},
    }
    # Ray tells of workers that died on standard output, which is for results.
    with redirect_stdout(sys.stderr), _started(ray, workers), _quiet(ray):
        blocks = ray.data.from_items(orders, override_num_blocks=len(orders)).map(
            BlockScorer,
            fn_constructor_kwargs=scoring,
            # By default several blocks would wait for one worker while others have none.
            compute=ray.data.ActorPoolStrategy(
                size=min(_number(ray, workers), len(orders)), max_tasks_in_flight_per_actor=1
            ),
            num_cpus=workers.threads,
            num_gpus=workers.gpus,
        )
        for done in _finished(ray, blocks):
            if done["error"]:
                raise Error(done["error"])
            rows = [Row(**row) for row in json.loads(done["rows"])]
            job.put(done["block"], Block(rows, json.loads(done["states"])))
            if advance is not None:
                advance(len(job.span(done["block"])))


class BlockScorer:
    """What each worker is: scores blocks, with a model and pictures that it opens at the first of them.

    Errors that a user can mend are given back and not raised, as Ray would wrap them in what it knows of the place
    where they happened. An error of any other kind ends the run with Ray's account of it.

    Args:
        open_scorer, open_source, task, threads: as they were given to ``run_job_on_ray``.
        folder: that relative paths start from.
        told: all that the run depends on, as the process that began it found it.
    """

    def __init__(
        self,
        open_scorer: Callable[[], Scorer],
        open_source: Callable[[], Source],
        task: Task,
        threads: int,
        folder: str,
        told: dict[str, Any],
    ) -> None:
        self._open_scorer = open_scorer
        self._open_source = open_source
        self._task = task
        self._threads = threads
        self._folder = folder
        self._told = told

    def __call__(self, order: dict[str, Any]) -> dict[str, Any]:
        """The rows of a block and the states of its pictures' files, as JSON, or why there are none.

        Args:
            order: ``block``, its number, and ``start`` and ``stop``, those of its pictures.
        """
        try:
            scorer, source = self._opened
            (block,) = score_spans(
                scorer, source, [range(order["start"], order["stop"])], self._task, workers=self._threads
            )
        except Error as error:
            where = f"{error} (in a worker on {socket.gethostname()})"
            return {"block": order["block"], "rows": "", "states": "", "error": printable(where)}
        return {
            "block": order["block"],
            "rows": json.dumps([asdict(row) for row in block.rows]),
            "states": json.dumps(block.states),
            "error": "",
        }

    @cached_property
    def _opened(self) -> tuple[Scorer, Source]:
        try:
            os.chdir(self._folder)
        except OSError as error:
            raise Error(
                f"{self._folder}: not a folder here ({error.strerror}); call the command in one that all machines "
                "have, on shared storage"
            ) from error
        cv2.setNumThreads(self._threads)
        scorer, source = self._open_scorer(), self._open_source()
        found = {
            "facerts": __version__,
            **scorer.settings(),
            "pictures": len(source),
            "pictures_sha256": names_sha256(source),
        }
        others = [name for name, value in found.items() if value != self._told[name]]
        if others:
            raise Error(
                f"another {', '.join(others)} here than where the command was called; all machines need the same "
                "files at the same paths, on shared storage, and the same facerts"
            )
        return scorer, source


def _finished(ray: Any, blocks: Any) -> Iterator[dict[str, Any]]:
    """What workers give, each as soon as it is there: one ahead, it would wait for the next before it is kept."""
    try:
        for batch in blocks.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
            yield from batch.to_pylist()
    except ray.exceptions.ActorDiedError as error:
        # One that was killed is started again; this one cannot be.
        why = str(error).strip().splitlines()[-1]
        raise Error(
            f"a worker cannot be started ({why}); every machine needs the same facerts, with its extra ray"
        ) from error


@contextmanager
def _started(ray: Any, workers: Workers) -> Iterator[None]:
    """Ray, for the time of the run where it is not the caller's."""
    if ray.is_initialized():
        yield
        return
    how: dict[str, Any] = {"address": workers.address}
    if workers.address is None:
        how = {
            "address": "local",
            "num_cpus": workers.number and workers.number * workers.threads,
            "include_dashboard": False,
            "object_store_memory": OBJECT_STORE_BYTES,
        }
    try:
        ray.init(**how, log_to_driver=False, logging_level=logging.ERROR)
    except Exception as error:  # what goes wrong there shares no base class but Exception
        ray.shutdown()
        what = str(error).strip().splitlines()[0]
        if workers.address is None:
            raise Error(
                f"Ray cannot start here ({what}); it needs room in a folder with a short name, by default /tmp, which "
                "RAY_TMPDIR changes; --engine local scores without it"
            ) from error
        raise Error(
            f"no Ray cluster at {workers.address} ({what}); `ray status` on one of its machines tells whether it "
            "runs, and without --ray-address Ray starts on this machine alone"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


@contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Ray Data without its own progress bars and accounts, and with all the time that a block needs."""
    context, logger = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "execution_no_progress_timeout_s": -1}
    # Older Ray has no limit to a block's time.
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    level = logger.level
    # What it has to say of errors it raises too.
    logger.setLevel(logging.CRITICAL)
    for name in before:
        setattr(context, name, wanted[name])
    try:
        yield
    finally:
        logger.setLevel(level)
        for name, was in before.items():
            setattr(context, name, was)


def _number(ray: Any, workers: Workers) -> int:
    """Of workers, where none was given as many as there is room for."""
    if workers.number is not None:
        return workers.number
    there = ray.cluster_resources()
    cores, gpus = int(there.get("CPU", 0)), int(there.get("GPU", 0))
    room = min(cores // workers.threads, gpus // workers.gpus if workers.gpus else cores)
    if not room:
        raise Error(
            f"Ray has {cores} cores and {gpus} GPUs, and a worker needs {workers.threads} and {workers.gpus}; ask for "
            "less, or, where machines come as they are needed, say how many workers there shall be"
        )
    return room
