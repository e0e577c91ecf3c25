"""Error versus reject of several methods, each method's quality on its own embedding."""

from __future__ import annotations

from collections.abc import Sequence

from facerts.evaluation.compare.method_runs import MeasuredValue, MethodRuns
from facerts.evaluation.compare.method_tables import (
    OWN_SCORES,
    UNTESTED,
    reading,
    rows_of,
    runs_of,
    sections_of,
    table_of,
)
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.results.comparison_result import ComparisonTable
from facerts.evaluation.results.reject_result import AreaEnd, PairSet, RejectResult

# Columns: shares rejected, and the ends of areas.
REJECTED = {"0%": 0.0, "5%": 0.05, "10%": 0.1, "20%": 0.2}
AREAS: dict[str, AreaEnd] = {"pAUC to 20%": "0.2", "pAUC to 95%": "0.95"}
COLUMNS = (*REJECTED, *AREAS)


def reject_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """FNMR by the share rejected and the areas, of the benchmarks' pairs and of all pairs."""
    kinds: tuple[PairSet, ...] = ("benchmark", "all")
    return [
        _table(methods, name, pairs, having[0])
        for name in sections_of(methods, lambda result: result.reject)
        for pairs in kinds
        if (having := [curve for run in runs_of(methods) for curve in _curves(run, name, pairs)])
    ]


def curve_number(curve: RejectResult, column: str) -> MeasuredValue:
    """A column's number of a curve."""
    if column in AREAS:
        end = AREAS[column]
        return MeasuredValue(curve.area[end], None if curve.ci95 is None else curve.ci95[end])
    place = curve.index_at(REJECTED[column])
    ends = curve.fnmr_ci95
    return MeasuredValue(curve.fnmr[place], None if ends is None else (ends[0][place], ends[1][place]))


def _table(methods: Sequence[MethodRuns], name: str, pairs: PairSet, first: RejectResult) -> ComparisonTable:
    def measure(run: SavedResult, score: str | None, column: str) -> MeasuredValue | None:
        of_score = [curve for curve in _curves(run, name, pairs) if curve.by == score]
        return curve_number(of_score[0], column) if of_score else None

    rows = []
    for method in methods:
        rejecting = {curve.by for run in method.runs for curve in _curves(run, name, pairs)}
        scores = [score for score in OWN_SCORES if score in rejecting]
        rows += rows_of(method, scores, COLUMNS, measure)
    every = pairs == "all"
    intervals = [] if first.interval is None else [first.interval]
    note = (
        f"FNMR at FMR {first.fmr:g} while a share of the genuine pairs, those of lowest quality, is left out, on "
        f"{'every pair of its images' if every else 'its pairs'}: {first.genuine:,} genuine pairs. Each method "
        f"has similarities and a threshold of its own, chosen once on {first.impostors:,} impostor pairs, of which "
        f"{first.impostors_accepted:,} pass. Lower is better. {reading(methods, intervals)} {UNTESTED}"
    )
    title = (
        f"Error versus reject on {name}{', all pairs' if every else ''}, each quality on its own embedding"
    )
    return table_of("reject", title, COLUMNS, rows, note)


def _curves(run: SavedResult, name: str, pairs: PairSet) -> list[RejectResult]:
    """Those by the model's own scores."""
    return [
        curve for curve in run.content.reject.get(name, []) if curve.pairs == pairs and curve.by in OWN_SCORES
    ]
