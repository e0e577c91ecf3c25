import asyncio
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.embedding import FaceOutputs
from facerts.serving.batching import Batcher
from tests.serving.conftest import in_loop

Crops = NDArray[np.uint8]


class Numbers:
    """A model whose embedding of a crop is the number that is written in it; can be kept busy."""

    def __init__(self):
        self.runs = []
        self.free = threading.Event()
        self.free.set()
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, crops):
        numbers = crops.reshape(len(crops), -1)[:, :2] @ np.array([1, 256])
        with self._lock:
            self.runs.append(numbers.tolist())
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        self.free.wait(10)
        with self._lock:
            self.at_once -= 1
        if 666 in numbers:
            raise ValueError("the number of the beast")
        return FaceOutputs(numbers[:, None].astype(np.float32), quality=-numbers.astype(np.float32))


def crops(*numbers):
    found = np.zeros((len(numbers), 112, 112, 3), dtype=np.uint8)
    for row, number in enumerate(numbers):
        found[row, 0, 0, :2] = number % 256, number // 256
    return found


def numbers_of(outputs):
    assert (outputs.embedding[:, 0] == -outputs.quality).all()
    return outputs.embedding[:, 0].astype(int).tolist()


async def until(condition):
    while not condition():
        await asyncio.sleep(0.001)


async def ask_while_busy(batcher, model, *jobs):
    """Jobs that all wait, in order, behind a run of the crop 1 that does not end before ``model.free`` is set."""
    model.free.clear()
    first = asyncio.ensure_future(batcher(crops(1)))
    await until(lambda: model.runs)
    tasks = [asyncio.ensure_future(batcher(job)) for job in jobs]
    await asyncio.sleep(0)
    return [first, *tasks]


@in_loop
async def answers(model, *jobs, **options):
    """What becomes of jobs that all wait behind a run of the crop 1: numbers, or an error."""
    batcher = Batcher(model, **options)
    tasks = await ask_while_busy(batcher, model, *jobs)
    model.free.set()
    outputs = await asyncio.gather(*tasks, return_exceptions=True)
    await batcher.close()
    return [numbers_of(each) if isinstance(each, FaceOutputs) else each for each in outputs]


@in_loop
async def test_crops_of_two_models_share_no_batch():
    first, second = Numbers(), Numbers()
    batcher = Batcher(first, batch_size=8)
    first.free.clear()
    waiting = [asyncio.ensure_future(batcher(crops(0)))]
    await until(lambda: first.runs)
    for number, model in ((1, None), (2, None), (3, second), (4, second), (5, None)):
        waiting.append(asyncio.ensure_future(batcher(crops(number), model)))
    await until(lambda: batcher.waiting == 5)
    first.free.set()
    assert [numbers_of(outputs) for outputs in await asyncio.gather(*waiting)] == [[n] for n in range(6)]
    assert (first.runs, second.runs) == ([[0], [1, 2], [5]], [[3, 4]])
    await batcher.close()


@in_loop
async def test_everybody_gets_the_answer_to_their_own_crops():
    model = Numbers()
    batcher = Batcher(model, batch_size=7, concurrency=2)
    random = np.random.default_rng(0)
    given = [random.integers(1000, 60000, random.integers(1, 6)).tolist() for _ in range(200)]

    async def ask(numbers):
        await asyncio.sleep(random.uniform(0, 0.05))
        return numbers_of(await batcher(crops(*numbers)))

    assert await asyncio.gather(*[ask(numbers) for numbers in given]) == given
    await batcher.close()
    assert max(len(ran) for ran in model.runs) > 1
    assert all(len(ran) <= 7 for ran in model.runs)


@pytest.mark.parametrize(
    ("jobs", "batch_size", "runs"),
    [
        # What gathered while the model was busy is run as far as it fits.
        ([[10], [11, 12], [13], [14]], 4, [[1], [10, 11, 12, 13], [14]]),
        # A size of one joins nobody, and the crops of one request stay together.
        ([[10], [11, 12, 13], [14]], 1, [[1], [10], [11, 12, 13], [14]]),
    ],
)
def test_batches_are_filled_up_to_their_size(jobs, batch_size, runs):
    model, sizes = Numbers(), list[int]()
    found = answers(model, *(crops(*job) for job in jobs), batch_size=batch_size, on_batch=sizes.append)
    assert found == [[1], *jobs]
    assert model.runs == runs
    assert sizes == [len(batch) for batch in runs]


def test_an_error_reaches_only_those_whose_crops_made_it():
    model = Numbers()
    first, second, third, fourth = answers(model, crops(10), crops(11, 666), crops(12), batch_size=8)
    assert (first, second, fourth) == ([1], [10], [12])
    assert isinstance(third, ValueError)
    assert model.runs == [[1], [10, 11, 666, 12], [10], [11, 666], [12]]


@in_loop
async def test_who_is_cancelled_while_waiting_takes_no_place():
    model = Numbers()
    batcher = Batcher(model, batch_size=2)
    tasks = await ask_while_busy(batcher, model, crops(10), crops(11), crops(12))
    tasks[1].cancel()
    await asyncio.sleep(0)
    assert batcher.waiting == 2
    model.free.set()
    assert [numbers_of(await task) for task in tasks[2:]] == [[11], [12]]
    with pytest.raises(asyncio.CancelledError):
        await tasks[1]
    await batcher.close()
    assert model.runs == [[1], [11, 12]]


@pytest.mark.parametrize(
    # When the first of two runs ends, seven crops are waiting or in the other run: its share are four.
    ("batch_size", "runs", "last"),
    [(1, 1, [[8]]), (1, 3, [[8]]), (8, 2, [[3, 4, 5, 6], [7, 8]])],
)
@in_loop
async def test_as_many_runs_as_were_asked_for_share_what_waits(batch_size, runs, last):
    model = Numbers()
    batcher = Batcher(model, batch_size=batch_size, concurrency=runs)
    model.free.clear()
    tasks = [asyncio.ensure_future(batcher(crops(number))) for number in range(1, 9)]
    await until(lambda: model.at_once == runs)
    await asyncio.sleep(0.01)
    model.free.set()
    assert [numbers_of(await task) for task in tasks] == [[number] for number in range(1, 9)]
    await batcher.close()
    assert model.most_at_once == runs
    assert sorted(model.runs)[-len(last) :] == last


@in_loop
async def test_closing_answers_who_waits_and_takes_no_more():
    model = Numbers()
    batcher = Batcher(model, batch_size=2)
    tasks = await ask_while_busy(batcher, model, crops(10), crops(11), crops(12))
    closing = asyncio.ensure_future(batcher.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="closed"):
        await batcher(crops(13))
    model.free.set()
    assert [numbers_of(await task) for task in tasks] == [[1], [10], [11], [12]]
    await closing


@in_loop
async def test_who_is_cancelled_while_running_harms_nobody():
    model = Numbers()
    batcher = Batcher(model, batch_size=2)
    tasks = await ask_while_busy(batcher, model, crops(10), crops(11))
    model.free.set()
    await tasks[0]
    model.free.clear()
    await until(lambda: len(model.runs) == 2)
    tasks[1].cancel()
    model.free.set()
    assert numbers_of(await tasks[2]) == [11]
    await batcher.close()
