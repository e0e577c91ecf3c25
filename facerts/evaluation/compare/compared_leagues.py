"""Quality leagues of several folders side by side: mean areas under error versus reject."""

from __future__ import annotations

from collections.abc import Sequence

from facerts.evaluation.compare.method_runs import (
    MeasuredValue,
    MethodRuns,
    reading,
    rows_of,
    runs_of,
    sections_of,
    table_of,
)
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.results.comparison_result import ComparisonTable
from facerts.evaluation.results.fiqa_result import FiqaEnd, FiqaSection

END: FiqaEnd = "0.3"
BOUND = "oracle"


def fiqa_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """A table for each set of faces: areas to 30% by quality, a column for each false match rate."""
    return [
        _table(methods, name, first)
        for name, first in sections_of(methods, lambda result: result.fiqa).items()
        if first.areas
    ]


def _table(methods: Sequence[MethodRuns], name: str, first: FiqaSection) -> ComparisonTable:
    having = [method for method in methods if any(name in run.content.fiqa for run in method.runs)]
    fmrs = sorted({entry.fmr for entry in first.areas}, reverse=True)
    columns = {f"area at FMR {fmr:g}": fmr for fmr in fmrs}

    def measure(run: SavedResult, score: str | None, column: str) -> MeasuredValue | None:
        section = run.content.fiqa.get(name)
        means = {} if section is None else section.areas_of(columns[column]).get(None, {})
        entry = means.get(score or "")
        if entry is None or (area := entry.area[END]) is None:
            return None
        return MeasuredValue(area, entry.ci95 and entry.ci95[END])

    rows = [
        row for method in having for row in rows_of(method, _qualities(method, name), list(columns), measure)
    ]
    notes = [
        reading(having, [first.interval]),
        "Area: mean FNMR while 0 to 30% of the genuine pairs of lowest quality are rejected, divided by FNMR without "
        "rejection, averaged over the recognizers; 100 for a random order, lower is better.",
    ]
    if not _comparable(having, name):
        notes.append("The folders have other images or recognizers: their numbers cannot be compared.")
    return table_of("fiqa", f"Quality league on {name}", list(columns), rows, " ".join(notes))


def _qualities(method: MethodRuns, name: str) -> list[str]:
    sections = [run.content.fiqa[name] for run in method.runs if name in run.content.fiqa]
    return [label for label in dict.fromkeys(q for one in sections for q in one.qualities) if label != BOUND]


def shared_leagues(methods: Sequence[MethodRuns]) -> bool:
    """Whether two results judge qualities on the same images and recognizers."""
    judged = [_judged(name, one) for run in runs_of(methods) for name, one in run.content.fiqa.items()]
    return len(set(judged)) < len(judged)


def _comparable(methods: Sequence[MethodRuns], name: str) -> bool:
    leagues = (run.content.fiqa.get(name) for run in runs_of(methods))
    return len({_judged(name, one) for one in leagues if one is not None}) == 1


def _judged(name: str, section: FiqaSection) -> tuple[object, ...]:
    """The images and recognizers of a league."""
    recognizers = sorted(one.sha256 for one in section.recognizers.values())
    return name, section.data_sha256, section.thresholds_on, *recognizers
