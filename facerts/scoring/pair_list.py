"""Lists of pairs of images to verify, and their results; a bad row is a result with an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.list_rows import ListedPair, read_rows
from facerts.metrics.intervals import Interval, pair_weights, resampled_rate_interval, wilson
from facerts.metrics.pair_intervals import class_mean
from facerts.scoring.prepare import storable
from facerts.scoring.scorer import Scorer
from facerts.scoring.verify import Decision, Verification

REPLICATES = 1000

# Of each rate, whether it counts a pair ``(N,)``, and which pairs ``(N,)`` it is of.
Measured = dict[str, tuple[NDArray[np.bool_], NDArray[np.bool_]]]
Intervals = dict[str, Interval | None]


def read_pair_list(path: str | Path, images: str | Path | None = None) -> list[ListedPair]:
    """The pairs of a list, with an error in place of a row that is not one.

    The list is in any of the layouts in docs/evaluation.md, or without labels. Its paths are relative to the folder
    ``images``, or else to its own.
    """
    path = Path(path)
    root = path.parent if images is None else Path(images)
    return [
        replace(
            row,
            first=row.first and str(root / row.first),
            second=row.second and str(root / row.second),
            error=row.error and storable(row.error),
        )
        for row in read_rows(path, labeled=False)[0]
    ]


def verify_list(
    scorer: Scorer, listed: Sequence[ListedPair], *, progress: str = "", **settings: float | None
) -> Iterator[Verification]:
    """The result of each row of a list, in order; see ``Scorer.verify_pairs``, also for the settings of the rule."""
    rule = scorer.match_rule(**settings)
    pairs = [(row.first, row.second) for row in listed if row.error is None]
    results = scorer.verify_pairs(pairs, **settings, progress=progress)
    for row in listed:
        yield next(results) if row.error is None else rule.failed(row.first, row.second, row.error)


@dataclass(frozen=True)
class Rate:
    """A share of pairs, its 95% interval, and the number of pairs; None where there are none."""

    value: float | None
    ci95: Interval | None
    pairs: int


@dataclass(frozen=True)
class LabeledPairs:
    """Decisions against labels, at the threshold in use.

    Attributes:
        pairs: number of pairs with a label.
        inconclusive: of these, those whose quality was too low; no rate counts them.
        failed: of these, those that could not be compared; likewise.
        accuracy: share of the decisions that are right.
        fmr: false match rate: share of the decided pairs of different people that are called the same person.
        fnmr: false non-match rate: share of the decided pairs of one person that are called different people.
        interval: what the intervals rest on.
    """

    pairs: int
    inconclusive: int
    failed: int
    accuracy: Rate
    fmr: Rate
    fnmr: Rate
    interval: str


def measure_labeled(
    listed: Sequence[ListedPair], decisions: Sequence[Decision | None]
) -> LabeledPairs | None:
    """Compare the decision on each pair of a list with its label; None if no pair has one.

    Intervals are Wilson's for proportions, which take pairs as independent. If every decided pair names its people,
    they are percentiles of the bootstrap over people instead, which extend to 3 / n at rates of 0 and 1, n people, and
    to Wilson's ends: that people recur makes no number more certain, but a bootstrap of few people may say so.
    """
    labeled = [(pair, what) for pair, what in zip(listed, decisions, strict=True) if pair.same is not None]
    if not labeled:
        return None
    decided = [(pair, what) for pair, what in labeled if what in ("same", "different")]
    same = np.array([pair.same for pair, _ in decided], dtype=bool)
    called_same = np.array([what == "same" for _, what in decided], dtype=bool)
    measured: Measured = {
        "accuracy": (called_same == same, np.ones(len(same), dtype=bool)),
        "fmr": (called_same, ~same),
        "fnmr": (~called_same, same),
    }
    people = None
    if decided and all(pair.people is not None for pair, _ in decided):
        names = np.array([pair.people for pair, _ in decided])
        people = np.unique(names, return_inverse=True)[1].reshape(-1, 2)
    intervals = (
        {name: _wilson(events[among]) for name, (events, among) in measured.items()}
        if people is None
        else _over_people(measured, same, people)
    )
    return LabeledPairs(
        len(labeled),
        sum(what == "inconclusive" for _, what in labeled),
        sum(what is None for _, what in labeled),
        **{
            name: Rate(
                float(events[among].mean()) if among.any() else None, intervals[name], int(among.sum())
            )
            for name, (events, among) in measured.items()
        },
        interval="binomial (Wilson), pairs taken as independent"
        if people is None
        else f"bootstrap over {len(np.unique(people)):,} people",
    )


def _wilson(events: NDArray[np.bool_]) -> Interval | None:
    if not len(events):
        return None
    low, high = wilson(np.array([events.mean()]), np.array([len(events)]))
    return float(low[0]), float(high[0])


def _over_people(measured: Measured, same: NDArray[np.bool_], people: NDArray[np.int64]) -> Intervals:
    right, _ = measured["accuracy"]
    drawn: dict[str, list[float]] = {name: [] for name in measured}
    for weights in pair_weights(same, people, replicates=REPLICATES):
        for name in ("fmr", "fnmr"):
            events, rows = measured[name]
            if weights[rows].any():
                drawn[name].append(float(np.average(events[rows], weights=weights[rows])))
        # A tiny list may lose all pairs of a kind in a replicate.
        if all(weights[rows].any() for rows in (same, ~same) if rows.any()):
            drawn["accuracy"].append(class_mean(right.astype(np.float32), same, weights))
    intervals: Intervals = {}
    for name, (events, rows) in measured.items():
        independent = _wilson(events[rows])
        if independent is None:
            intervals[name] = None
            continue
        rate, number = float(events[rows].mean()), len(np.unique(people[rows]))
        low, high = resampled_rate_interval(np.array(drawn[name]), rate, number)
        intervals[name] = min(low, independent[0]), max(high, independent[1])
    return intervals
