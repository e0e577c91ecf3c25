"""Quality thresholds of groups, and what they cost against one threshold for everybody.

Scoring does not know which group a face is in, so these thresholds are for information: they show whom a single
threshold rejects, and what equal shares would let through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.evaluation.group_differences import MIN_IMAGES, Grouping
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.group_rates import GroupRates, fmr_by_group, fnmr_by_group, in_tail, share_by_group
from facerts.metrics.separation import keep_threshold
from facerts.onnx.contract import ErrorRate, GroupThreshold, MatchErrors, QualityThreshold

# Thresholds by attribute, share of the faces, and group.
ByAttribute = dict[str, dict[str, dict[str, GroupThreshold]]]


class ComparedFaces(NamedTuple):
    """The ``(U,)`` rows of faces without duplicates, all pairs of places in these, and match thresholds by FMR."""

    rows: NDArray[np.int64]
    pairs: AllPairs
    thresholds: Mapping[str, float]


def group_thresholds(
    quality: NDArray[np.float64],
    values: Mapping[str, NDArray[np.str_]],
    thresholds: Mapping[str, QualityThreshold],
    *,
    people: NDArray[np.integer] | None = None,
    compared: ComparedFaces | None = None,
    non_faces: NDArray[np.float64] | None = None,
) -> ByAttribute:
    """For each group, the threshold that keeps the same share of that group, next to the one for all faces.

    ``quality``, ``values`` (by attribute, "" where unknown) and ``people`` are ``(F,)``, one for each face,
    ``non_faces`` ``(M,)`` is the quality of non-faces; thresholds are by the share of all faces that they keep.
    """
    return {
        attribute: {
            share: _of_share(quality, Grouping.of(groups), float(share), threshold.quality, people, compared, non_faces)
            for share, threshold in thresholds.items()
        }
        for attribute, groups in values.items()
    }


def _of_share(
    quality: NDArray[np.float64],
    grouping: Grouping,
    share: float,
    threshold: float,
    people: NDArray[np.integer] | None,
    compared: ComparedFaces | None,
    non_faces: NDArray[np.float64] | None,
) -> dict[str, GroupThreshold]:
    names, group = grouping
    accepted = share_by_group(quality >= threshold, group, len(names), people)
    # A few faces do not give a threshold.
    own = [
        keep_threshold(quality[group == row], share) if accepted.trials[row] >= MIN_IMAGES else None
        for row in range(len(names))
    ]
    minimum = np.array([np.inf if one is None else one for one in own] + [np.inf])[group]
    single_errors, own_errors = (
        {} if compared is None else _errors(compared, grouping, kept)
        for kept in (quality >= threshold, quality >= minimum)
    )
    return {
        name: GroupThreshold(
            faces=int(accepted.trials[row]),
            people=None if accepted.people is None else int(accepted.people[row]),
            accepted=float(accepted.rate[row]),
            ci95=accepted.interval(row),
            quality=own[row],
            errors={fmr: errors[row] for fmr, errors in single_errors.items()},
            own_errors={} if own[row] is None else {fmr: errors[row] for fmr, errors in own_errors.items()},
            non_faces=None
            if non_faces is None or own[row] is None
            else float(np.mean(non_faces >= np.float64(own[row]))),
        )
        for row, name in enumerate(names)
    }


def _errors(compared: ComparedFaces, grouping: Grouping, kept: NDArray[np.bool_]) -> dict[str, list[MatchErrors]]:
    """Errors of each group among the pairs of faces that are kept, at each false match rate that is low enough."""
    number = len(grouping.names)
    errors_by_fmr = {}
    for fmr, similarity in compared.thresholds.items():
        if not in_tail(compared.pairs, similarity):
            continue
        fnmr_rates, fmr_rates = (
            measure(compared.pairs, grouping.group[compared.rows], number, similarity, kept=kept[compared.rows])
            for measure in (fnmr_by_group, fmr_by_group)
        )
        errors_by_fmr[fmr] = [
            MatchErrors(fnmr=_rate(fnmr_rates, row), fmr=_rate(fmr_rates, row)) for row in range(number)
        ]
    return errors_by_fmr


def _rate(rates: GroupRates, row: int) -> ErrorRate:
    rate, ci95 = rates.measured(row)
    return ErrorRate(pairs=int(rates.trials[row]), rate=rate, ci95=ci95)
