"""Is a recognizer given its channels in the order that it was trained with? A small test on any pairs of images.

Red and blue swapped is the most frequent mistake in the description of a recognizer, and nothing fails: it only tells
people apart less well.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark
from facerts.embedding.embed import concatenate, embed_crops
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.evaluation.evaluation_options import DEFAULT_OPTIONS, EvaluationOptions, kept_outputs
from facerts.evaluation.similarity import COSINE, Similarity
from facerts.metrics.verification import best_threshold

# So many genuine and so many impostor pairs: 256 images at most.
PAIRS = 64
# Standard errors of a paired difference: a network of the right order lies about five below zero.
SIGNIFICANT = 3.0


def channel_probe(
    embedder: Embedder,
    benchmark: PairBenchmark,
    outputs: FaceOutputs,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    flip: bool,
    similarity: Similarity = COSINE,
    sha256: str | None = None,
) -> str | None:
    """Embed some images with red and blue swapped; a sentence where that serves the model better.

    They are of evenly spaced pairs of the benchmark; ``outputs`` are of all its images as they are, with mirrors if
    ``flip``; ``sha256`` is the hash of these, for the cache.
    """
    rows = np.concatenate([_spaced(np.flatnonzero(benchmark.same == flag), PAIRS) for flag in (True, False)])
    same = benchmark.same[rows]
    images, pairs = np.unique(benchmark.pairs[rows], return_inverse=True)
    pairs = pairs.reshape(-1, 2)

    def compute() -> FaceOutputs:
        parts = []
        for start in range(0, len(images), options.batch_size):
            rows = images[start : start + options.batch_size]
            crops = np.stack([benchmark.images.crop(int(row)) for row in rows])
            parts.append(embed_crops(embedder, np.ascontiguousarray(crops[..., ::-1]), flip=flip))
        return concatenate(parts)

    what = "red and blue swapped"
    swapped = kept_outputs(options, embedder, benchmark.images, compute, images, sha256=sha256, flip=flip, what=what)
    given = similarity.of_pairs(outputs.take(images), pairs)
    other = similarity.of_pairs(swapped, pairs)
    before, after = _margins(given, same), _margins(other, same)
    gain = after - before
    error = gain.std(ddof=1) / np.sqrt(len(gain))
    accuracy, swapped_accuracy = (np.mean((s >= best_threshold(s, same)) == same) for s in (given, other))
    if gain.mean() <= SIGNIFICANT * error or swapped_accuracy < accuracy:
        return None
    return (
        f"With red and blue swapped, {len(same)} pairs are separated better (mean margin {after.mean():.2f} standard "
        f"deviations instead of {before.mean():.2f}, accuracy {swapped_accuracy:.3f} instead of {accuracy:.3f}): "
        'the model may expect the other channel order; check "color" in its description.'
    )


def _margins(scores: NDArray[np.float64], same: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far each pair lies on its own side of the middle, in standard deviations within the classes."""
    middle = (scores[same].mean() + scores[~same].mean()) / 2
    spread = np.sqrt((scores[same].var() + scores[~same].var()) / 2)
    return np.asarray(np.where(same, scores - middle, middle - scores) / max(spread, 1e-12))


def _spaced(rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    return np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(int))])
