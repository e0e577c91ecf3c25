"""Error versus reject of an embedder on a verification benchmark, by each score that there is of an image."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error, ModelError
from facerts.evaluation.baselines import image_scores
from facerts.evaluation.results.reject_result import (
    Areas,
    PairSet,
    RejectResult,
    ReliabilityResult,
    ReliabilitySection,
)
from facerts.evaluation.similarity import COSINE, Similarity, compare_benchmark
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.error_versus_reject import (
    ORACLE,
    RATES,
    ErrorVersusReject,
    RejectCurve,
    error_versus_reject,
    pair_quality,
)
from facerts.metrics.error_versus_reject import check_fmr as refuse_fmr
from facerts.metrics.reliability import reliability, spearman
from facerts.metrics.verification import fmr_threshold

FMR = 1e-3
REPLICATES = 300
# Bins by quality, and the fewest genuine pairs of each.
BINS, IN_BIN = 10, 20


def reject_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    fmr: float = FMR,
    similarity: Similarity = COSINE,
    every: AllPairs | None = None,
    rows: NDArray[np.integer] | None = None,
) -> list[RejectResult]:
    """Curves by every score, on the benchmark's pairs and on every pair: the section ``reject[NAME]`` of a result.

    The threshold is chosen at ``fmr``. ``every`` are all pairs of its images, where they are to be measured too;
    compared by the cosine.
    """
    scores = image_scores(outputs)
    if not scores:
        raise ModelError(
            "this model outputs neither a quality nor a norm, so it has no score to reject pairs by"
        )
    listed = compare_benchmark(similarity.of_pairs(outputs, benchmark.pairs), benchmark)
    check_fmr(fmr, listed.impostors, benchmark.name)
    measured = error_versus_reject(listed, scores, [fmr], replicates=REPLICATES)[fmr]
    curves = [
        reject_result(by, measured.by[by], measured, fmr, similarity=similarity.name, unit=listed.unit)
        for by in scores
    ]
    if every is not None and rows is not None:
        of_rows = {by: values[rows] for by, values in scores.items()}
        measured = error_versus_reject(every, of_rows, [fmr], replicates=REPLICATES)[fmr]
        curves += [
            reject_result(by, measured.by[by], measured, fmr, pairs="all", unit=every.unit) for by in scores
        ]
    return curves


def reject_result(
    by: str,
    curve: RejectCurve,
    measured: ErrorVersusReject,
    fmr: float,
    *,
    similarity: str = COSINE.name,
    pairs: PairSet = "benchmark",
    unit: str,
) -> RejectResult:
    """A curve as results have it; ``measured`` is of a threshold chosen at the false match rate ``fmr``."""
    ci95 = {end: curve.pauc[end].interval() for end in (0.2, 0.95)}
    low, high = ci95[0.2], ci95[0.95]
    return RejectResult(
        by=by,
        similarity=similarity,
        pairs=pairs,
        fmr=fmr,
        genuine=measured.genuine,
        impostors=measured.impostors,
        impostors_accepted=measured.accepted,
        threshold=measured.threshold,
        rejected=list(RATES),
        fnmr=curve.fnmr.tolist(),
        oracle_fnmr=measured.by[ORACLE].fnmr.tolist(),
        area=_areas(curve),
        random_area=measured.fnmr.value,
        oracle_area=_areas(measured.by[ORACLE]),
        ci95=None if low is None or high is None else {"0.2": low, "0.95": high},
        fnmr_ci95=None if curve.ci95 is None else (curve.ci95[0].tolist(), curve.ci95[1].tolist()),
        interval=None if curve.ci95 is None else f"bootstrap over {unit}",
    )


def check_fmr(fmr: float, impostors: int, name: str) -> None:
    """Refuse a false match rate that cannot be measured on the benchmark of this name."""
    try:
        refuse_fmr(fmr, impostors)
    except ValueError as error:
        raise Error(f"{name}: {error}") from error


def calibration_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    fmr: float = FMR,
    similarity: Similarity = COSINE,
) -> ReliabilitySection:
    """Does quality predict error? The section ``calibration[NAME]`` of a result.

    Of the genuine pairs: Spearman's correlation of quality with similarity, and FNMR in ten bins of equal numbers by
    quality, at one threshold; in fewer where a bin would have less than 20 pairs.
    """
    scores, same = similarity.of_pairs(outputs, benchmark.pairs), benchmark.same
    threshold = fmr_threshold(scores[~same], fmr)
    genuine = scores[same]
    by = {}
    for name, of_image in image_scores(outputs).items():
        quality = pair_quality(of_image, benchmark.pairs[same])
        bins = reliability(quality, genuine < threshold, int(np.clip(len(genuine) // IN_BIN, 2, BINS)))
        by[name] = ReliabilityResult(
            spearman=spearman(quality, genuine),
            quality=bins.quality.tolist(),
            fnmr=bins.error.tolist(),
            low=bins.low.tolist(),
            high=bins.high.tolist(),
            pairs=bins.pairs.tolist(),
        )
    return ReliabilitySection(
        similarity=similarity.name, fmr=fmr, threshold=threshold, genuine=len(genuine), by=by
    )


def _areas(curve: RejectCurve) -> Areas:
    return {"0.2": curve.pauc[0.2].value, "0.95": curve.pauc[0.95].value}
