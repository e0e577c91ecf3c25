"""Verification: the pairs of images that a benchmark lists, every pair of its images, and pairs of templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark, subjects_of_pairs
from facerts.datasets.template_benchmark import TemplateBenchmark
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import DataError, Error
from facerts.evaluation.baselines import image_arrays
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.results.verification_result import (
    AccuracyResult,
    AllPairsResult,
    TarAtFar,
    VerificationIntervals,
    VerificationResult,
)
from facerts.evaluation.similarity import COSINE, Similarity
from facerts.metrics.all_pairs import EDGES, AllPairs, far_intervals
from facerts.metrics.intervals import Interval
from facerts.metrics.pair_intervals import PairIntervals, share_interval, verification_intervals
from facerts.metrics.pooling import pool, ranked_weights
from facerts.metrics.verification import ROC, OperatingPoint, pair_cosine, reachable, roc, ten_fold_accuracy

FARS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# Points of a curve that are kept for drawing.
POINTS = 2000
DRAWN_BINS = 128
POOLINGS = ("mean", "quality", "inverse_variance", "norm")


def evaluate_verification(
    embedder: Embedder,
    benchmark: PairBenchmark,
    *,
    flip: bool = True,
    progress: bool = True,
) -> tuple[VerificationResult, Arrays]:
    """Embed a benchmark's images and measure: the section ``verification[NAME]`` of a result, and its arrays."""
    outputs = embed_source(embedder, benchmark.images, flip=flip, progress=progress)
    return verification_of(outputs, benchmark, flip=flip)


def verification_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    flip: bool | None,
    fars: Sequence[float] | None = None,
    similarity: Similarity = COSINE,
) -> tuple[VerificationResult, Arrays]:
    """Measure embeddings that are there already; see ``evaluate_verification``.

    Args:
        flip: whether mirrors were added; None where that is not known.
        fars: rates at which TAR is measured; by default those of ``FARS`` for which there are enough impostor pairs.
    """
    scores, same = similarity.of_pairs(outputs, benchmark.pairs), benchmark.same
    labels = benchmark.images.labels
    subjects = subjects_of_pairs(benchmark)
    accuracy = ten_fold_accuracy(scores, same, benchmark.folds)
    _, fold = np.unique(benchmark.folds, return_inverse=True)
    right = (scores >= accuracy.thresholds[fold]) == same
    curve = roc(scores, same)
    rates = wanted_fars(fars, curve.impostors, benchmark.name)
    intervals = verification_intervals(scores, same, rates, subjects=subjects)
    section = _section(
        benchmark,
        curve,
        intervals,
        subjects=None if labels is None else len(np.unique(labels)),
        flip=flip,
        similarity=similarity.name,
        accuracy=AccuracyResult(
            value=accuracy.value,
            fold_std=accuracy.fold_std,
            ci95=share_interval(right, same, subjects=subjects),
        ),
        ci95=VerificationIntervals(auroc=intervals.auroc, eer=intervals.eer),
    )
    arrays: Arrays = {
        "scores": scores.astype(np.float32),
        "same": same,
        "pairs": benchmark.pairs.astype(np.int32),
        "folds": benchmark.folds.astype(np.int8),
        **curve_arrays(curve),
        **image_arrays(outputs, [benchmark.images.key(i) for i in range(len(benchmark.images))]),
    }
    if labels is not None and subjects is not None:
        arrays["subjects"] = labels.astype(np.int32)
    return section, arrays


def all_pairs_of(
    pairs: AllPairs, name: str, fars: Sequence[float] | None = None
) -> tuple[AllPairsResult, Arrays]:
    """Measure every pair of a benchmark's images: ``verification[NAME].all_pairs`` of a result, and its arrays."""
    curve = pairs.roc()
    area, error = pairs.auroc()
    rates = wanted_fars(fars, pairs.impostors, f"all pairs of {name}", every=True)
    intervals = far_intervals(pairs, rates)
    section = AllPairsResult(
        images=len(pairs.people),
        subjects=int(pairs.people.max()) + 1,
        genuine=len(pairs.genuine),
        impostors=pairs.impostors,
        auroc=area,
        auroc_error=error,
        eer=curve.eer(),
        tar_at_far={rate_name(far): point(pairs.tar_at_far(far), intervals.get(far)) for far in rates},
        interval="bootstrap over subjects",
    )
    thin = EDGES[:-1].reshape(DRAWN_BINS, -1)[:, 0]
    genuine, _ = np.histogram(pairs.genuine, np.append(thin, EDGES[-1]))
    arrays: Arrays = {
        **{f"all_{key}": value for key, value in curve_arrays(curve).items()},
        "all_edges": np.append(thin, EDGES[-1]).astype(np.float32),
        "all_genuine": genuine,
        "all_impostors": pairs.counts.reshape(DRAWN_BINS, -1).sum(axis=1),
    }
    return section, arrays


def wanted_fars(
    fars: Sequence[float] | None, impostors: int, name: str, *, every: bool = False
) -> list[float]:
    """The rates to measure at."""
    if fars is None:
        return reachable(FARS, impostors)
    for far in fars:
        if not 0 < far <= 1:
            raise Error(f"{name}: {far:g} is not a valid FAR; it must be above 0 and at most 1")
    for far in sorted(set(fars) - set(reachable(fars, impostors))):
        raise Error(
            f"{name}: FAR {far:g} needs at least {int(np.ceil(1 / far)):,} impostor pairs, and there are "
            f"{impostors:,}; choose a higher rate{'' if every else ', or measure all pairs'}"
        )
    return list(fars)


def point(measured: OperatingPoint, ci95: Interval | None) -> TarAtFar:
    """An operating point as results have it."""
    return TarAtFar(
        value=measured.tar,
        achieved_far=measured.achieved_far,
        threshold=measured.threshold if np.isfinite(measured.threshold) else None,
        impostors_accepted=round(measured.achieved_far * measured.impostors),
        ci95=ci95,
    )


def curve_arrays(curve: ROC) -> Arrays:
    """A curve as results keep it."""
    thin = curve.thinned(POINTS)
    return {"roc_far": thin.far.astype(np.float32), "roc_tar": thin.tar.astype(np.float32)}


def rate_name(rate: float) -> str:
    """A rate as a key of a result: "0.001", "1e-06"."""
    return f"{rate:g}"


def pooled(outputs: FaceOutputs, benchmark: TemplateBenchmark) -> dict[str, NDArray[np.float32]]:
    """The benchmark's templates, ``(T, d)`` of unit length, by each of ``POOLINGS`` that its images' outputs allow.

    Images weigh the same ("mean"), by the rank of their quality, by the inverse of their uncertainty or by the norm
    of their embedding. An uncertainty that is no more than minus the quality is no variance, and neither is
    one that is 0 or less somewhere; a norm must lie above 0 as well. What does not hold is left out, and so
    are all but the mean where templates are single images.
    """
    weights: dict[str, NDArray[np.floating] | None] = {"mean": None}
    if len(benchmark.template) == len(benchmark.template_ids):
        # Every template is a single image, whose weight does not matter.
        outputs = FaceOutputs(outputs.embedding)
    if outputs.quality is not None:
        weights["quality"] = ranked_weights(outputs.quality)
    variance = outputs.uncertainty
    if variance is not None and not (
        outputs.quality is not None and np.array_equal(variance, -outputs.quality)
    ):
        # In float64, where the inverse of the smallest float32 is finite; what is no variance gets no weight.
        weights["inverse_variance"] = 1.0 / np.where(variance > 0, variance, np.inf).astype(np.float64)
    if outputs.norm is not None:
        weights["norm"] = outputs.norm
    return {
        name: pool(
            outputs.embedding,
            benchmark.template,
            media=benchmark.media,
            weights=weights[name],
            templates=len(benchmark.template_ids),
        )
        for name in POOLINGS
        if name in weights and (weights[name] is None or np.all(np.asarray(weights[name]) > 0))
    }


def template_verification_of(
    outputs: FaceOutputs,
    benchmark: TemplateBenchmark,
    fars: Sequence[float],
    *,
    flip: bool | None = None,
    replicates: int | None = None,
) -> dict[str, VerificationResult]:
    """Measure the benchmark's pairs of templates: a section for each pooling.

    Rates that the impostor pairs cannot show are left out; ``flip`` is None where it is not known whether mirrors
    were added, and ``replicates`` are as for ``verification_intervals``.
    """
    same = benchmark.same
    genuine = int(same.sum())
    if not 0 < genuine < len(same):
        raise DataError(
            f"{benchmark.name}: verification needs genuine and impostor pairs of templates, "
            f"but there are {genuine} and {len(same) - genuine}"
        )
    sections = {}
    for name, templates in pooled(outputs, benchmark).items():
        scores = pair_cosine(templates, benchmark.pairs).astype(np.float32)
        curve = roc(scores, same)
        targets = reachable(fars, curve.impostors)
        intervals = verification_intervals(scores, same, targets, replicates=replicates)
        settings = {"flip": flip, "similarity": COSINE.name, "accuracy": None}
        sections[name] = _section(
            benchmark, curve, intervals, templates=len(templates), subjects=None, **settings
        )
    return sections


def _section(
    benchmark: PairBenchmark | TemplateBenchmark, curve: ROC, intervals: PairIntervals, **fields: Any
) -> VerificationResult:
    """What listed pairs tell, whether of images or of templates, with further ``fields``."""
    return VerificationResult(
        pairs=len(benchmark.pairs),
        genuine=curve.genuine,
        impostors=curve.impostors,
        images=len(benchmark.images),
        auroc=curve.auroc(),
        eer=curve.eer(),
        tar_at_far={
            rate_name(far): point(curve.tar_at_far(far), ci95) for far, ci95 in intervals.tar_at_far.items()
        },
        interval=f"bootstrap over {intervals.unit}",
        notes=list(benchmark.notes),
        **fields,
    )
