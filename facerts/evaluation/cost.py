"""The time that scores take per face."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Key = TypeVar("Key")
# A model, or a score of crops; what it returns is not used.
OfCrops = Callable[[NDArray[np.uint8]], Any]


@dataclass(frozen=True)
class Cost:
    """Milliseconds per face over the rounds of a measurement."""

    median: float
    low: float
    high: float


def milliseconds_per_face(
    scores: Mapping[Key, OfCrops],
    crops: NDArray[np.uint8],
    *,
    batch_size: int = 16,
    rounds: int = 7,
    clock: Callable[[], float] = perf_counter,
) -> dict[Key, Cost]:
    """Measure the wall time of scores per crop.

    In each round every score goes through all crops in turn, so that whatever else the machine does slows all of them
    alike. Before the first round each score sees one batch. Open models with one thread to compare their work rather
    than their use of several cores.

    Args:
        crops: ``(N, 112, 112, 3) uint8`` RGB, at least one.

    Raises:
        ValueError: there are no crops or no rounds, or the batch size is below 1.
    """
    if not len(crops) or rounds < 1 or batch_size < 1:
        raise ValueError(
            f"{len(crops)} crops in {rounds} rounds, {batch_size} at a time: each must be at least 1"
        )
    batches = [crops[start : start + batch_size] for start in range(0, len(crops), batch_size)]
    for of_crops in scores.values():
        of_crops(batches[0])
    seconds: dict[Key, list[float]] = {name: [] for name in scores}
    for _ in range(rounds):
        for name, of_crops in scores.items():
            begin = clock()
            for batch in batches:
                of_crops(batch)
            seconds[name].append(clock() - begin)
    return {name: _cost(np.array(taken) * 1000 / len(crops)) for name, taken in seconds.items()}


def _cost(milliseconds: NDArray[np.float64]) -> Cost:
    return Cost(float(np.median(milliseconds)), float(milliseconds.min()), float(milliseconds.max()))
