"""Faces against non-faces, by several methods: Table 2 of the RTS paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from facerts.evaluation.baselines import BASELINES
from facerts.evaluation.compare.differences import differences_of_separations, same_sources
from facerts.evaluation.compare.method_runs import (
    MethodRow,
    MethodRuns,
    joined,
    mark_best,
    reading,
    rows_of,
    runs_of,
    table_of,
)
from facerts.evaluation.labeled import Measured, SavedResult
from facerts.evaluation.results.comparison_result import ComparisonTable
from facerts.evaluation.results.ood_result import OodNumbers, OodResult, OodScore, TprName
from facerts.metrics.paired import Difference

# Scores of the images alone belong to no method.
OF_IMAGES = tuple(score for score in BASELINES if score != "neighbors")
EVERY = "any"
TPRS: dict[str, TprName] = {"TNR@TPR90": "0.90", "TNR@TPR95": "0.95"}
COLUMNS = (*TPRS, "AUROC")


def ood_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """All faces against all others, each source of faces against all others, all faces against each of others."""
    first = next((run.content.ood for run in runs_of(methods) if run.content.ood is not None), None)
    if first is None:
        return []
    faces, others = tuple(first.faces), tuple(first.others)
    sides = [_Sides(faces, others, "all")]
    if len(faces) > 1:
        sides += [_Sides((name,), others, "per_source") for name in faces]
    if len(others) > 1:
        sides += [_Sides(faces, (name,), "per_out_source") for name in others]
    return [_table(methods, first, one) for one in sides]


def ood_auroc(run: SavedResult, score: str) -> Measured | None:
    """AUROC of a score over all sources, where the run has it."""
    numbers = _of_score(run, score)
    return None if numbers is None else Measured(numbers.auroc, numbers.ci95["auroc"])


def _of_score(run: SavedResult, score: str | None) -> OodScore | None:
    return None if run.content.ood is None or score is None else run.content.ood.by.get(score)


@dataclass(frozen=True)
class _Sides:
    """Faces and others of a table: all of them, those of one source against all others, or all against one's."""

    faces: tuple[str, ...]
    others: tuple[str, ...]
    which: Literal["all", "per_source", "per_out_source"]

    def numbers(self, run: SavedResult, score: str | None) -> OodNumbers | None:
        """What a run has of a score."""
        of_score = _of_score(run, score)
        if of_score is None or self.which == "all":
            return of_score
        if self.which == "per_source":
            return of_score.per_source.get(self.faces[0])
        return of_score.per_out_source.get(self.others[0])

    def measure(self, run: SavedResult, score: str | None, column: str) -> Measured | None:
        numbers = self.numbers(run, score)
        if numbers is None:
            return None
        if column in TPRS:
            tpr = TPRS[column]
            return Measured(numbers.tnr_at_tpr[tpr], numbers.ci95[tpr])
        return Measured(numbers.auroc, numbers.ci95["auroc"])

    def test(self, one: MethodRow, other: MethodRow, column: str) -> Difference | None:
        """Paired over the images; scores of one result can be compared too."""
        first, second = one.method.runs[0], other.method.runs[0]
        if one.score is None or other.score is None or not same_sources(first, second):
            return None
        differences = differences_of_separations(
            (first, one.score),
            (second, other.score),
            self.faces,
            self.others,
            tpr=float(TPRS.get(column, "0.95")),
        )
        return differences["tnr_at_tpr" if column in TPRS else "auroc"]


def _table(methods: Sequence[MethodRuns], first: OodResult, sides: _Sides) -> ComparisonTable:
    shared = _shared(methods, sides)
    rows = []
    for method in methods:
        all_scores = [
            score for run in method.runs if run.content.ood is not None for score in run.content.ood.by
        ]
        scores = [score for score in dict.fromkeys(all_scores) if score not in shared]
        rows += rows_of(method, scores, COLUMNS, sides.measure)
    for score, run in shared.items():
        rows += rows_of(MethodRuns(EVERY, (run,)), [score], COLUMNS, sides.measure)
    bold = mark_best(rows, COLUMNS, sides.test)
    counts = [
        f"{what}: {', '.join(f'{name} ({images[name]:,} images)' for name in names)}"
        for what, images, names in (
            ("Faces", first.faces, sides.faces),
            ("Non-faces", first.others, sides.others),
        )
    ]
    excluded = None if first.excluded is None else first.excluded.others
    counted = f"{counts[0]}. {counts[1]}{f', without {excluded}' if excluded else ''}."
    read = (
        "TNR@TPR95: the share of the non-faces below the threshold that keeps 95% of the faces. A quality that is the "
        f"embedding's norm stands once, as quality. {reading(methods, [first.interval])}"
        if sides.which == "all"
        else "The columns are those of the table of all faces."
    )
    note = f"{counted} {read} {bold}"
    faces = joined(sides.faces) if sides.which == "per_source" else "All faces"
    return table_of("ood", f"{faces} against {joined(sides.others)}", COLUMNS, rows, note)


def _shared(methods: Sequence[MethodRuns], sides: _Sides) -> dict[str, SavedResult]:
    """Scores of the images alone, whose numbers are the same for every method, and a run that has them."""
    shared = {}
    for score in OF_IMAGES:
        having = [run for run in runs_of(methods) if sides.numbers(run, score) is not None]
        if having and all(sides.numbers(run, score) == sides.numbers(having[0], score) for run in having):
            shared[score] = having[0]
    return shared
