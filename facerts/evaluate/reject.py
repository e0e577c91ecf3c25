"""Error versus reject of an embedder on a verification benchmark, by each score that it has of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark
from facerts.embedder.outputs import FaceOutputs
from facerts.errors import ModelError
from facerts.evaluate.result import Arrays
from facerts.metrics.intervals import bootstrap
from facerts.metrics.reject import (
    Convention,
    RejectCurve,
    error_versus_reject,
    oracle_quality,
    pair_quality,
    partial_area,
    random_area,
)
from facerts.metrics.verification import pair_cosine

AREAS = (0.2, 0.95)
CONVENTIONS: tuple[Convention, ...] = ("fixed", "per_rate")


def image_scores(outputs: FaceOutputs) -> dict[str, NDArray[np.float32]]:
    """The scores of a picture that higher-is-better rankings can use, by name; equal ones once."""
    scores = {}
    if outputs.quality is not None:
        scores["quality"] = outputs.quality
    if outputs.norm is not None and not (
        outputs.quality is not None and np.array_equal(outputs.norm, outputs.quality)
    ):
        scores["norm"] = outputs.norm
    return scores


def reject_of(
    outputs: FaceOutputs, benchmark: PairBenchmark, *, fmr: float = 1e-3
) -> tuple[list[dict[str, Any]], Arrays]:
    """Curves by every score and with both conventions.

    Returns:
        The section ``reject[NAME]`` of a result, and its arrays.

    Raises:
        ModelError: the model has no score of a picture.
    """
    named = image_scores(outputs)
    if not named:
        raise ModelError("this model gives neither quality nor norm, so there is nothing to reject by")
    scores, same = pair_cosine(outputs.embedding, benchmark.pairs), benchmark.same
    curves = []
    for by, of_image in named.items():
        quality = pair_quality(of_image, benchmark.pairs)
        for convention in CONVENTIONS:
            curves.append(_entry(by, convention, scores, same, quality, fmr))
    return curves, {}


def _entry(
    by: str,
    convention: Convention,
    scores: NDArray[np.float64],
    same: NDArray[np.bool_],
    quality: NDArray[np.float64],
    fmr: float,
) -> dict[str, Any]:
    curve = error_versus_reject(scores, same, quality, fmr=fmr, convention=convention)
    oracle = error_versus_reject(scores, same, oracle_quality(scores, same), fmr=fmr, convention="fixed")
    entry: dict[str, Any] = {
        "by": by,
        "convention": convention,
        "pairs": "benchmark",
        "fmr": fmr,
        "genuine": int(same.sum()),
        "impostors": curve.impostors,
        "impostors_accepted": int((scores[~same] >= curve.threshold[0]).sum()),
        "threshold": float(curve.threshold[0]),
        "rejected": curve.rejected.tolist(),
        "fnmr": curve.fnmr.tolist(),
        "oracle_fnmr": oracle.fnmr.tolist(),
        "area": {f"{end:g}": partial_area(curve, end) for end in AREAS},
        "random_area": random_area(curve),
        "oracle_area": {f"{end:g}": partial_area(oracle, end) for end in AREAS},
    }
    if convention == "fixed":
        entry["ci95"] = _intervals(scores, same, quality, fmr)
    return entry


def _intervals(
    scores: NDArray[np.float64], same: NDArray[np.bool_], quality: NDArray[np.float64], fmr: float
) -> dict[str, list[float]]:
    """Of the areas, resampling genuine and impostor pairs."""
    rows = np.flatnonzero(same), np.flatnonzero(~same)

    def area(end: float, rates: tuple[float, ...]) -> list[float]:
        def resampled(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
            drawn = np.concatenate([rows[0][first], rows[1][second]])
            curve: RejectCurve = error_versus_reject(
                scores[drawn], same[drawn], quality[drawn], fmr=fmr, rates=rates
            )
            return partial_area(curve, end)

        return list(bootstrap(resampled, (len(rows[0]), len(rows[1])), replicates=300))

    return {f"{end:g}": area(end, tuple(np.linspace(0, end, 21).tolist())) for end in AREAS}
