"""Crops of many requests to one model: what has gathered while it was busy is its next run."""

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
    """Crops that belong together, and who waits for them."""

    crops: Crops
    answer: asyncio.Future[FaceOutputs]


class Batcher:
    """Runs a model on crops that come from many sides, together; lives in one event loop.

    Crops that find an idle model are run at once. Those that find it busy wait, and go together when it is done: when
    they fill a run at once, otherwise after a short wait in which they may become more.

    Args:
        model: crops to outputs, row by row; called in threads.
        size: most crops in a run. More that belong together make a run of their own.
        wait: seconds that an idle model is kept from a run that is not full, for those who got their answers from the
            run before and ask again.
        runs: calls of the model at the same time.
        watch: told the number of crops of each run.
    """

    def __init__(
        self,
        model: Model,
        *,
        size: int,
        wait: float = 0.0,
        runs: int = 1,
        watch: Callable[[int], None] | None = None,
    ) -> None:
        self._model = model
        self._size = size
        self._wait = wait
        self._runs = runs
        self._watch = watch
        self._jobs: deque[_Job] = deque()
        self._running: set[asyncio.Task[None]] = set()
        self._busy = 0  # crops in runs
        self._held: asyncio.TimerHandle | None = None
        self._closing = False
        self._threads = ThreadPoolExecutor(runs, thread_name_prefix="network")

    async def __call__(self, crops: Crops) -> FaceOutputs:
        """The model's outputs for these crops; who is cancelled while waiting takes no place in a run.

        Args:
            crops: ``(N, 112, 112, 3) uint8`` RGB, N at least 1.

        Raises:
            Exception: what the model raises for them; never what it raises for the crops of others.
        """
        if self._closing:
            raise RuntimeError("the batcher is closed")
        job = _Job(crops, asyncio.get_running_loop().create_future())
        self._jobs.append(job)
        if self._held is None or self.waiting >= self._size:
            self._start()
        return await job.answer

    @property
    def waiting(self) -> int:
        """Crops that wait for a run."""
        return sum(len(job.crops) for job in self._jobs if not job.answer.done())

    async def close(self) -> None:
        """Answer who waits, and end."""
        self._closing = True
        self._start()
        while self._running:
            await asyncio.wait(self._running)
        self._threads.shutdown()

    def _start(self) -> None:
        """Give idle runs what waits."""
        if self._held is not None:
            self._held.cancel()
            self._held = None
        while len(self._running) < self._runs and (jobs := self._take()):
            crops = sum(len(job.crops) for job in jobs)
            self._busy += crops
            task = asyncio.ensure_future(self._answer(jobs))
            self._running.add(task)
            task.add_done_callback(partial(self._ended, crops))

    def _take(self) -> list[_Job]:
        """The jobs of the next run, the oldest first."""
        # Runs side by side share what there is to do: one that took it all would leave the others idle.
        most = min(self._size, math.ceil((self.waiting + self._busy) / self._runs))
        taken: list[_Job] = []
        crops = 0
        while self._jobs:
            job = self._jobs[0]
            if job.answer.done():  # cancelled
                self._jobs.popleft()
                continue
            crops += len(job.crops)
            if taken and crops > most:
                break
            taken.append(self._jobs.popleft())
        return taken

    def _ended(self, crops: int, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._busy -= crops
        if self.waiting >= self._size or not self._wait or self._closing:
            self._start()
        elif self.waiting and self._held is None:
            self._held = asyncio.get_running_loop().call_later(self._wait, self._start)

    async def _answer(self, jobs: Sequence[_Job]) -> None:
        loop = asyncio.get_running_loop()
        try:
            outputs = await loop.run_in_executor(self._threads, self._run, jobs)
        except Exception as error:  # whatever it is, it belongs to who asked
            if len(jobs) > 1:
                # Whose crops they were, one run for each job tells.
                for job in jobs:
                    if not job.answer.done():
                        await self._answer([job])
            elif not jobs[0].answer.done():
                jobs[0].answer.set_exception(error)
            return
        end = 0
        for job in jobs:
            start, end = end, end + len(job.crops)
            if not job.answer.done():
                job.answer.set_result(outputs.take(np.arange(start, end)))

    def _run(self, jobs: Sequence[_Job]) -> FaceOutputs:
        crops = np.concatenate([job.crops for job in jobs])
        if self._watch is not None:
            self._watch(len(crops))
        return self._model(crops)
