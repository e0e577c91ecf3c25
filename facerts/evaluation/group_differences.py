"""How a quality threshold and a match threshold treat groups of people or images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error
from facerts.evaluation.image_groups import in_order
from facerts.evaluation.results.groups_result import (
    AcceptedByGroup,
    AttributeGroups,
    ErrorsByGroup,
    GroupContrast,
    GroupErrors,
    GroupShare,
    GroupsResult,
    MatchingByGroup,
    PairRate,
)
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.group_rates import GroupRates, extremes, fmr_by_group, fnmr_by_group, share_by_group
from facerts.metrics.separation import keep_threshold

MIN_IMAGES = 30
# A group with fewer expected false matches says nothing about its FMR.
MIN_FALSE_MATCHES = 10


class Grouping(NamedTuple):
    """The groups of N images by one attribute: K names, in order, and ``(N,)`` 0 … K − 1, or −1 where unknown."""

    names: list[str]
    group: NDArray[np.int64]

    @staticmethod
    def of(values: NDArray[np.str_]) -> Grouping:
        """From the ``(N,)`` group of each image by name, "" where unknown."""
        names = in_order([name for name in np.unique(values).tolist() if name])
        number_of = {name: number for number, name in enumerate(names)}
        group = [number_of.get(name, -1) for name in values.tolist()]
        return Grouping(names, np.array(group, dtype=np.int64))


class MatchedPairs(NamedTuple):
    """All pairs of N images by one recognizer, the images in order, with the minimum similarity of a match.

    ``fmr`` is what the threshold was chosen for; None if it was given.
    """

    pairs: AllPairs
    threshold: float
    fmr: float | None = None


def groups_of(
    values: Mapping[str, NDArray[np.str_]],
    qualities: Mapping[str, NDArray[np.floating]],
    *,
    people: NDArray[np.integer] | None = None,
    keep: float = 0.95,
    thresholds: Mapping[str, float] | None = None,
    compared: Mapping[str, MatchedPairs] | None = None,
    min_images: int = MIN_IMAGES,
    notes: Sequence[str] = (),
    **resampling: Any,
) -> GroupsResult:
    """Accepted shares, FNMR and FMR by group, for every attribute.

    Args:
        values: ``(N,)`` group of each image by attribute, "" where unknown, as ``Groups.of`` returns it.
        qualities: ``(N,)`` quality of each image by name, higher is better; NaN where an image has none. Such images
            are left out of accepted shares, and rejected from pairs.
        people: ``(N,)`` person of each image, to resample people; None if unknown.
        keep: each quality's threshold is the highest that keeps this share of all images that have the quality.
        thresholds: given thresholds by quality, instead.
        compared: all pairs and a match threshold by recognizer.
        min_images: images that a group needs to be called the worst or the best; for FNMR also genuine pairs.
        resampling: number of replicates and seed, see ``share_by_group``.
    """
    given = thresholds or {}
    minimums = {
        name: given[name] if name in given else _minimum(name, quality, keep)
        for name, quality in qualities.items()
    }
    by = {}
    for attribute, of_images in values.items():
        grouping = Grouping.of(of_images)
        accepted = {}
        for name, quality in qualities.items():
            there = np.isfinite(quality)
            passing = quality >= minimums[name]
            rates = share_by_group(
                passing,
                np.where(there, grouping.group, -1),
                len(grouping.names),
                people,
                **resampling,
            )
            accepted[name] = AcceptedByGroup(
                threshold=minimums[name],
                keep=None if name in given else keep,
                images=int(there.sum()),
                accepted=float(passing[there].mean()),
                groups={
                    label: GroupShare(
                        images=int(rates.trials[row]),
                        people=None if rates.people is None else int(rates.people[row]),
                        accepted=float(rates.rate[row]),
                        ci95=rates.interval(row),
                        median=float(np.median(quality[there & (grouping.group == row)])),
                    )
                    for row, label in enumerate(grouping.names)
                    if rates.trials[row]
                },
                contrast=_contrast(grouping.names, rates, rates.trials >= min_images, high_is_worse=False),
            )
        matching = {}
        for recognizer, (pairs, threshold, fmr) in (compared or {}).items():
            errors = partial(
                errors_by_group,
                pairs,
                threshold,
                grouping,
                min_images=min_images,
                **resampling,
            )
            try:
                every_pair = errors()
            except ValueError as error:
                raise Error(f"{recognizer}: {error}; choose a higher match threshold") from error
            matching[recognizer] = MatchingByGroup(
                threshold=threshold,
                fmr=fmr,
                every_pair=every_pair,
                accepted={
                    name: errors(kept=quality >= minimums[name]) for name, quality in qualities.items()
                },
            )
        by[attribute] = AttributeGroups(
            images=len(of_images),
            unknown=int((grouping.group < 0).sum()),
            accepted=accepted,
            matching=matching,
        )
    return GroupsResult(
        by=by,
        min_images=min_images,
        interval="Wilson's, over images" if people is None else "bootstrap over people",
        notes=list(notes),
    )


def errors_by_group(
    pairs: AllPairs,
    threshold: float,
    grouping: Grouping,
    *,
    kept: NDArray[np.bool_] | None = None,
    min_images: int = MIN_IMAGES,
    **resampling: Any,
) -> ErrorsByGroup:
    """FNMR and FMR of the pairs inside each group, and of all pairs; see ``fnmr_by_group`` and ``fmr_by_group``."""
    number = len(grouping.names)
    everybody = np.zeros(len(grouping.group), dtype=np.int64), 1
    fnmr, fmr, all_fnmr, all_fmr = (
        measure(pairs, *groups, threshold, kept=kept, **resampling)
        for groups in ((grouping.group, number), everybody)
        for measure in (fnmr_by_group, fmr_by_group)
    )
    inside = grouping.group if kept is None else grouping.group[kept]
    images = np.bincount(inside[inside >= 0], minlength=number)
    large = images >= min_images
    enough = fmr.trials * np.nan_to_num(all_fmr.rate[0]) >= MIN_FALSE_MATCHES - 1e-9
    return ErrorsByGroup(
        everybody=_errors(len(inside), all_fnmr, all_fmr, 0),
        groups={label: _errors(int(images[row]), fnmr, fmr, row) for row, label in enumerate(grouping.names)},
        fnmr_contrast=_contrast(
            grouping.names, fnmr, large & (fnmr.trials >= min_images), high_is_worse=True
        ),
        fmr_contrast=_contrast(grouping.names, fmr, large & enough, high_is_worse=True),
    )


def _minimum(name: str, quality: NDArray[np.floating], keep: float) -> float:
    there = quality[np.isfinite(quality)]
    if not len(there):
        raise Error(f"{name}: no image has this quality, so there is no threshold and no accepted share")
    return keep_threshold(there, keep)


def _errors(images: int, fnmr: GroupRates, fmr: GroupRates, row: int) -> GroupErrors:
    assert fmr.people is not None  # pairs always have people
    return GroupErrors(images=images, people=int(fmr.people[row]), fnmr=_rate(fnmr, row), fmr=_rate(fmr, row))


def _rate(rates: GroupRates, row: int) -> PairRate:
    rate, ci95 = rates.measured(row)
    return PairRate(pairs=int(rates.trials[row]), errors=int(rates.events[row]), rate=rate, ci95=ci95)


def _contrast(
    names: Sequence[str], rates: GroupRates, comparable: NDArray[np.bool_], *, high_is_worse: bool
) -> GroupContrast | None:
    contrast = extremes(rates, comparable, high_is_worse=high_is_worse)
    if contrast is None:
        return None
    named = {"worst": names[contrast.worst], "best": names[contrast.best]}
    return GroupContrast.model_validate(vars(contrast) | named)
