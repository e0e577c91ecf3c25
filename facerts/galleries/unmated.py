"""The threshold of a search at a false positive identification rate, from the gallery itself.

Every image of one person, compared with the templates of all others, is a search for somebody who is not enrolled, in
a gallery with one person less. The best scores of these searches show how alike strangers are. The upper tail of
maxima is exponential (peaks over threshold; Coles, "An Introduction to Statistical Modeling of Extreme Values", 2001,
chapter 4, with shape 0), which smooths it and continues it beyond the highest score.

Few images do not tell a low rate. There the threshold is that of the recognizer, calibrated on pairs of strangers, for
the share of the rate that falls to one of the people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from facerts.io.console import warn
from facerts.metrics.intervals import Interval, percentile_interval, subject_counts

# The tail: the highest tenth of the scores, but at least this many, as a mean of fewer is too uncertain.
TAIL = 0.1
MIN_TAIL = 10
REPLICATES = 200
# Requests may ask for any number of rates.
_warn_once = lru_cache(128)(warn)
# False match rates of a recognizer, lowest first, with their cosine similarities.
MatchThresholds: TypeAlias = "tuple[tuple[float, float], ...]"


@dataclass(frozen=True)
class SearchThreshold:
    """The minimum cosine similarity of a match, and its interval; None for a match threshold of the recognizer."""

    cosine: float
    ci95: Interval | None


def tail_threshold(scores: NDArray[np.floating], rate: float) -> float:
    """The score that a share ``rate``, above 0 and below 1, of such scores reaches.

    ``scores`` ``(M,)``, two or more, are the best of searches for people who are not enrolled.

    Examples:
        >>> scores = np.random.default_rng(0).gumbel(0.3, 0.05, 5000)
        >>> round(tail_threshold(scores, 0.01), 2)  # the distribution's own 99% quantile is 0.53
        0.53
    """
    ordered = np.sort(np.asarray(scores, dtype=np.float64))[::-1]
    tail = min(len(ordered) - 1, max(MIN_TAIL, int(TAIL * len(ordered))))
    if rate >= tail / len(ordered):
        return float(np.quantile(ordered, 1 - rate))
    base = ordered[tail]
    return float(base + (ordered[:tail] - base).mean() * np.log(tail / len(ordered) / rate))


def search_threshold(
    scores: NDArray[np.floating],
    person: NDArray[np.integer],
    people: int,
    fpir: float,
    matching: MatchThresholds = (),
) -> SearchThreshold:
    """The threshold at a false positive identification rate in a gallery of so many people.

    ``scores`` ``(M,)`` are the best of searches for each ``person`` ``(M,)``, from 0, without that person's own
    template; ``matching`` are the recognizer's ``match_thresholds``. If M is below 1 / FPIR, a warning is printed.
    """
    few = len(scores) * fpir < 1
    if few:
        _warn_once(
            f"the gallery has {len(scores)} images to judge strangers by, too few for an FPIR of {fpir:g}: "
            f"the threshold is {'the' if matching else 'a guess without a calibrated'} recognizer's; enroll "
            f"{math.ceil(1 / fpir):,} images or more, or take a higher FPIR"
        )
    if few and matching:
        rates, cosines = zip(*matching, strict=True)
        fmr = fpir / people
        cosine = float(np.interp(math.log(fmr), np.log(rates), cosines))
        # The recognizer does not know such a rate, and one of these would have matched.
        return SearchThreshold(max(cosine, float(np.max(scores))) if fmr < rates[0] else cosine, None)
    # One person more than in each of the searches: (1 − FMR)^N is (1 − FPIR of N − 1)^(N / (N − 1)).
    rate = -math.expm1(math.log1p(-fpir) * (people - 1) / people)
    order = np.argsort(person, kind="stable")
    values = np.asarray(scores)[order]
    _, number = np.unique(person[order], return_inverse=True)
    drawn = [
        tail_threshold(np.repeat(values, counts[number].astype(np.int64)), rate)
        for counts in subject_counts(int(number[-1]) + 1, REPLICATES, seed=0)
        if counts[number].sum() > 1
    ]
    return SearchThreshold(min(1.0, tail_threshold(values, rate)), percentile_interval(np.array(drawn)))
