"""Groups of people or images: tables, and in words no more than the intervals of differences allow."""

from __future__ import annotations

from collections.abc import Iterator

from facerts.evaluation.results.groups_result import (
    AttributeGroups,
    ErrorsByGroup,
    GroupContrast,
    MatchingByGroup,
    PairRate,
)
from facerts.report.table import (
    NONE,
    Cell,
    Table,
    count,
    interval,
    measured,
    percent,
    points,
    points_interval,
    share,
    words,
)

# False match rates are small.
FMR_DIGITS = 4


def accepted_table(attribute: str, groups: AttributeGroups) -> Table:
    """Accepted shares, a row for each group; the worst group of each column is marked in words."""
    by_quality = groups.accepted
    names = list(dict.fromkeys(name for accepted in by_quality.values() for name in accepted.groups))
    rows = []
    for name in names:
        shares = [accepted.groups.get(name) for accepted in by_quality.values()]
        images = max(group.images for group in shares if group is not None)
        cells = [
            NONE
            if group is None
            else _marked(share(group.accepted, group.ci95), _is_worst(name, accepted.contrast))
            for group, accepted in zip(shares, by_quality.values(), strict=True)
        ]
        rows.append([*words(name), count(images), *cells])
    everybody = [share(accepted.accepted) for accepted in by_quality.values()]
    rows.append([*words("all"), count(groups.images), *everybody])
    columns = [attribute, "images", *(f"accepted by {name}" for name in by_quality)]
    note = f"{groups.unknown:,} images are in no group." if groups.unknown else ""
    return Table(columns, rows, title="Accepted images", note=note)


def errors_table(attribute: str, recognizer: str, matching: MatchingByGroup) -> Table:
    """FNMR and FMR inside each group, of every pair and of accepted images; the worst are marked in words."""
    sets = {"": matching.every_pair} | {
        f" of accepted by {name}": errors for name, errors in matching.accepted.items()
    }
    rows = []
    for name, every in [*matching.every_pair.groups.items(), (None, matching.every_pair.everybody)]:
        missed, matched = [], []
        for errors in sets.values():
            rates = errors.everybody if name is None else errors.groups[name]
            missed.append(_rate(rates.fnmr, _is_worst(name, errors.fnmr_contrast)))
            matched.append(_rate(rates.fmr, _is_worst(name, errors.fmr_contrast), FMR_DIGITS))
        pairs = count(every.fnmr.pairs), count(every.fmr.pairs)
        rows.append([*words(name or "all"), pairs[0], *missed, pairs[1], *matched])
    columns = [
        *(attribute, "genuine pairs", *(f"FNMR{which}" for which in sets)),
        *("impostor pairs", *(f"FMR{which}" for which in sets)),
    ]
    return Table(columns, rows, title=f"Pairs inside each group, by {recognizer}")


def _rate(rate: PairRate, worst: bool, digits: int = 2) -> Cell:
    return _marked(Cell(percent(rate.rate, digits), interval(rate.ci95, digits)), worst)


def _is_worst(name: str | None, contrast: GroupContrast | None) -> bool:
    return contrast is not None and name == contrast.worst


def _marked(cell: Cell, worst: bool) -> Cell:
    return Cell(cell.text, f"worst {cell.small}", bold=True) if worst else cell


def group_findings(attribute: str, groups: AttributeGroups) -> Iterator[str]:
    """A sentence on the worst and the best group of each accepted share and each error rate."""
    for quality, accepted in groups.accepted.items():
        if (contrast := accepted.contrast) is None:
            yield f"By {quality}, no two groups of {attribute} are large enough to be compared."
            continue
        worst, best = (
            f"{attribute} {name} ({measured(accepted.groups[name].accepted, accepted.groups[name].ci95, 1)})"
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
            f"{attribute} {name} ({measured(rate.rate, rate.ci95, digits)})"
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
