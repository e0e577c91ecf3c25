"""Tables of a comparison: methods side by side, and paired differences."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from facerts.evaluation.compare.verification_tables import TAR_IN_WORDS
from facerts.evaluation.results.comparison_result import (
    Comparison,
    ComparisonTable,
    PairedDifference,
    TableCell,
)
from facerts.report.page_elements import Figure, PagePart, PageSection
from facerts.report.table import (
    NONE,
    Cell,
    Table,
    complement,
    interval,
    percent,
    points,
    points_interval,
    rate,
    words,
)

_TAR = re.compile(r"TAR at FAR (.*)")
_TNR = re.compile(r"\bTNR@TPR(\d+)")
_FMR = re.compile(r"\bFMR (\d+(?:\.\d+)?(?:e-?\d+)?)")
# Headings of the parts, in their order.
TOPICS = {
    "verification": "Verification: the same person or not",
    "ood": "Faces against non-faces",
    "reject": "Error versus reject, each quality on its own embedding",
    "embedding": "Error versus reject, all qualities on one embedding",
    "fiqa": "Quality league: error versus reject on several recognizers",
    "corruptions": "Blur",
    "training": "Training",
}


def side_by_side(comparison: Comparison, figures: Mapping[str, Sequence[Figure]]) -> PageSection:
    """All tables, and figures by topic."""
    parts = [
        PagePart(heading, method_tables(comparison, topic), figures.get(topic, ()))
        for topic, heading in TOPICS.items()
    ]
    shown = [part for part in parts if part.tables or part.figures]
    return PageSection("methods", "Methods side by side", "Methods side by side", shown)


def differences(comparison: Comparison) -> PageSection:
    """Paired differences of every result from the first."""
    reference = comparison.reference.label
    text = (
        f"Each model minus {reference}, in percentage points, on the same pairs and images in every replicate of the "
        "bootstrap: over people where a benchmark names them, over pairs and images otherwise. Bold: the 95% interval "
        "leaves out 0. p is two-sided and not corrected for the number of comparisons; another training seed may "
        "differ by more."
    )
    title = f"Differences from {reference}"
    part = PagePart("", difference_tables(comparison), text=text, notes=comparison.notes)
    return PageSection("differences", "Differences", title, [part])


def method_tables(comparison: Comparison, topic: str | None = None) -> list[Table]:
    """The tables of a topic, or all: a row for each method and score."""
    return [_table(table) for table in comparison.tables if topic in (None, table.topic)]


def difference_tables(comparison: Comparison) -> list[Table]:
    """A row for each model and benchmark, and for each model and score."""
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
        [*words(score, row.model.label), _difference(by_score.auroc), _difference(by_score.tnr_at_tpr)]
        for row in comparison.ood
        for score, by_score in row.by.items()
    ]
    tables = [
        Table(["benchmark", "model", "accuracy", "AUROC", "FNMR at FMR"], verified, words=2),
        Table(["non-faces, by", "model", "AUROC", "TNR at TPR 95%"], separated, words=2),
    ]
    return [table for table in tables if table.rows]


def negative(difference: PairedDifference) -> PairedDifference:
    """The difference of 1 − x, from that of x."""
    low, high = difference.ci95
    return difference.model_copy(update={"value": -difference.value, "ci95": (-high, -low)})


def _table(table: ComparisonTable) -> Table:
    several = any(row.runs > 1 for row in table.rows)
    scored = any(row.score for row in table.rows)
    rows = [
        [
            *words(row.method, (row.score or "–") * scored, str(row.runs) * several),
            *(_cell(cell, missed=_TAR.match(name) is not None) for name, cell in row.cells.items()),
        ]
        for row in table.rows
    ]
    numbers = [
        _TAR.sub(lambda match: f"FNMR at FMR {rate(match[1])}", _in_percent(name)) for name in table.columns
    ]
    note = table.note.replace(TAR_IN_WORDS, "FNMR at the lowest threshold where FMR is not above the target")
    header = ["method", "score", "runs", *numbers]
    return Table(header, rows, 3, _in_percent(table.title), _in_percent(note)).without_empty_words()


def _cell(cell: TableCell | None, *, missed: bool) -> Cell:
    if cell is None:
        return NONE
    if missed:
        ends = {"ci95": complement(cell.ci95), "range": complement(cell.range)}
        cell = cell.model_copy(update={"value": 1 - cell.value, **ends})
    # In brackets an interval, in parentheses the lowest and the highest of several runs.
    low_to_high = interval(cell.range).replace("[", "(").replace(",", " to").replace("]", ")")
    return Cell(percent(cell.value), low_to_high or interval(cell.ci95), cell.best)


def _difference(difference: PairedDifference, where: str = "") -> Cell:
    low, high = difference.ci95
    small = f"{points_interval(difference.ci95)}, p {difference.p_value:.3f}{f', {where}' if where else ''}"
    return Cell(points(difference.value), small, low > 0 or high < 0)


def _in_percent(text: str) -> str:
    return _TNR.sub(r"TNR at TPR \1%", _FMR.sub(lambda match: f"FMR {rate(match[1])}", text))
