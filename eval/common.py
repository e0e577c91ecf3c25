"""Shared by the scripts of this folder: arguments, images, numbers with intervals, and rates with resampled people."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.cli.ending import ending
from facerts.datasets import Source, open_source
from facerts.errors import DataError
from facerts.metrics.intervals import percentile_interval, subject_counts, wilson

Counts = NDArray[np.float64]


def run(main: Callable[[], None]) -> None:
    """Run a script; errors end it as they end a ``facerts`` command, with a one-line message and an exit status."""
    with ending():
        main()


def parser_of(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring, unchanged."""
    return argparse.ArgumentParser(description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter)


def open_people(paths: str | Sequence[str]) -> tuple[Source, NDArray[np.int64]]:
    """Open images with identities, and the number of the person on each.

    Raises:
        DataError: they have no identities.
    """
    source = open_source(paths)
    if source.labels is None:
        raise DataError(f"{source.name}: these images have no identities; use a source with identities")
    return source, source.labels


# Numbers with intervals.


def number(value: float, interval: Sequence[float] | None = None, *, form: str = ".4f") -> str:
    """A value with its interval, e.g. "0.9943 [0.9921, 0.9960]"."""
    text = f"{value:{form}}"
    return text if interval is None else f"{text} [{', '.join(f'{end:{form}}' for end in interval)}]"


def percent(value: float, interval: Sequence[float] | None = None, *, form: str = ".2f") -> str:
    """A share with its interval in percent, e.g. "99.43 [99.21, 99.60]"."""
    return number(100 * value, None if interval is None else [100 * end for end in interval], form=form)


def share(flags: NDArray[np.bool_], *, form: str = ".2f") -> str:
    """The share of things that are flagged, in percent, with its Wilson interval, which takes them as independent."""
    if not len(flags):
        return "–"
    value = float(np.mean(flags))
    low, high = wilson(np.array([value]), np.array([len(flags)]))
    return percent(value, (abs(low.item()), high.item()), form=form)


def resampled_rate(counted: Counts, total: Counts, *, replicates: int = 1000) -> Counts:
    """``(1 + R,)`` a rate, and the rate in each resample of the people.

    Args:
        counted: ``(n,)`` number of counted things of each person; or ``(n, n)`` number of counted pairs of each two
            people, on the diagonal those of one person.
        total: numbers of all things or pairs, likewise.
        replicates: number of resamples; those that have nothing left are dropped.
    """
    people = len(total)
    weights = np.array([np.ones(people), *subject_counts(people, replicates, seed=0)])

    def weighted(counts: Counts) -> Counts:
        if counts.ndim == 1:
            return np.asarray(weights @ counts)
        # A pair of one person counts as often as the person was drawn, others as often as both were.
        own = np.diag(counts)
        return np.asarray(((weights @ (counts - np.diag(own))) * weights).sum(axis=1) + weights @ own)

    totals = weighted(total)
    return np.asarray(weighted(counted)[totals > 0] / totals[totals > 0])


def rate_of_pairs(
    counted: NDArray[np.bool_],
    among: NDArray[np.bool_],
    people: Sequence[NDArray[np.int64]],
    *,
    rule_of_three: bool = False,
) -> str:
    """The share of some pairs that are counted, with its interval from resamples of the people.

    Args:
        counted: for each pair.
        among: which pairs the share is of.
        people: numbers of the first and of the second person of each pair, which broadcast to the pairs' shape; all
            of them are resampled.
        rule_of_three: whether the interval of a rate of 0 reaches at least 3 / n, n being the number of people.
    """
    if not among.any():
        return "–"
    names, numbers = np.unique(np.concatenate([side.ravel() for side in people]), return_inverse=True)
    sides = np.split(numbers, [people[0].size])
    first, second = (
        np.broadcast_to(side.reshape(given.shape), among.shape) for side, given in zip(sides, people, strict=True)
    )
    count = len(names)
    shares = resampled_rate(
        *(
            np.bincount(first[mask] * count + second[mask], minlength=count * count)
            .reshape(count, count)
            .astype(np.float64)
            for mask in (counted & among, among)
        )
    )
    low, high = percentile_interval(shares[1:])
    if rule_of_three and shares[0] == 0:
        high = max(high, min(1, 3 / count))
    return number(shares[0], (low, high))
