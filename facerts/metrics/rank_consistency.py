"""Do several recognizers rank qualities alike? Kendall's tau-b between their areas."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from facerts.metrics.intervals import Estimate


def kendall_tau(first: ArrayLike, second: ArrayLike) -> NDArray[np.float64]:
    """Kendall's tau-b between two rankings ``(…, Q)``: concordant minus discordant pairs, corrected for ties.

    Values that are NaN on either side are left out. The result ``(…)`` is NaN if all values on one side are equal, or
    there are fewer than two.
    """
    values = np.stack([np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)])
    values = np.where(np.isnan(values).any(axis=0), np.nan, values)
    signs = np.nan_to_num(np.sign(values[..., :, None] - values[..., None, :]))
    concordance, *untied = (np.sum(signs[one] * signs[other], axis=(-2, -1)) for one, other in ((0, 1), (0, 0), (1, 1)))
    size = np.sqrt(untied[0] * untied[1])
    return np.asarray(np.divide(concordance, size, out=np.full(np.shape(size), np.nan), where=size > 0))


def rank_consistency(
    areas: Mapping[str, Mapping[str, Estimate]],
) -> tuple[dict[tuple[str, str], float], Estimate]:
    """Agreement of recognizers on the order of qualities, from areas by recognizer and quality, with equal replicates.

    Kendall's tau-b of each pair of recognizers, over the qualities that both have: 1 for the same order, −1 for the
    reverse one; NaN if one of them does not tell any two apart. And the mean of those that are defined.

    Examples:
        >>> def areas(*values: float) -> dict[str, Estimate]:
        ...     return {name: Estimate(value, np.empty(0)) for name, value in zip(("a", "b", "c"), values)}
        >>> rank_consistency({"one": areas(0.5, 0.7, 0.9), "two": areas(0.6, 0.9, 0.8)})[0]
        {('one', 'two'): 0.3333333333333333}
    """
    taus, replicates = {}, []
    for first, second in combinations(areas, 2):
        shared = [label for label in areas[first] if label in areas[second]]
        both = [[areas[recognizer][label] for label in shared] for recognizer in (first, second)]
        taus[first, second] = float(kendall_tau(*([area.value for area in each] for each in both)))
        if shared:
            resampled = (np.stack([area.replicates for area in each], axis=-1) for each in both)
            replicates.append(kendall_tau(*resampled))
    defined = [tau for tau in taus.values() if np.isfinite(tau)]
    value = float(np.mean(defined)) if defined else float("nan")
    if not replicates:
        return taus, Estimate(value, np.empty(0))
    total, count = np.nansum(replicates, axis=0), np.isfinite(replicates).sum(axis=0)
    return taus, Estimate(value, np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0))
