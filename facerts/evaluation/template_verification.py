"""Embeddings on a benchmark of templates: how they are pooled, and verification (1:1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.template_benchmark import TemplateBenchmark
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.pair_verification import point, rate_name
from facerts.evaluation.results.verification_result import VerificationResult
from facerts.evaluation.similarity import COSINE
from facerts.metrics.pair_intervals import verification_intervals
from facerts.metrics.pooling import pool, ranked_weights
from facerts.metrics.verification import pair_cosine, reachable, roc

POOLINGS = ("mean", "quality", "inverse_variance", "norm")


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

    Args:
        outputs: outputs for the benchmark's images, in order.
        fars: false accept rates; those that the impostor pairs cannot show are left out.
        flip: whether mirrors were added; None where that is not known.
        replicates: number of replicates of the bootstrap over pairs; see ``verification_intervals``.
    """
    same = benchmark.same
    genuine = int(same.sum())
    if not 0 < genuine < len(same):
        raise DataError(
            f"{benchmark.name}: verification needs genuine and impostor pairs of templates, "
            f"but there are {genuine} and {len(same) - genuine}"
        )
    return {
        name: _section(templates, benchmark, fars, flip, replicates)
        for name, templates in pooled(outputs, benchmark).items()
    }


def _section(
    templates: NDArray[np.float32],
    benchmark: TemplateBenchmark,
    fars: Sequence[float],
    flip: bool | None,
    replicates: int | None,
) -> VerificationResult:
    scores = pair_cosine(templates, benchmark.pairs).astype(np.float32)
    curve = roc(scores, benchmark.same)
    targets = reachable(fars, curve.impostors)
    intervals = verification_intervals(scores, benchmark.same, targets, replicates=replicates)
    return VerificationResult(
        pairs=len(scores),
        genuine=curve.genuine,
        impostors=curve.impostors,
        images=len(benchmark.images),
        templates=len(templates),
        subjects=None,
        flip=flip,
        similarity=COSINE.name,
        accuracy=None,
        auroc=curve.auroc(),
        eer=curve.eer(),
        tar_at_far={
            rate_name(far): point(curve.tar_at_far(far), intervals.tar_at_far[far]) for far in targets
        },
        interval="bootstrap over pairs",
        notes=list(benchmark.notes),
    )
