"""Do several recognizers rank qualities alike? Kendall's tau-b between their areas."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Estimate


@dataclass(frozen=True)
class Consistency:
    """Agreement of recognizers on the order of qualities.

    Attributes:
        taus: Kendall's tau-b of each pair of recognizers, over the qualities that both have: 1 for the same order, −1
            for the reverse one; NaN if one of them does not tell any two apart.
        mean: their mean, of those that are defined; NaN if none is.
    """

    taus: Mapping[tuple[str, str], float]
    mean: float


def kendall_tau(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """Kendall's tau-b between two rankings: concordant minus discordant pairs, corrected for ties.

    Args:
        first: ``(…, Q)`` values; those that are NaN on either side are left out.
        second: ``(…, Q)`` values of the same things.

    Returns:
        ``(…)``; NaN if all values on one side are equal, or there are fewer than two.
    """
    values = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)])
    values = np.where(np.isnan(values).any(axis=0), np.nan, values)
    signs = np.nan_to_num(np.sign(values[..., :, None] - values[..., None, :]))
    concordance, *untied = (
        np.sum(signs[one] * signs[other], axis=(-2, -1)) for one, other in ((0, 1), (0, 0), (1, 1))
    )
    size = np.sqrt(untied[0] * untied[1])
    return np.asarray(np.divide(concordance, size, out=np.full(np.shape(size), np.nan), where=size > 0))


def rank_consistency(areas: Mapping[str, Mapping[str, float]]) -> Consistency:
    """Agreement of recognizers on the order of qualities.

    Examples:
        >>> rank_consistency({
        ...     "one": {"sharpness": 0.5, "norm": 0.7, "contrast": 0.9},
        ...     "two": {"sharpness": 0.6, "norm": 0.9, "contrast": 0.8},
        ... }).taus
        {('one', 'two'): 0.3333333333333333}
    """
    taus = {}
    for one, other in combinations(areas, 2):
        shared = [label for label in areas[one] if label in areas[other]]
        values = ([areas[recognizer][label] for label in shared] for recognizer in (one, other))
        taus[one, other] = float(kendall_tau(*values))
    defined = [tau for tau in taus.values() if np.isfinite(tau)]
    return Consistency(taus, float(np.mean(defined)) if defined else float("nan"))


def mean_consistency(areas: Mapping[str, Mapping[str, Estimate]]) -> Estimate:
    """``rank_consistency(…).mean`` of the values, and in each replicate."""
    value = rank_consistency(
        {name: {label: area.value for label, area in of.items()} for name, of in areas.items()}
    ).mean
    taus = []
    for one, other in combinations(areas, 2):
        shared = [label for label in areas[one] if label in areas[other]]
        if shared:
            taus.append(
                kendall_tau(
                    *(
                        np.stack([areas[recognizer][label].replicates for label in shared], axis=-1)
                        for recognizer in (one, other)
                    )
                )
            )
    if not taus:
        return Estimate(value, np.empty(0))
    defined = np.isfinite(taus)
    total, count = np.nansum(taus, axis=0), defined.sum(axis=0)
    return Estimate(value, np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))
