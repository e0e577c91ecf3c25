"""Error versus reject of several methods' qualities on one embedding: Fig. 8 of the RTS paper.

Similarities and the threshold are one model's, so that the curves differ by the quality alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facerts.errors import DataError
from facerts.evaluation.compare.method_runs import MeasuredValue, MethodRuns
from facerts.evaluation.compare.method_tables import OWN_SCORES, UNTESTED, reading, rows_of, table_of
from facerts.evaluation.compare.reject_tables import COLUMNS, curve_number
from facerts.evaluation.labeled import SavedResult, by_cosine, quality_of
from facerts.evaluation.rejection import FMR, REPLICATES, reject_result
from facerts.evaluation.results.comparison_result import ComparisonTable, QualityCurve, QualityCurves
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.verification import reachable


def chosen(methods: Sequence[MethodRuns], label: str | None) -> MethodRuns:
    """The method whose embedding is used: the first, where no label is given."""
    for method in methods:
        if label is None or method.label == label:
            return method
    raise DataError(
        f"no result is called {label!r}; --embedding takes one of {', '.join(method.label for method in methods)}"
    )


def on_one_embedding(
    methods: Sequence[MethodRuns], embedder: MethodRuns, notes: list[str]
) -> tuple[list[ComparisonTable], dict[str, QualityCurves]]:
    """A table and curves for each benchmark of the chosen method that has pairs.

    Qualities are those of ``methods``; the embedding is that of the first run of ``embedder``.
    """
    first = embedder.runs[0]
    tables, curves = [], {}
    for name, section in first.content.verification.items():
        prefix = f"verification/{name}/"
        if prefix + "scores" not in first.arrays or not by_cosine(section):
            continue
        scores, same, rows = (first.array(prefix + key) for key in ("scores", "same", "pairs"))
        pairs = compare_listed(scores, same, rows, first.arrays.get(prefix + "subjects"))
        fmr = next((curve.fmr for curve in first.content.reject.get(name, [])), FMR)
        if not reachable([fmr], pairs.impostors):
            notes.append(
                f"{name}: FMR {fmr:g} needs at least {int(np.ceil(1 / fmr)):,} impostor pairs, and there "
                f"are {pairs.impostors:,}, so no qualities are compared on one embedding."
            )
            continue
        table, curves[name] = _measure(methods, embedder, name, pairs, fmr, notes)
        tables.append(table)
    return tables, curves


def _measure(
    methods: Sequence[MethodRuns],
    embedder: MethodRuns,
    name: str,
    pairs: ComparedPairs,
    fmr: float,
    notes: list[str],
) -> tuple[ComparisonTable, QualityCurves]:
    first = embedder.runs[0]
    scores = {method.label: _scores(method, first, name, notes) for method in methods}
    qualities = {
        _key(run, score): quality_of(run, first, name, score)
        for method in methods
        for run in method.runs
        for score in scores[method.label]
    }
    measured = error_versus_reject(pairs, qualities, [fmr], replicates=REPLICATES)[fmr]
    curves = {
        key: reject_result(key, measured.by[key], measured, fmr, unit=pairs.unit) for key in measured.by
    }

    def number(run: SavedResult, score: str | None, column: str) -> MeasuredValue | None:
        return None if score is None else curve_number(curves[_key(run, score)], column)

    rows = [row for method in methods for row in rows_of(method, scores[method.label], COLUMNS, number)]
    by = [
        QualityCurve(
            method=method.label, score=score, fnmr=[curves[_key(run, score)].fnmr for run in method.runs]
        )
        for method in methods
        for score in scores[method.label]
    ]
    oracle, shown = curves["oracle"], embedder.shown(first)
    note = (
        f"FNMR at FMR {fmr:g} while a share of the genuine pairs, those of lowest quality, is left out. The "
        f"similarities of all {len(pairs.genuine):,} genuine and {pairs.impostors:,} impostor pairs of {name} are "
        f"those of {shown}, and so is the threshold; the rows differ by the quality alone. Lower is better; the best "
        f"there can be is {100 * oracle.area['0.2']:.2f} in pAUC to 20%, and a quality that says nothing stays "
        f"at the number at 0%. {reading(methods, [f'bootstrap over {pairs.unit}'])} {UNTESTED}"
    )
    title = f"Error versus reject on {name}, all qualities on the embedding of {shown}"
    compared = QualityCurves(
        fmr=fmr, embedding=shown, rejected=oracle.rejected, oracle_fnmr=oracle.fnmr, by=by
    )
    return table_of("embedding", title, COLUMNS, rows, note), compared


def _key(run: SavedResult, score: str) -> str:
    return f"{score} of {run.folder}"


def _scores(method: MethodRuns, first: SavedResult, name: str, notes: list[str]) -> list[str]:
    """The method's scores of the same images; none, with a note, where its images are others."""
    prefix = f"verification/{name}/"
    expected = first.content.verification[name].data_sha256
    sections = [section for run in method.runs if (section := run.content.verification.get(name))]
    if len(sections) < len(method.runs):
        return []
    if any(section.data_sha256 != expected for section in sections):
        notes.append(
            f"{name}: {method.label} was measured on other images than {first.place}, so its quality is "
            "not used on that embedding."
        )
        return []
    scores = [score for score in OWN_SCORES if all(prefix + score in run.arrays for run in method.runs)]
    repeated = len(scores) == 2 and all(
        np.array_equal(run.arrays[prefix + scores[0]], run.arrays[prefix + scores[1]]) for run in method.runs
    )
    return scores[:1] if repeated else scores
