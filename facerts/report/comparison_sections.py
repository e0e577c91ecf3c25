"""What a comparison adds to the page: methods side by side, and paired differences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from facerts.evaluation.compare.verification import TAR_IN_WORDS
from facerts.evaluation.results.comparison import Comparison, ComparisonTable, PairedDifference, TableCell
from facerts.report.elements import Cell, Figure, PagePart, PageSection, Table, words
from facerts.report.markdown import TOPICS, spread, words_of
from facerts.report.numbers import complement, percent, points, points_interval, rate

_TAR = re.compile(r"TAR at FAR (.*)")
_TNR = re.compile(r"\bTNR@TPR(\d+)")
_FMR = re.compile(r"\bFMR (\d+(?:\.\d+)?(?:e-?\d+)?)")


def side_by_side(comparison: Comparison, figures: Mapping[str, Sequence[Figure]]) -> PageSection:
    """All tables, and figures by topic."""
    parts = [
        PagePart(
            heading,
            [_table(table) for table in comparison.tables if table.topic == topic],
            figures.get(topic, ()),
        )
        for topic, heading in TOPICS.items()
    ]
    shown = [part for part in parts if part.tables or part.figures]
    return PageSection("methods", "Methods side by side", "Methods side by side", shown)


def differences(comparison: Comparison) -> PageSection:
    """Paired differences of every result from the first."""
    reference = comparison.reference.label
    verified = [
        [
            *words(name, row.model.label),
            _difference(row.accuracy),
            _difference(row.auroc),
            _difference(negative(row.tar_at_far), f"FMR {rate(row.far)}"),
        ]
        for name, rows in comparison.verification.items()
        for row in rows
    ]
    separated = [
        [*words(score, row.model.label), _difference(found.auroc), _difference(found.tnr_at_tpr)]
        for row in comparison.ood
        for score, found in row.by.items()
    ]
    tables = [
        Table(["benchmark", "model", "accuracy", "AUROC", "FNMR at FMR"], verified, words=2),
        Table(["non-faces, by", "model", "AUROC", "TNR at TPR 95 %"], separated, words=2),
    ]
    text = (
        f"Each model minus {reference}, in percentage points, on the same pairs and images in every replicate of the "
        "bootstrap: over people where a benchmark names them, over pairs and images otherwise. Bold: the 95 % interval "
        "leaves out 0. p is two-sided and not corrected for the number of comparisons; another training seed may "
        "differ by more."
    )
    part = PagePart("", [table for table in tables if table.rows], text=text, notes=comparison.notes)
    return PageSection("differences", "Differences", f"Differences from {reference}", [part])


def negative(found: PairedDifference) -> PairedDifference:
    """The difference of 1 − x, from that of x."""
    low, high = found.ci95
    return found.model_copy(update={"value": -found.value, "ci95": (-high, -low)})


def _table(table: ComparisonTable) -> Table:
    columns = words_of(table)
    rows = [
        [
            *words(*(column[number] for column in columns.values())),
            *(_cell(cell, missed=_TAR.match(name) is not None) for name, cell in row.cells.items()),
        ]
        for number, row in enumerate(table.rows)
    ]
    numbers = [
        _TAR.sub(lambda found: f"FNMR at FMR {rate(found[1])}", _in_percent(name)) for name in table.columns
    ]
    note = table.note.replace(TAR_IN_WORDS, "FNMR at the lowest threshold where FMR is not above the target")
    return Table([*columns, *numbers], rows, len(columns), _in_percent(table.title), _in_percent(note))


def _cell(cell: TableCell | None, *, missed: bool) -> Cell:
    if cell is None:
        return Cell("–")
    if missed:
        ends = {"ci95": complement(cell.ci95), "range": complement(cell.range)}
        cell = cell.model_copy(update={"value": 1 - cell.value, **ends})
    return Cell(percent(cell.value), spread(cell), cell.best)


def _difference(found: PairedDifference, where: str = "") -> Cell:
    low, high = found.ci95
    small = f"{points_interval(found.ci95)}, p {found.p_value:.3f}{f', {where}' if where else ''}"
    return Cell(points(found.value), small, low > 0 or high < 0)


def _in_percent(text: str) -> str:
    return _TNR.sub(r"TNR at TPR \1 %", _FMR.sub(lambda found: f"FMR {rate(found[1])}", text))
