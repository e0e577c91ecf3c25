"""Dynamic batching: the crops that gather while the model is busy are its next batch."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from facerts.embedding import FaceOutputs

Crops = NDArray[np.uint8]
Model = Callable[[Crops], FaceOutputs]


@dataclass(frozen=True)
class _Job:
    """The crops of one caller, what runs them, and the future that it awaits."""

    crops: Crops
    model: Model
    outputs: asyncio.Future[FaceOutputs]


class Batcher:
    """Runs a model on the crops of many callers in shared batches; belongs to one event loop.

    Crops that find the model idle are run at once. Those that find it busy wait and share a batch when it is done.

    Args:
        model: crops to outputs, row by row, where a caller names no other; called in threads.
        batch_size: maximum number of crops in a batch. A caller with more gets a batch of its own.
    """

    def __init__(
        self,
        model: Model,
        *,
        batch_size: int,
        concurrency: int = 1,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self._model = model
        self._batch_size = batch_size
        self._concurrency = concurrency
        self._on_batch = on_batch
        self._jobs: deque[_Job] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._in_flight = 0  # crops in forward passes
        self._closing = False
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="network")

    async def __call__(self, crops: Crops, model: Model | None = None) -> FaceOutputs:
        """The outputs of the model, or of another one, for crops ``(N, 112, 112, 3) uint8`` RGB, N at least 1.

        Crops of one model share a batch. A caller gets what the model raises for its own crops, never what it raises
        for those of other callers; one that is cancelled while it waits takes no place in a batch.
        """
        if self._closing:
            raise RuntimeError("the batcher is closed")
        job = _Job(crops, model or self._model, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        self._start()
        return await job.outputs

    @property
    def waiting(self) -> int:
        """Number of crops that wait for a batch."""
        return sum(len(job.crops) for job in self._jobs if not job.outputs.done())

    async def close(self) -> None:
        """Run what still waits, and stop."""
        self._closing = True
        self._start()
        while self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown()

    def _start(self) -> None:
        """Start as many batches as there are crops and idle threads for."""
        while len(self._running) < self._concurrency and (jobs := self._take()):
            crops = sum(len(job.crops) for job in jobs)
            self._in_flight += crops
            task = asyncio.ensure_future(self._run_batch(jobs))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, crops))

    def _take(self) -> list[_Job]:
        # Concurrent forward passes share the crops: one that took them all would leave the others idle.
        maximum = min(self._batch_size, math.ceil((self.waiting + self._in_flight) / self._concurrency))
        taken: list[_Job] = []
        crops = 0
        while self._jobs:
            job = self._jobs[0]
            if job.outputs.done():  # cancelled
                self._jobs.popleft()
                continue
            crops += len(job.crops)
            if taken and (crops > maximum or job.model != taken[0].model):
                break
            taken.append(self._jobs.popleft())
        return taken

    def _ended(self, crops: int, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._in_flight -= crops
        self._start()

    async def _run_batch(self, jobs: Sequence[_Job]) -> None:
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(self._threads, self._call_model, jobs)
        except Exception as error:  # whatever it is, the caller gets it
            if len(jobs) > 1:
                # A batch for each job shows whose crops they were.
                for job in jobs:
                    if not job.outputs.done():
                        await self._run_batch([job])
            elif not jobs[0].outputs.done():
                jobs[0].outputs.set_exception(error)
            return
        end = 0
        for job in jobs:
            start, end = end, end + len(job.crops)
            if not job.outputs.done():
                job.outputs.set_result(outputs.take(np.arange(start, end)))

    def _call_model(self, jobs: Sequence[_Job]) -> FaceOutputs:
        crops = np.concatenate([job.crops for job in jobs])
        if self._on_batch is not None:
            self._on_batch(len(crops))
        return jobs[0].model(crops)
