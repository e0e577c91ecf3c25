"""Error versus reject of several methods: each on its own embedding, all on one, and as areas of quality leagues."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facerts.errors import DataError
from facerts.evaluation.compare.method_runs import (
    OWN_SCORES,
    UNTESTED,
    MethodRuns,
    reading,
    rows_of,
    runs_of,
    sections_of,
    table_of,
)
from facerts.evaluation.labeled import Measured, SavedResult, by_cosine, quality_of
from facerts.evaluation.rejection import FMR, REPLICATES, reject_result
from facerts.evaluation.results.comparison_result import ComparisonTable, QualityCurve, QualityCurves
from facerts.evaluation.results.fiqa_result import FiqaEnd, FiqaSection
from facerts.evaluation.results.reject_result import AreaEnd, PairSet, RejectResult
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.verification import reachable

# Columns: shares rejected, and the ends of areas.
REJECTED = {"0%": 0.0, "5%": 0.05, "10%": 0.1, "20%": 0.2}
AREAS: dict[str, AreaEnd] = {"pAUC to 20%": "0.2", "pAUC to 95%": "0.95"}
COLUMNS = (*REJECTED, *AREAS)
LEAGUE_END: FiqaEnd = "0.3"
BOUND = "oracle"


def reject_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """FNMR by the share rejected and the areas, of the benchmarks' pairs and of all pairs."""
    kinds: tuple[PairSet, ...] = ("benchmark", "all")
    return [
        _table(methods, name, pairs, having[0])
        for name in sections_of(methods, lambda result: result.reject)
        for pairs in kinds
        if (having := [curve for run in runs_of(methods) for curve in _curves(run, name, pairs)])
    ]


def curve_number(curve: RejectResult, column: str) -> Measured:
    """A column's number of a curve."""
    if column in AREAS:
        end = AREAS[column]
        return Measured(curve.area[end], None if curve.ci95 is None else curve.ci95[end])
    place = curve.index_at(REJECTED[column])
    ends = curve.fnmr_ci95
    return Measured(curve.fnmr[place], None if ends is None else (ends[0][place], ends[1][place]))


def _table(methods: Sequence[MethodRuns], name: str, pairs: PairSet, first: RejectResult) -> ComparisonTable:
    def measure(run: SavedResult, score: str | None, column: str) -> Measured | None:
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

    def number(run: SavedResult, score: str | None, column: str) -> Measured | None:
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


def fiqa_tables(methods: Sequence[MethodRuns]) -> list[ComparisonTable]:
    """A table for each set of faces: areas to 30% by quality, a column for each false match rate."""
    return [
        _league_table(methods, name, first)
        for name, first in sections_of(methods, lambda result: result.fiqa).items()
        if first.areas
    ]


def _league_table(methods: Sequence[MethodRuns], name: str, first: FiqaSection) -> ComparisonTable:
    having = [method for method in methods if any(name in run.content.fiqa for run in method.runs)]
    fmrs = sorted({entry.fmr for entry in first.areas}, reverse=True)
    columns = {f"area at FMR {fmr:g}": fmr for fmr in fmrs}

    def measure(run: SavedResult, score: str | None, column: str) -> Measured | None:
        section = run.content.fiqa.get(name)
        means = {} if section is None else section.areas_of(columns[column]).get(None, {})
        entry = means.get(score or "")
        if entry is None or (area := entry.area[LEAGUE_END]) is None:
            return None
        return Measured(area, entry.ci95 and entry.ci95[LEAGUE_END])

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
