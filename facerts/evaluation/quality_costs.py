"""What recognizers and qualities cost, in milliseconds per image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding import EmbeddingTable
from facerts.evaluation.lineup import Lineup
from facerts.evaluation.measure import Measure

TIMED_CROPS = 32
MS = "ms per image"

Key = TypeVar("Key")

# A model, or a score of crops; what it returns is not used.
OfCrops = Callable[[NDArray[np.uint8]], Any]
# By "recognizer" and label, by "quality" and label, or by "own", a recognizer's label and the name of its own score.
Costs = Mapping[tuple[str, ...], Measure]


def measure_costs(lineup: Lineup, source: Source, batch_size: int) -> Costs:
    """Measure everything in turn on the first images of a source, so that a busy machine slows all of it alike."""
    crops = np.stack([source.crop(index) for index in range(min(len(source), TIMED_CROPS))])
    timed: dict[tuple[str, ...], OfCrops] = {}
    for label, recognizer in lineup.recognizers.items():
        if not isinstance(recognizer.embedder, EmbeddingTable):
            timed["recognizer", label] = recognizer.embedder
        for name, own in recognizer.own.items():
            timed["own", label, name] = own.score
    for label, quality in lineup.qualities.items():
        if quality.score is not None:
            timed["quality", label] = quality.score
    return milliseconds_per_face(timed, crops, batch_size=min(batch_size, TIMED_CROPS))


def milliseconds_per_face(
    scores: Mapping[Key, OfCrops],
    crops: NDArray[np.uint8],
    *,
    batch_size: int = 16,
    rounds: int = 7,
    clock: Callable[[], float] = perf_counter,
) -> dict[Key, Measure]:
    """Median and range, over the rounds, of the wall time of scores per crop, ``(N, 112, 112, 3) uint8`` RGB.

    In each round every score goes through all crops in turn, so that whatever else the machine does slows all of them
    alike. Before the first round each score sees one batch. Open models with one thread to compare their work rather
    than their use of several cores.
    """
    if not len(crops) or rounds < 1 or batch_size < 1:
        raise ValueError(f"{len(crops)} crops in {rounds} rounds, {batch_size} at a time: each must be at least 1")
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
    spent = {name: np.array(taken) * 1000 / len(crops) for name, taken in seconds.items()}
    return {
        name: Measure(
            name=MS,
            value=float(np.median(each)),
            range=(float(each.min()), float(each.max())),
            better="lower",
            format=".2g",
        )
        for name, each in spent.items()
    }
