"""Groups of people or images as tables on the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from facerts.cli.output import print_sentence, rows_table

if TYPE_CHECKING:
    from facerts.evaluation.results.groups import AttributeGroups, GroupsResult, MatchingByGroup, PairRate


def show_groups(section: GroupsResult) -> None:
    """Accepted shares and errors by group, and a sentence on each difference."""
    from facerts.report.group_findings import group_findings
    from facerts.report.numbers import SPACE

    for attribute, groups in section.by.items():
        if groups.accepted:
            _show_accepted(section, attribute, groups)
        for recognizer, matching in groups.matching.items():
            _show_errors(attribute, recognizer, matching)
        for sentence in group_findings(attribute, groups):
            print_sentence(sentence.replace(SPACE, " "))


def _show_accepted(section: GroupsResult, attribute: str, groups: AttributeGroups) -> None:
    by_quality = groups.accepted
    names = dict.fromkeys(name for accepted in by_quality.values() for name in accepted.groups)
    rows = []
    for name in names:
        shares = [accepted.groups.get(name) for accepted in by_quality.values()]
        images = max(one.images for one in shares if one is not None)
        cells = ["–" if one is None else _number(one.accepted, one.ci95) for one in shares]
        rows.append([name, f"{images:,}", *cells])
    rows.append(["all", f"{groups.images:,}", *(f"{one.accepted:.4f}" for one in by_quality.values())])
    header = [attribute, "images", *(f"{name} ≥ {one.threshold:.4g}" for name, one in by_quality.items())]
    rows_table(f"Accepted share of the images (95 % intervals: {section.interval})", header, rows)


def _show_errors(attribute: str, recognizer: str, matching: MatchingByGroup) -> None:
    every, rest = matching.every_pair, matching.accepted
    rows = []
    for name, one in [*every.groups.items(), (None, every.everybody)]:
        accepted = [errors.everybody if name is None else errors.groups[name] for errors in rest.values()]
        missed = [_rate(errors.fnmr) for errors in (one, *accepted)]
        rows.append([name or "all", f"{one.fnmr.pairs:,}", *missed, f"{one.fmr.pairs:,}", _rate(one.fmr)])
    columns = ["genuine pairs", "FNMR", *(f"accepted by {name}" for name in rest), "impostor pairs", "FMR"]
    title = f"Pairs inside each group by {recognizer}, at similarity {matching.threshold:.4f}"
    rows_table(title, [attribute, *columns], rows)


def _rate(found: PairRate) -> str:
    return "–" if found.rate is None or found.ci95 is None else _number(found.rate, found.ci95)


def _number(value: float, ends: tuple[float, float]) -> str:
    low, high = (f"{end:.4g}" for end in ends)
    return f"{value:.4g} [{low}, {high}]"
