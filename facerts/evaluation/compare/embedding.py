"""Error versus reject of several methods' qualities on one embedding: Fig. 8 of the RTS paper.

Similarities and the threshold are one model's, so that the curves differ by the quality alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.compare.methods import MeasuredValue, MethodRuns
from facerts.evaluation.compare.reject import COLUMNS, curve_number
from facerts.evaluation.compare.table import OWN_SCORES, UNTESTED, Measure, reading, rows_of, table_of
from facerts.evaluation.labeled import SavedResult, by_cosine, quality_of
from facerts.evaluation.reject import AREAS, FMR, REPLICATES, areas_of
from facerts.evaluation.results.comparison import ComparisonTable, QualityCurve, QualityCurves
from facerts.evaluation.results.reject import AreaIntervals, Areas
from facerts.metrics.reject import (
    Combine,
    error_versus_reject,
    oracle_quality,
    pair_quality,
    reject_intervals,
    resampled_fmr_limits,
)
from facerts.metrics.resample import pair_subjects
from facerts.metrics.verification import reachable


@dataclass
class OneCurve:
    """A curve of error versus reject on the chosen embedding.

    Attributes:
        rejected: shares of the genuine pairs.
        fnmr: for each of them.
        area: mean FNMR.
        ci95: intervals of the areas; None where several runs say how far they differ.
        fnmr_ci95: intervals of the FNMR, likewise.
    """

    rejected: list[float]
    fnmr: list[float]
    area: Areas
    ci95: AreaIntervals | None = None
    fnmr_ci95: tuple[list[float], list[float]] | None = None


def chosen(methods: Sequence[MethodRuns], label: str | None) -> MethodRuns:
    """The method whose embedding is used: the first, where no label is given.

    Raises:
        DataError: there is none of that label.
    """
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

    Args:
        methods: methods with the qualities.
        embedder: method with the embedding; the first of several runs is used.
        notes: list to which notes on missing measurements are added.

    Returns:
        The tables, and the curves by benchmark.
    """
    first = embedder.runs[0]
    tables, curves = [], {}
    for name, section in first.content.verification.items():
        listed = f"verification/{name}/scores" in first.arrays
        if not listed or not by_cosine(section):
            continue
        pairs = _Pairs(first, name)
        if not reachable([pairs.fmr], pairs.impostors):
            notes.append(
                f"{name}: FMR {pairs.fmr:g} needs at least {int(np.ceil(1 / pairs.fmr)):,} impostor pairs, and there "
                f"are {pairs.impostors:,}, so no qualities are compared on one embedding."
            )
            continue
        table, curves[name] = _measure(methods, embedder, pairs, notes)
        tables.append(table)
    return tables, curves


class _Pairs:
    """Pairs, similarities and threshold of one result's benchmark.

    Attributes:
        name: name of the benchmark.
        fmr: rate of its section on error versus reject, or 0.001 if it has none.
        combine: likewise; "min" where it has none.
        genuine: how many pairs.
        impostors: how many pairs.
    """

    def __init__(self, first: SavedResult, name: str) -> None:
        self.first, self.name = first, name
        prefix = f"verification/{name}/"
        self.similarity, self.same, self.rows = (
            first.array(prefix + key) for key in ("scores", "same", "pairs")
        )
        curves = first.content.reject.get(name)
        self.fmr: float = curves[0].fmr if curves else FMR
        self.combine: Combine = curves[0].combine if curves else "min"
        self.genuine, self.impostors = int(self.same.sum()), int((~self.same).sum())
        self._subjects = pair_subjects(first.arrays.get(prefix + "subjects"), self.rows)
        self.interval = f"bootstrap over {'pairs' if self._subjects is None else 'subjects'}"
        self._limits: list[tuple[float, NDArray[np.float32]]] = []

    def curve(self, quality: NDArray[np.floating]) -> OneCurve:
        """Of a quality of each pair."""
        found = error_versus_reject(self.similarity, self.same, quality, fmr=self.fmr)
        return OneCurve(found.rejected.tolist(), found.fnmr.tolist(), areas_of(found))

    def quality(self, run: SavedResult, score: str) -> NDArray[np.float64]:
        """``(P,)`` of each pair."""
        return pair_quality(quality_of(run, self.first, self.name, score), self.rows, self.combine)

    def add_intervals(self, curve: OneCurve, quality: NDArray[np.floating]) -> None:
        """Measure a curve's intervals; those of all curves come from the same replicates."""
        if not self._limits:
            limits = resampled_fmr_limits(
                self.similarity, self.same, self._subjects, self.fmr, replicates=REPLICATES
            )
            self._limits = list(limits)
        found = reject_intervals(self.similarity[self.same], quality[self.same], self._limits, ends=AREAS)
        curve.ci95 = {"0.2": found.area[0.2], "0.95": found.area[0.95]}
        curve.fnmr_ci95 = found.low.tolist(), found.high.tolist()

    def oracle(self) -> OneCurve:
        """The best there can be."""
        return self.curve(oracle_quality(self.similarity, self.same))


def _measure(
    methods: Sequence[MethodRuns], embedder: MethodRuns, pairs: _Pairs, notes: list[str]
) -> tuple[ComparisonTable, QualityCurves]:
    rows, by = [], []
    for method in methods:
        curves: dict[tuple[Path, str], OneCurve] = {}
        scores = _scores(method, pairs, notes)
        for run in method.runs:
            for score in scores:
                quality = pairs.quality(run, score)
                curve = curves[run.folder, score] = pairs.curve(quality)
                # The interval of one run says nothing of how runs differ; several have their range.
                if len(method.runs) == 1:
                    pairs.add_intervals(curve, quality)
        rows += rows_of(method, scores, COLUMNS, _number_of(curves))
        by += [
            QualityCurve(
                method=method.label,
                score=score,
                fnmr=[curves[run.folder, score].fnmr for run in method.runs],
            )
            for score in scores
        ]
    oracle, shown = pairs.oracle(), embedder.shown(pairs.first)
    note = (
        f"FNMR at FMR {pairs.fmr:g} while a share of the genuine pairs, those of lowest quality, is left out. The "
        f"similarities of all {pairs.genuine:,} genuine and {pairs.impostors:,} impostor pairs of {pairs.name} are "
        f"those of {shown}, and so is the threshold; the rows differ by the quality alone. Lower is better; the best "
        f"there can be is {100 * oracle.area['0.2']:.2f} in the mean to 20 %, and a quality that says nothing stays "
        f"at the number at 0 %. {reading(methods, [pairs.interval])} {UNTESTED}"
    )
    title = f"Error versus reject on {pairs.name}, all qualities on the embedding of {shown}"
    compared = QualityCurves(
        fmr=pairs.fmr,
        combine=pairs.combine,
        embedding=shown,
        rejected=oracle.rejected,
        oracle_fnmr=oracle.fnmr,
        by=by,
    )
    return table_of("embedding", title, COLUMNS, rows, note), compared


def _number_of(curves: dict[tuple[Path, str], OneCurve]) -> Measure:
    def number(run: SavedResult, score: str | None, column: str) -> MeasuredValue | None:
        return None if score is None else curve_number(curves[run.folder, score], column)

    return number


def _scores(method: MethodRuns, pairs: _Pairs, notes: list[str]) -> list[str]:
    """The method's scores of the same images; none, with a note, where its images are others."""
    prefix = f"verification/{pairs.name}/"
    expected = pairs.first.content.verification[pairs.name].data_sha256
    sections = [section for run in method.runs if (section := run.content.verification.get(pairs.name))]
    if len(sections) < len(method.runs):
        return []
    if any(section.data_sha256 != expected for section in sections):
        notes.append(
            f"{pairs.name}: {method.label} was measured on other images than {pairs.first.place}, so its quality is "
            "not used on that embedding."
        )
        return []
    found = [score for score in OWN_SCORES if all(prefix + score in run.arrays for run in method.runs)]
    repeated = len(found) == 2 and all(
        np.array_equal(run.arrays[prefix + found[0]], run.arrays[prefix + found[1]]) for run in method.runs
    )
    return found[:1] if repeated else found
