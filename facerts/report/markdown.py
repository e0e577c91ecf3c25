"""Tables in Markdown, and a comparison as a page of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from facerts.evaluation.results.comparison import ComparedMethod, Comparison, ComparisonTable, TableCell
from facerts.io.files import atomic_write

TOPICS = {
    "verification": "Verification: the same person or not",
    "ood": "Faces against non-faces",
    "reject": "Error versus reject, each quality on its own embedding",
    "embedding": "Error versus reject, all qualities on one embedding",
    "fiqa": "Quality league: error versus reject on several recognizers",
    "corruptions": "Blur",
    "training": "Training",
}


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None, *, words: int = 1
) -> str:
    """A GitHub-flavored table; so many of its first columns hold words, the others numbers, aligned right."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (header, *rows)]
    lines.insert(1, [*["---"] * words, *["---:"] * (len(header) - words)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table if caption is None else f"{caption}\n\n{table}"


def percent(value: float, interval: Sequence[float] | None = None) -> str:
    """A share in percent with its interval, as "99.43 [99.21, 99.60]"."""
    return f"{100 * value:.2f}" + ("" if interval is None else f" {brackets(interval)}")


def brackets(interval: Sequence[float]) -> str:
    """An interval of a share in percent."""
    return f"[{100 * interval[0]:.2f}, {100 * interval[1]:.2f}]"


def spread(cell: TableCell) -> str:
    """What a cell of a comparison says beside its value: an interval, the range of several runs, or nothing."""
    if cell.range is not None:
        low, high = cell.range
        return f"({100 * low:.2f} to {100 * high:.2f})"
    return "" if cell.ci95 is None else brackets(cell.ci95)


def words_of(table: ComparisonTable) -> dict[str, list[str]]:
    """The columns of words of a comparison's table, those that say nothing left out."""
    found = {"method": [row.method for row in table.rows]}
    if any(row.score for row in table.rows):
        found["score"] = [row.score or "–" for row in table.rows]
    if any(row.runs > 1 for row in table.rows):
        found["runs"] = [str(row.runs) for row in table.rows]
    return found


def comparison_markdown(
    comparison: Comparison, title: str, figures: Mapping[str, Sequence[tuple[str, str]]]
) -> str:
    """All tables of a comparison.

    Args:
        comparison: from ``facerts.evaluation.compare``.
        title: title of the page.
        figures: by topic, (file name, caption) of each.
    """
    methods = [f"{method.label} ({_folders(method)})" for method in comparison.methods]
    parts = [f"# {title}", f"Methods: {'; '.join(methods)}."]
    for topic, heading in TOPICS.items():
        tables = [table for table in comparison.tables if table.topic == topic]
        drawn = figures.get(topic, [])
        if tables or drawn:
            parts.append(f"## {heading}")
        for table in tables:
            parts += [f"### {table.title}", _table(table), table.note]
        parts += [f"![{caption}]({name})\n\n{caption}" for name, caption in drawn]
    if comparison.notes:
        parts += ["## Notes", "\n".join(f"- {note}" for note in comparison.notes)]
    return "\n\n".join(parts) + "\n"


def write_markdown(path: Path, text: str) -> None:
    """Write a page."""
    with atomic_write(path, "w") as file:
        file.write(text)


def _table(table: ComparisonTable) -> str:
    words = words_of(table)
    rows = [
        [*(column[number] for column in words.values()), *map(_cell, row.cells.values())]
        for number, row in enumerate(table.rows)
    ]
    return markdown_table([*words, *table.columns], rows, words=len(words))


def _cell(cell: TableCell | None) -> str:
    if cell is None:
        return "–"
    value = percent(cell.value)
    return f"{f'**{value}**' if cell.best else value} {spread(cell)}".rstrip()


def _folders(method: ComparedMethod) -> str:
    return ", ".join(run.folder for run in method.runs)
