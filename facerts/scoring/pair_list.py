"""Lists of pairs of images to verify, and their results; a bad row is a result with an error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_rows import ListedPair, read_rows
from facerts.metrics.intervals import Interval, wilson
from facerts.metrics.pair_intervals import share_interval
from facerts.scoring.prepare import storable
from facerts.scoring.scorer import Scorer
from facerts.scoring.verify import Decision, MatchRule, Verification


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
    scorer: Scorer, listed: Sequence[ListedPair], rule: MatchRule, *, progress: str = ""
) -> Iterator[Verification]:
    """The result of each row of a list, in order; see ``Scorer.verify_pairs``."""
    pairs = [(row.first, row.second) for row in listed if row.error is None]
    results = scorer.verify_pairs(pairs, rule, progress=progress)
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


def measure_labeled(listed: Sequence[ListedPair], decisions: Sequence[Decision | None]) -> LabeledPairs | None:
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
    measured = {
        "accuracy": (called_same == same, np.ones(len(same), dtype=bool)),
        "fmr": (called_same, ~same),
        "fnmr": (~called_same, same),
    }
    people = None
    if decided and all(pair.people is not None for pair, _ in decided):
        people = np.unique([pair.people for pair, _ in decided], return_inverse=True)[1].reshape(-1, 2)
    return LabeledPairs(
        len(labeled),
        sum(what == "inconclusive" for _, what in labeled),
        sum(what is None for _, what in labeled),
        **{
            name: _rate(events[among], same[among], None if people is None else people[among])
            for name, (events, among) in measured.items()
        },
        interval="binomial (Wilson), pairs taken as independent"
        if people is None
        else f"bootstrap over {len(np.unique(people)):,} people",
    )


def _rate(events: NDArray[np.bool_], same: NDArray[np.bool_], people: NDArray[np.int64] | None) -> Rate:
    """The share of pairs ``(N,)`` that are events, of people ``(N, 2)`` if they are known."""
    if not len(events):
        return Rate(None, None, 0)
    rate = float(events.mean())
    ((low,), (high,)) = wilson(np.array([rate]), np.array([len(events)]))
    if people is not None:
        ends = share_interval(events, same, subjects=people)
        low, high = min(low, ends[0]), max(high, ends[1])
    return Rate(rate, (float(low), float(high)), len(events))
