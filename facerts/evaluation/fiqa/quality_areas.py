"""Error versus reject of all qualities on all recognizers, as entries of a result."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.evaluation.results.fiqa_result import (
    FiqaArea,
    FiqaAreas,
    FiqaConsistency,
    FiqaIntervals,
    FiqaOperatingPoint,
)
from facerts.io.progress import track
from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.error_versus_reject import (
    ORACLE,
    RATES,
    ErrorVersusReject,
    RejectCurve,
    error_versus_reject,
)
from facerts.metrics.intervals import Estimate, mean_estimate
from facerts.metrics.rank_consistency import rank_consistency

END = 0.3
NAMES = {0.2: "0.2", 0.3: "0.3"}

ByEnd = Mapping[float, Estimate]


@dataclass(frozen=True)
class MeasuredAreas:
    """Entries of a result.

    Attributes:
        curves: ``(E, 96)`` FNMR at ``RATES`` of the entries on a recognizer, in their order; NaN where no pair
            is left.
        consistency: agreement of the recognizers by false match rate; empty for a single one.
    """

    entries: list[FiqaArea]
    curves: NDArray[np.float32]
    points: dict[str, dict[str, FiqaOperatingPoint]]
    consistency: dict[str, FiqaConsistency]


def measure_areas(
    pairs: Mapping[str, ComparedPairs],
    qualities: Mapping[str, Mapping[str, NDArray[np.floating]]],
    fmrs: Sequence[float],
    against: str,
    *,
    replicates: int,
    seed: int,
    thresholds_on: Mapping[str, ComparedPairs] | None = None,
) -> MeasuredAreas:
    """Measure every quality on every recognizer.

    Args:
        qualities: ``(N,)`` qualities by recognizer and label, higher is better; a recognizer's own are among them.
        thresholds_on: pairs of other images of the same people that determine the thresholds.
    """
    tables = {
        recognizer: error_versus_reject(
            pairs[recognizer],
            qualities[recognizer],
            fmrs,
            replicates=replicates,
            seed=seed,
            thresholds_on=None if thresholds_on is None else thresholds_on[recognizer],
        )
        for recognizer in track(list(pairs), "rejecting pairs", unit="recognizers")
    }
    entries, curves = [], []
    for recognizer, by_fmr in tables.items():
        for fmr, table in by_fmr.items():
            reference = table.by[against].area if against in table.by else None
            for label, curve in table.by.items():
                entries.append(_entry(label, recognizer, fmr, curve.area, reference))
                curves.append(curve.fnmr)
    points = {
        name: {_rate(fmr): _point(table) for fmr, table in by_fmr.items()} for name, by_fmr in tables.items()
    }
    several = fmrs if len(pairs) > 1 else ()
    means = list(_means(tables, several, against))
    consistency = {
        _rate(fmr): _consistency({name: by_fmr[fmr] for name, by_fmr in tables.items()}) for fmr in several
    }
    stored = np.array(curves, dtype=np.float32).reshape(-1, len(RATES))
    return MeasuredAreas(
        [*entries, *means], stored, points, {fmr: value for fmr, value in consistency.items() if value}
    )


def _means(
    tables: Mapping[str, Mapping[float, ErrorVersusReject]], fmrs: Sequence[float], against: str
) -> Iterator[FiqaArea]:
    """Means over the recognizers, of the qualities that all of them have."""
    for fmr in fmrs:
        first, *others = (by_fmr[fmr].by for by_fmr in tables.values())
        curves = {
            label: [curve, *(by[label] for by in others)]
            for label, curve in first.items()
            if all(label in by for by in others)
        }
        areas = {label: _mean(each) for label, each in curves.items()}
        for label, area in areas.items():
            yield _entry(label, None, fmr, area, areas.get(against))


def _mean(curves: Sequence[RejectCurve]) -> ByEnd:
    return {end: mean_estimate([curve.area[end] for curve in curves]) for end in NAMES}


def _entry(label: str, recognizer: str | None, fmr: float, areas: ByEnd, reference: ByEnd | None) -> FiqaArea:
    differences = None if reference is None else {end: areas[end].minus(reference[end]) for end in NAMES}
    return FiqaArea(
        quality=label,
        recognizer=recognizer,
        fmr=fmr,
        area=_values(areas),
        ci95=_intervals(areas),
        difference=None if differences is None else _values(differences),
        difference_ci95=None if differences is None else _intervals(differences),
    )


def _values(estimates: ByEnd) -> FiqaAreas:
    return {name: _finite(estimates[end].value) for end, name in NAMES.items()}  # type: ignore[return-value]


def _intervals(estimates: ByEnd) -> FiqaIntervals:
    return {name: estimates[end].interval() for end, name in NAMES.items()}  # type: ignore[return-value]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _point(table: ErrorVersusReject) -> FiqaOperatingPoint:
    return FiqaOperatingPoint(
        threshold=table.threshold,
        impostors_accepted=table.accepted,
        fnmr=table.fnmr.value,
        ci95=table.fnmr.interval(),
    )


def _consistency(tables: Mapping[str, ErrorVersusReject]) -> FiqaConsistency | None:
    """Agreement of the recognizers on the order of the qualities; None where it is undefined."""
    areas = {
        name: {label: curve.area[END] for label, curve in table.by.items() if label != ORACLE}
        for name, table in tables.items()
    }
    taus, mean_tau = rank_consistency(areas)
    if not math.isfinite(mean_tau.value):
        return None
    return FiqaConsistency(
        mean=mean_tau.value,
        ci95=mean_tau.interval(),
        pairs={f"{first} / {second}": tau for (first, second), tau in taus.items() if math.isfinite(tau)},
    )


def _rate(fmr: float) -> str:
    return f"{fmr:g}"
