"""Groups of people or images on the page: a table and a figure for each attribute."""

from __future__ import annotations

from facerts.evaluation.results.groups import (
    AttributeGroups,
    GroupContrast,
    GroupsResult,
    MatchingByGroup,
    PairRate,
)
from facerts.report.elements import Cell, Figure, PagePart, Table, share, words
from facerts.report.figures.groups import accepted_by_group
from facerts.report.group_findings import FMR_DIGITS, group_findings
from facerts.report.numbers import interval, percent, rate


def group_parts(section: GroupsResult) -> list[PagePart]:
    """A part for each attribute; the worst group of each column is marked in words."""
    return [_part(section, attribute, groups) for attribute, groups in section.by.items()]


def _part(section: GroupsResult, attribute: str, groups: AttributeGroups) -> PagePart:
    tables, drawn = [], []
    if groups.accepted:
        tables.append(_accepted_table(attribute, groups))
        caption = f"Accepted share of the images by {attribute}, with 95 % intervals; dashed: of all images."
        drawn.append(Figure(accepted_by_group(groups), caption))
    tables += [_errors_table(attribute, name, matching) for name, matching in groups.matching.items()]
    kept = sorted({accepted.keep for accepted in groups.accepted.values() if accepted.keep is not None})
    text = (
        f"{' '.join(group_findings(attribute, groups))} "
        + (f"Quality thresholds keep {' and '.join(map(rate, kept))} of all images. " if kept else "")
        + f"Groups with fewer than {section.min_images} images are not called worst. The worst and the best group are "
        "chosen by their rates: among many groups, some differ by chance. "
        + (f"Intervals of accepted shares: {section.interval}." if groups.accepted else "")
    )
    return PagePart(attribute, tables=tables, figures=drawn, text=text.strip(), notes=section.notes)


def _accepted_table(attribute: str, groups: AttributeGroups) -> Table:
    by_quality = groups.accepted
    names = list(dict.fromkeys(name for accepted in by_quality.values() for name in accepted.groups))
    rows = []
    for name in names:
        shares = [accepted.groups.get(name) for accepted in by_quality.values()]
        images = max(one.images for one in shares if one is not None)
        cells = [
            Cell("–")
            if one is None
            else _marked(share(one.accepted, one.ci95), _is_worst(name, accepted.contrast))
            for one, accepted in zip(shares, by_quality.values(), strict=True)
        ]
        rows.append([*words(name), Cell(f"{images:,}"), *cells])
    everybody = [share(accepted.accepted) for accepted in by_quality.values()]
    rows.append([*words("all"), Cell(f"{groups.images:,}"), *everybody])
    columns = [attribute, "images", *(f"accepted by {name}" for name in by_quality)]
    note = f"{groups.unknown:,} images are in no group." if groups.unknown else ""
    return Table(columns, rows, title="Accepted images", note=note)


def _errors_table(attribute: str, recognizer: str, matching: MatchingByGroup) -> Table:
    sets = {"": matching.every_pair} | {
        f" of accepted by {name}": errors for name, errors in matching.accepted.items()
    }
    rows = []
    for name, every in [*matching.every_pair.groups.items(), (None, matching.every_pair.everybody)]:
        missed, matched = [], []
        for errors in sets.values():
            one = errors.everybody if name is None else errors.groups[name]
            missed.append(_rate(one.fnmr, _is_worst(name, errors.fnmr_contrast)))
            matched.append(_rate(one.fmr, _is_worst(name, errors.fmr_contrast), FMR_DIGITS))
        counts = [Cell(f"{rates.pairs:,}") for rates in (every.fnmr, every.fmr)]
        rows.append([*words(name or "all"), counts[0], *missed, counts[1], *matched])
    columns = [
        *(attribute, "genuine pairs", *(f"FNMR{which}" for which in sets)),
        *("impostor pairs", *(f"FMR{which}" for which in sets)),
    ]
    return Table(columns, rows, title=f"Pairs inside each group, by {recognizer}")


def _rate(found: PairRate, worst: bool, digits: int = 2) -> Cell:
    return _marked(Cell(percent(found.rate, digits), interval(found.ci95, digits)), worst)


def _is_worst(name: str | None, contrast: GroupContrast | None) -> bool:
    return contrast is not None and name == contrast.worst


def _marked(cell: Cell, worst: bool) -> Cell:
    return Cell(cell.text, f"worst {cell.small}", bold=True) if worst else cell
