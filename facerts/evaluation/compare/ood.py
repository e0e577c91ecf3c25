"""Faces against what is no face, by several methods: Table 2 of the RTS paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from facerts.evaluation.baselines import BASELINES
from facerts.evaluation.compare.differences import differences_of_separations, same_sources
from facerts.evaluation.compare.methods import Method, Told
from facerts.evaluation.compare.table import (
    TESTED,
    UNTESTED,
    Row,
    Table,
    joined,
    mark_best,
    reading,
    rows_of,
    runs_of,
)
from facerts.evaluation.labeled import Measured, Saved
from facerts.metrics.paired import Difference

# Scores of the pictures alone belong to no method.
OF_PICTURES = tuple(score for score in BASELINES if score != "neighbors")
EVERY = "any"
TPRS = {"TNR@TPR90": "0.90", "TNR@TPR95": "0.95"}
COLUMNS = (*TPRS, "AUROC")


def ood_tables(methods: Sequence[Method]) -> list[Table]:
    """All faces against all others, each source of faces against all others, all faces against each of others."""
    first = next((run.content["ood"] for run in runs_of(methods) if "ood" in run.content), None)
    if first is None:
        return []
    faces, others = tuple(first["in"]), tuple(first["out"])
    sides = [_Sides(faces, others)]
    if len(faces) > 1:
        sides += [_Sides((name,), others, "per_source", name) for name in faces]
    if len(others) > 1:
        sides += [_Sides(faces, (name,), "per_out_source", name) for name in others]
    return [_table(methods, first, one) for one in sides]


def ood_auroc(run: Saved, score: str) -> Measured | None:
    """AUROC of a score over all sources, where the run has it."""
    numbers = _Sides((), ()).numbers(run, score)
    return None if numbers is None else Measured(numbers["auroc"], *numbers["ci95"]["auroc"])


@dataclass(frozen=True)
class _Sides:
    """Faces and others of a table, and where a section has their numbers: pooled, or under ``kind`` and ``source``."""

    faces: tuple[str, ...]
    others: tuple[str, ...]
    kind: str | None = None
    source: str | None = None

    def numbers(self, run: Saved, score: str | None) -> dict[str, Any] | None:
        """What a run has of a score."""
        found: dict[str, Any] | None = run.content.get("ood", {}).get("by", {}).get(score)
        return found if found is None or self.kind is None else found.get(self.kind, {}).get(self.source)

    def measure(self, run: Saved, score: str | None, column: str) -> Told | None:
        numbers = self.numbers(run, score)
        if numbers is None:
            return None
        if column in TPRS:
            tpr = TPRS[column]
            return numbers["tnr_at_tpr"][tpr], numbers["ci95"][tpr]
        return numbers["auroc"], numbers["ci95"]["auroc"]

    def test(self, one: Row, other: Row, column: str) -> Difference | None:
        """Paired over the pictures; scores of one result can be compared too."""
        first, second = one.method.runs[0], other.method.runs[0]
        if one.score is None or other.score is None or not same_sources(first, second):
            return None
        found = differences_of_separations(
            (first, one.score),
            (second, other.score),
            self.faces,
            self.others,
            tpr=float(TPRS.get(column, "0.95")),
        )
        return found["tnr_at_tpr" if column in TPRS else "auroc"]


def _table(methods: Sequence[Method], first: dict[str, Any], sides: _Sides) -> Table:
    shared = _shared(methods, sides)
    rows = []
    for method in methods:
        found = [score for run in method.runs for score in run.content.get("ood", {}).get("by", {})]
        scores = [score for score in dict.fromkeys(found) if score not in shared]
        rows += rows_of(method, scores, COLUMNS, sides.measure)
    for score, run in shared.items():
        rows += rows_of(Method(EVERY, (run,)), [score], COLUMNS, sides.measure)
    tested = mark_best(rows, COLUMNS, sides.test)
    counts = [
        f"{what}: {', '.join(f'{name} ({first[key][name]:,} pictures)' for name in names)}"
        for what, key, names in (("Faces", "in", sides.faces), ("Others", "out", sides.others))
    ]
    excluded = (first.get("excluded") or {}).get("out")
    counted = f"{counts[0]}. {counts[1]}{f', without {excluded}' if excluded else ''}."
    read = (
        "TNR@TPR95: the share of the others below the threshold that keeps 95 % of the faces. A quality that is the "
        f"embedding's norm stands once, as quality. {reading(methods, [first['interval']])}"
        if sides.kind is None
        else "The columns are those of the table of all faces."
    )
    note = f"{counted} {read} {TESTED if tested else UNTESTED}"
    faces = joined(sides.faces) if sides.kind == "per_source" else "All faces"
    return Table("ood", f"{faces} against {joined(sides.others)}", COLUMNS, rows, note)


def _shared(methods: Sequence[Method], sides: _Sides) -> dict[str, Saved]:
    """Scores of the pictures alone, whose numbers are the same for every method, and a run that has them."""
    found = {}
    for score in OF_PICTURES:
        having = [run for run in runs_of(methods) if sides.numbers(run, score) is not None]
        if having and all(sides.numbers(run, score) == sides.numbers(having[0], score) for run in having):
            found[score] = having[0]
    return found
