"""Error versus reject of several methods, each method's quality on its own embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from facerts.evaluation.compare.methods import Method, Told
from facerts.evaluation.compare.table import (
    OWN_SCORES,
    UNTESTED,
    Table,
    reading,
    rows_of,
    runs_of,
    sections_of,
)
from facerts.evaluation.labeled import Saved

# Columns: shares rejected, and the ends of areas.
REJECTED = {"0 %": 0.0, "5 %": 0.05, "10 %": 0.1, "20 %": 0.2}
AREAS = {"mean to 20 %": "0.2", "mean to 95 %": "0.95"}
COLUMNS = (*REJECTED, *AREAS)


def reject_tables(methods: Sequence[Method]) -> list[Table]:
    """FNMR by the share rejected and the areas, of the benchmarks' pairs and of all pairs."""
    return [
        _table(methods, name, pairs, having[0])
        for name in sections_of(methods, "reject")
        for pairs in ("benchmark", "all")
        if (having := [curve for run in runs_of(methods) for curve in _curves(run, name, pairs)])
    ]


def curve_number(curve: dict[str, Any], column: str) -> Told:
    """A column's number of a curve, which is as results have it."""
    if column in AREAS:
        end = AREAS[column]
        return curve["area"][end], curve.get("ci95", {}).get(end)
    place = int(np.argmin(np.abs(np.array(curve["rejected"]) - REJECTED[column])))
    ends = curve.get("fnmr_ci95")
    return curve["fnmr"][place], None if ends is None else (ends[0][place], ends[1][place])


def _table(methods: Sequence[Method], name: str, pairs: str, first: dict[str, Any]) -> Table:
    def measure(run: Saved, score: str | None, column: str) -> Told | None:
        of_score = [curve for curve in _curves(run, name, pairs) if curve["by"] == score]
        return curve_number(of_score[0], column) if of_score else None

    rows = []
    for method in methods:
        found = {curve["by"] for run in method.runs for curve in _curves(run, name, pairs)}
        scores = [score for score in OWN_SCORES if score in found]
        rows += rows_of(method, scores, COLUMNS, measure)
    every = pairs == "all"
    note = (
        f"FNMR at FMR {first['fmr']:g} while a share of the genuine pairs, those of lowest quality, is left out, on "
        f"{'every pair of its pictures' if every else 'its pairs'}: {first['genuine']:,} genuine pairs. Each method "
        f"has similarities and a threshold of its own, chosen once on {first['impostors']:,} impostor pairs, of which "
        f"{first['impostors_accepted']:,} pass. Lower is better. {reading(methods, _intervals(first))} {UNTESTED}"
    )
    title = (
        f"Error versus reject on {name}{', all pairs' if every else ''}, each quality on its own embedding"
    )
    return Table("reject", title, COLUMNS, rows, note)


def _intervals(curve: dict[str, Any]) -> list[str]:
    return [curve["interval"]] if "interval" in curve else []


def _curves(run: Saved, name: str, pairs: str) -> list[dict[str, Any]]:
    """Those with a fixed threshold, by the model's own scores."""
    return [
        curve
        for curve in run.content.get("reject", {}).get(name, [])
        if curve["convention"] == "fixed" and curve["pairs"] == pairs and curve["by"] in OWN_SCORES
    ]
