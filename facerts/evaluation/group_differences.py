"""How a quality threshold and a match threshold treat groups of people or images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.errors import Error
from facerts.evaluation.image_groups import in_order
from facerts.evaluation.measure import Evaluation, Format, Measure, Plot, Series
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.wording import interval as interval_of
from facerts.evaluation.wording import measured, percent, points, points_interval, rate
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.group_rates import (
    Extremes,
    GroupRates,
    extremes,
    fmr_by_group,
    fnmr_by_group,
    share_by_group,
)
from facerts.metrics.intervals import Interval
from facerts.metrics.separation import keep_threshold

MIN_IMAGES = 30
# A group with fewer expected false matches says nothing about its FMR.
MIN_FALSE_MATCHES = 10

ACCEPTED, ALL = "Accepted images", "all"


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
    """All pairs of N images by one recognizer, the images in order, with the minimum similarity of a match."""

    pairs: AllPairs
    threshold: float


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
) -> dict[str, tuple[Evaluation, Arrays]]:
    """Accepted shares, FNMR and FMR by group: a section and its arrays for every attribute.

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
        name: given[name] if name in given else _minimum(name, quality, keep) for name, quality in qualities.items()
    }
    interval = "Wilson's, over images" if people is None else "bootstrap over people"
    chosen = not set(qualities) <= set(given)
    text = (
        (f"Quality thresholds keep {rate(keep)} of all images. " if chosen and qualities else "")
        + f"Groups with fewer than {min_images} images are not called worst. The worst and the best group are chosen "
        "by their rates: among many groups, some differ by chance."
        + (f" Intervals of accepted shares: {interval}." if qualities else "")
    )
    sections = {}
    for attribute, of_images in values.items():
        grouping = Grouping.of(of_images)
        measures: list[Measure] = []
        findings: list[str] = []
        arrays: Arrays = {}
        series = []
        sizes = _sizes(grouping.group, len(grouping.names))
        for name, quality in qualities.items():
            there = np.isfinite(quality)
            passing = quality >= minimums[name]
            rates = share_by_group(
                passing, np.where(there, grouping.group, -1), len(grouping.names), people, **resampling
            )
            enough = rates.trials >= min_images
            contrast = extremes(rates, enough, high_is_worse=False)
            of_all = float(passing[there].mean())
            column = f"accepted by {name}"
            rows = _column(
                column, attribute, ACCEPTED, grouping.names, rates, contrast, of_all, threshold=minimums[name]
            )
            measures += rows
            measures += _contrasts(column, attribute, contrast)
            findings.append(_accepted_finding(name, attribute, grouping.names, rates, contrast))
            heights = np.flatnonzero(rates.trials)
            key = f"accepted/{name}"
            arrays |= {f"{key}/share": rates.rate[heights], f"{key}/row": heights.astype(np.float64)}
            arrays |= {f"{key}/low": rates.low[heights], f"{key}/high": rates.high[heights]}
            series.append(
                Series(
                    label=name,
                    x=[f"{key}/share"],
                    y=f"{key}/row",
                    x_low=f"{key}/low",
                    x_high=f"{key}/high",
                    mark="points",
                )
            )
        if qualities:
            images = [
                Measure(
                    name="images",
                    of={attribute: group},
                    table=ACCEPTED,
                    value=float(size),
                    format="count",
                )
                for group, size in zip((*grouping.names, ALL), (*sizes, len(of_images)), strict=True)
            ]
            measures = [*images, *measures]
        for recognizer, (pairs, threshold) in (compared or {}).items():
            sets = {"": None} | {
                f" of accepted by {name}": quality >= minimums[name] for name, quality in qualities.items()
            }
            for which, kept in sets.items():
                try:
                    errors, sentences = errors_by_group(
                        pairs,
                        threshold,
                        grouping,
                        attribute,
                        recognizer,
                        which,
                        kept=kept,
                        min_images=min_images,
                        **resampling,
                    )
                except ValueError as error:
                    raise Error(f"{recognizer}: {error}; choose a higher match threshold") from error
                measures += errors
                findings += sentences if kept is None else []
        unknown = int((grouping.group < 0).sum())
        plot = Plot(
            name=f"accepted {attribute}",
            caption=f"Accepted share of the images by {attribute}, with 95% intervals.",
            x="accepted share of the images",
            y="",
            panels={"": series or [Series(label="", x=["none"])]},
            percent="x",
            together=False,
            rows=grouping.names,
        )
        sections[attribute] = (
            Evaluation(
                title="Groups: how thresholds treat them",
                images=len(of_images),
                interval=interval,
                text=text + (f" {unknown:,} images are in no group." if unknown else ""),
                findings=findings,
                notes=list(notes),
                measures=measures,
                folded=[f"Worst and best {attribute}"],
                plots=[plot] if series else [],
            ),
            arrays,
        )
    return sections


def errors_by_group(
    pairs: AllPairs,
    threshold: float,
    grouping: Grouping,
    attribute: str,
    recognizer: str,
    which: str = "",
    *,
    kept: NDArray[np.bool_] | None = None,
    min_images: int = MIN_IMAGES,
    **resampling: Any,
) -> tuple[list[Measure], list[str]]:
    """FNMR and FMR of the pairs inside each group, and of all pairs; see ``fnmr_by_group`` and ``fmr_by_group``.

    And sentences on the worst and the best group; ``which`` names the pairs in the columns.
    """
    number = len(grouping.names)
    everybody = np.zeros(len(grouping.group), dtype=np.int64), 1
    fnmr, fmr, all_fnmr, all_fmr = (
        measure(pairs, *groups, threshold, kept=kept, **resampling)
        for groups in ((grouping.group, number), everybody)
        for measure in (fnmr_by_group, fmr_by_group)
    )
    large = _sizes(grouping.group if kept is None else grouping.group[kept], number) >= min_images
    enough = fmr.trials * np.nan_to_num(all_fmr.rate[0]) >= MIN_FALSE_MATCHES - 1e-9
    table = f"Pairs inside each group, by {recognizer}, at similarity {threshold:.4f}"
    measures, sentences = [], []
    for kind, rates, of_all, comparable in (
        ("FNMR", fnmr, all_fnmr, large & (fnmr.trials >= min_images)),
        ("FMR", fmr, all_fmr, large & enough),
    ):
        contrast = extremes(rates, comparable, high_is_worse=True)
        if not which:
            name = {"FNMR": "genuine pairs", "FMR": "impostor pairs"}[kind]
            trials = zip((*grouping.names, ALL), (*rates.trials, of_all.trials[0]), strict=True)
            for group, size in trials:
                of = {attribute: group}
                measures.append(Measure(name=name, of=of, table=table, value=float(size), format="count"))
        total = of_all.measured(0)
        column = f"{kind}{which}"
        measures += _column(column, attribute, table, grouping.names, rates, contrast, *total, threshold=threshold)
        measures += _contrasts(f"{column} by {recognizer}", attribute, contrast)
        if contrast is not None:
            sentences.append(_errors_finding(kind, recognizer, attribute, grouping.names, rates, contrast))
    return measures, sentences


def _column(
    name: str,
    attribute: str,
    table: str,
    groups: Sequence[str],
    rates: GroupRates,
    contrast: Extremes | None,
    of_all: float | None,
    ci95: Interval | None = None,
    *,
    threshold: float,
) -> list[Measure]:
    """A rate of each group and of everybody."""
    # False match rates are small.
    form: Format = "small share" if name.startswith("FMR") else "share"
    column = []
    for row, group in enumerate(groups):
        value, ends = rates.measured(row)
        if value is not None or not name.startswith("accepted"):
            worst = contrast is not None and contrast.worst == row
            column.append(
                Measure(
                    name=name,
                    of={attribute: group},
                    table=table,
                    value=value,
                    ci95=ends,
                    n=int(rates.trials[row]),
                    format=form,
                    threshold=threshold,
                    mark="worst" if worst else "",
                )
            )
    return [
        *column,
        Measure(name=name, of={attribute: ALL}, table=table, value=of_all, ci95=ci95, format=form),
    ]


def _contrasts(name: str, attribute: str, contrast: Extremes | None) -> list[Measure]:
    """How far the worst group is from the best; intervals hold for all pairs of groups at the same time."""
    if contrast is None:
        return []
    numbers = [
        Measure(
            name="worst minus best",
            value=contrast.difference,
            ci95=contrast.difference_ci95,
            format="points",
        ),
        Measure(name="worst / best", value=contrast.ratio, ci95=contrast.ratio_ci95, format=".2f"),
        Measure(name="worst / geometric mean", value=contrast.over_mean, format=".2f"),
    ]
    return [one.model_copy(update={"of": {"rate": name}, "table": f"Worst and best {attribute}"}) for one in numbers]


def _accepted_finding(
    quality: str, attribute: str, groups: Sequence[str], rates: GroupRates, contrast: Extremes | None
) -> str:
    if contrast is None:
        return f"By {quality}, no two groups of {attribute} are large enough to be compared."
    worst, best = (
        f"{attribute} {groups[row]} ({measured(*rates.measured(row))})" for row in (contrast.worst, contrast.best)
    )
    apart = f"{points(contrast.difference)} percentage points {points_interval(contrast.difference_ci95)}"
    clear = ": " if _is_clear(contrast) else ", no clear difference: "
    return f"By {quality}, images of {worst} are accepted least, and those of {best} most{clear}{apart}."


def _errors_finding(
    kind: str, recognizer: str, attribute: str, groups: Sequence[str], rates: GroupRates, contrast: Extremes
) -> str:
    # False match rates are small.
    digits = 4 if kind == "FMR" else 1
    worst, best = (
        f"{attribute} {groups[row]} ({_with_digits(rates.measured(row), digits)})"
        for row in (contrast.worst, contrast.best)
    )
    times = "" if contrast.ratio is None else f", {contrast.ratio:.1f} times as high"
    if contrast.ratio is not None and contrast.ratio_ci95 is not None:
        times += " [" + ", ".join(f"{end:.1f}" for end in contrast.ratio_ci95) + "]"
    unclear = "" if _is_clear(contrast) else ", no clear difference"
    return f"{recognizer}: {kind} is highest in {worst} and lowest in {best}{times}{unclear}."


def _with_digits(found: tuple[float | None, Interval | None], digits: int) -> str:
    return f"{percent(found[0], digits)} {interval_of(found[1], digits)}".rstrip()


def _is_clear(contrast: Extremes) -> bool:
    low, high = contrast.difference_ci95
    return not low <= 0 <= high


def _sizes(group: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """``(K,)`` images of each group."""
    return np.bincount(group[group >= 0], minlength=number)


def _minimum(name: str, quality: NDArray[np.floating], keep: float) -> float:
    there = quality[np.isfinite(quality)]
    if not len(there):
        raise Error(f"{name}: no image has this quality, so there is no threshold and no accepted share")
    return keep_threshold(there, keep)
