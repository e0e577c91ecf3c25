"""Error versus reject of an embedder on a verification benchmark, by each score that there is of an image."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark, subjects_of_pairs
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error, ModelError
from facerts.evaluation.image_scores import image_scores
from facerts.evaluation.results.reject import (
    Areas,
    Convention,
    PairSet,
    RejectResult,
    ReliabilityResult,
    ReliabilitySection,
)
from facerts.evaluation.similarity import COSINE, Similarity
from facerts.metrics.all_pairs import AllPairs, resampled_thresholds
from facerts.metrics.calibration import reliability, spearman
from facerts.metrics.reject import (
    Combine,
    RejectCurve,
    error_versus_reject,
    oracle_quality,
    pair_quality,
    partial_area,
    random_area,
    reject_curve,
    reject_intervals,
    resampled_fmr_limits,
)
from facerts.metrics.verification import fmr_threshold, reachable

AREAS = (0.2, 0.95)
FMR = 1e-3
REPLICATES = 300


def reject_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    fmr: float = FMR,
    combine: Combine = "min",
    similarity: Similarity = COSINE,
    every: AllPairs | None = None,
    rows: NDArray[np.integer] | None = None,
) -> list[RejectResult]:
    """Curves by every score: on the benchmark's pairs with both conventions, and on every pair with a fixed threshold.

    Args:
        outputs: outputs for the benchmark's images.
        benchmark: the pairs.
        fmr: false match rate at which the threshold is chosen.
        combine: how the quality of a pair follows from those of its images.
        similarity: similarity measure of the pairs.
        every: all pairs of its images, where they are to be measured too; compared by the cosine.
        rows: the images that ``every`` is of.

    Returns:
        The section ``reject[NAME]`` of a result.

    Raises:
        ModelError: there is no score of an image, or not what the similarity needs.
        Error: the scores cannot be combined so, or there are too few impostor pairs for the rate.
    """
    named = image_scores(outputs)
    if not named:
        raise ModelError(
            "this model outputs neither a quality nor a norm, so it has no score to reject pairs by"
        )
    scores, same = similarity.of_pairs(outputs, benchmark.pairs), benchmark.same
    check_fmr(fmr, int((~same).sum()), benchmark.name)
    subjects = subjects_of_pairs(benchmark)
    limits = list(resampled_fmr_limits(scores, same, subjects, fmr, replicates=REPLICATES))
    unit = "pairs" if subjects is None else "subjects"
    curves = []
    for by, of_image in named.items():
        quality = _pair_quality(by, of_image, benchmark.pairs, combine)
        fixed = error_versus_reject(scores, same, quality, fmr=fmr, convention="fixed")
        anew = error_versus_reject(scores, same, quality, fmr=fmr, convention="per_rate")
        accepted = int((scores[~same] >= fixed.threshold[0]).sum())
        ranking = _Ranking(by, similarity.name, "benchmark", combine, fmr)
        curves.append(_curve(ranking, fixed, accepted, scores[same], convention="fixed"))
        _add_intervals(curves[-1], scores[same], quality[same], limits, unit)
        curves.append(_curve(ranking, anew, accepted, scores[same], convention="per_rate"))
    if every is not None and rows is not None:
        curves += _of_every_pair(named, every, rows, fmr, combine)
    return curves


def check_fmr(fmr: float, impostors: int, name: str) -> None:
    """Refuse a false match rate that cannot be measured with this number of impostor pairs.

    Raises:
        Error: the rate is invalid, or there are too few impostor pairs.
    """
    if not 0 < fmr < 1:
        raise Error(f"{name}: {fmr:g} is not a valid FMR; it must be between 0 and 1")
    if not reachable([fmr], impostors):
        raise Error(
            f"{name}: FMR {fmr:g} needs at least {int(np.ceil(1 / fmr)):,} impostor pairs, and there are "
            f"{impostors:,}; choose a higher rate"
        )


def calibration_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    fmr: float = FMR,
    combine: Combine = "min",
    similarity: Similarity = COSINE,
) -> ReliabilitySection:
    """Does quality predict error? The section ``calibration[NAME]`` of a result.

    Of the genuine pairs: Spearman's correlation of quality with similarity, and FNMR in ten bins of equal numbers by
    quality, at one threshold.
    """
    scores, same = similarity.of_pairs(outputs, benchmark.pairs), benchmark.same
    threshold = fmr_threshold(scores[~same], fmr)
    genuine = scores[same]
    by = {}
    for name, of_image in image_scores(outputs).items():
        quality = _pair_quality(name, of_image, benchmark.pairs[same], combine)
        bins = reliability(quality, genuine < threshold)
        by[name] = ReliabilityResult(
            spearman=spearman(quality, genuine),
            quality=bins.quality.tolist(),
            fnmr=bins.error.tolist(),
            low=bins.low.tolist(),
            high=bins.high.tolist(),
            pairs=bins.pairs.tolist(),
        )
    return ReliabilitySection(
        similarity=similarity.name,
        fmr=fmr,
        threshold=threshold,
        genuine=len(genuine),
        combine=combine,
        by=by,
    )


@dataclass(frozen=True)
class _Ranking:
    """Which pairs a curve is of, and in which order they are rejected."""

    by: str
    similarity: str
    pairs: PairSet
    combine: Combine
    fmr: float


def _of_every_pair(
    named: Mapping[str, NDArray[np.float32]],
    every: AllPairs,
    rows: NDArray[np.integer],
    fmr: float,
    combine: Combine,
) -> list[RejectResult]:
    threshold = every.threshold(fmr)
    inside = fmr * every.impostors < len(every.tail)
    drawn = resampled_thresholds(every, [fmr], replicates=REPLICATES)
    limits = [(limit[0], weights) for limit, weights in drawn] if inside else []
    genuine = every.genuine.astype(np.float64)
    curves = []
    for by, of_image in named.items():
        quality = _pair_quality(by, of_image[rows], every.genuine_pairs, combine)
        curve = reject_curve(genuine, quality, threshold, every.impostors)
        ranking = _Ranking(by, COSINE.name, "all", combine, fmr)
        curves.append(_curve(ranking, curve, every.accepted(threshold), genuine, convention="fixed"))
        if limits:
            _add_intervals(curves[-1], genuine, quality, limits, "subjects")
    return curves


def _curve(
    ranking: _Ranking,
    curve: RejectCurve,
    accepted: int,
    genuine: NDArray[np.float64],
    *,
    convention: Convention,
) -> RejectResult:
    best = reject_curve(
        genuine, oracle_quality(genuine, np.ones(len(genuine))), float(curve.threshold[0]), curve.impostors
    )
    return RejectResult(
        by=ranking.by,
        similarity=ranking.similarity,
        pairs=ranking.pairs,
        combine=ranking.combine,
        fmr=ranking.fmr,
        genuine=len(genuine),
        impostors=curve.impostors,
        impostors_accepted=accepted,
        threshold=float(curve.threshold[0]),
        rejected=curve.rejected.tolist(),
        fnmr=curve.fnmr.tolist(),
        oracle_fnmr=best.fnmr.tolist(),
        area=areas_of(curve),
        random_area=random_area(curve),
        oracle_area=areas_of(best),
        convention=convention,
    )


def areas_of(curve: RejectCurve) -> Areas:
    """Means of a curve's FNMR, as results have them."""
    return {"0.2": partial_area(curve, 0.2), "0.95": partial_area(curve, 0.95)}


def _add_intervals(
    curve: RejectResult,
    genuine: NDArray[np.float64],
    quality: NDArray[np.float64],
    limits: Iterable[tuple[float, NDArray[np.float32]]],
    unit: str,
) -> None:
    found = reject_intervals(genuine, quality, limits, ends=AREAS)
    curve.ci95 = {"0.2": found.area[0.2], "0.95": found.area[0.95]}
    curve.fnmr_ci95 = found.low.tolist(), found.high.tolist()
    curve.interval = f"bootstrap over {unit}"


def _pair_quality(
    by: str, of_image: NDArray[np.float32], pairs: NDArray[np.integer], combine: Combine
) -> NDArray[np.float64]:
    try:
        return pair_quality(of_image, pairs, combine)
    except ValueError as error:
        raise Error(f"{by}: {error}") from error
