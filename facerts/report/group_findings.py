"""What differences between groups say, in plain words, and no more than their intervals allow."""

from __future__ import annotations

from collections.abc import Iterator

from facerts.evaluation.results.groups import AttributeGroups, ErrorsByGroup, GroupContrast
from facerts.metrics.intervals import Interval
from facerts.report.numbers import interval, percent, points, points_interval

# False match rates are small.
FMR_DIGITS = 4


def group_findings(attribute: str, groups: AttributeGroups) -> Iterator[str]:
    """A sentence on the worst and the best group of each accepted share and each error rate.

    Args:
        attribute: name of the attribute, such as "age".
        groups: its groups.
    """
    for quality, accepted in groups.accepted.items():
        if (contrast := accepted.contrast) is None:
            yield f"By {quality}, no two groups of {attribute} are large enough to be compared."
            continue
        worst, best = (
            f"{attribute} {name} ({_measured(accepted.groups[name].accepted, accepted.groups[name].ci95, 1)})"
            for name in (contrast.worst, contrast.best)
        )
        yield f"By {quality}, images of {worst} are accepted least, and those of {best} most{_apart(contrast)}."
    for recognizer, matching in groups.matching.items():
        yield from _errors(attribute, recognizer, matching.every_pair)


def _errors(attribute: str, recognizer: str, errors: ErrorsByGroup) -> Iterator[str]:
    for kind, contrast, digits in (
        ("fnmr", errors.fnmr_contrast, 1),
        ("fmr", errors.fmr_contrast, FMR_DIGITS),
    ):
        if contrast is None:
            continue
        rates = [getattr(errors.groups[name], kind) for name in (contrast.worst, contrast.best)]
        worst, best = (
            f"{attribute} {name} ({_measured(rate.rate, rate.ci95, digits)})"
            for name, rate in zip((contrast.worst, contrast.best), rates, strict=True)
        )
        times = "" if contrast.ratio is None else f", {contrast.ratio:.1f} times as high"
        if contrast.ratio is not None and contrast.ratio_ci95 is not None:
            times += " [" + ", ".join(f"{end:.1f}" for end in contrast.ratio_ci95) + "]"
        unclear = "" if _is_clear(contrast) else ", no clear difference"
        yield (f"{recognizer}: {kind.upper()} is highest in {worst} and lowest in {best}{times}{unclear}.")


def _apart(contrast: GroupContrast) -> str:
    measured = f"{points(contrast.difference)} percentage points {points_interval(contrast.difference_ci95)}"
    return f": {measured}" if _is_clear(contrast) else f", no clear difference: {measured}"


def _is_clear(contrast: GroupContrast) -> bool:
    low, high = contrast.difference_ci95
    return not low <= 0 <= high


def _measured(value: float | None, ends: Interval | None, digits: int) -> str:
    return f"{percent(value, digits)} {interval(ends, digits)}".rstrip()
