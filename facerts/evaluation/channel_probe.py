"""Is a recognizer given its channels in the order that it was trained with? A small test on any pairs of images.

Red and blue swapped is the most frequent mistake in the description of a recognizer, and nothing fails: it only tells
people apart less well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pair_benchmark import PairBenchmark
from facerts.datasets.synthetic import draw_face
from facerts.embedding.embed import concatenate, embed_crops
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.evaluation.evaluation_options import Kept
from facerts.evaluation.similarity import COSINE, Similarity
from facerts.metrics.verification import best_threshold

# So many genuine and so many impostor pairs: 256 images at most.
PAIRS = 64
# Standard errors of a paired difference: a network of the right order lies about five below zero.
SIGNIFICANT = 3.0


# Drawn people show the order too, since skin, lips and hair are no blue. Four times as many do not decide it for the
# recognizers that color hardly matters to.
PEOPLE, IMAGES = 48, 4


@dataclass(frozen=True)
class ChannelOrder:
    """How well pairs are separated with the channels as described, and with red and blue swapped.

    Attributes:
        margins: mean margin of the pairs with each order, in standard deviations within the classes.
        accuracies: accuracy at the best threshold of each order.
        gain: what swapping gains in margin, pair by pair, in standard errors.
    """

    pairs: int
    margins: tuple[float, float]
    accuracies: tuple[float, float]
    gain: float

    @property
    def is_right(self) -> bool:
        """Whether the described order is clearly better."""
        return self.gain < -SIGNIFICANT

    @property
    def is_wrong(self) -> bool:
        """Whether the other order is clearly better: by a wider margin, and at no lower accuracy."""
        return self.gain > SIGNIFICANT and self.accuracies[1] >= self.accuracies[0]


def compare_orders(
    described: NDArray[np.float64], swapped: NDArray[np.float64], same: NDArray[np.bool_]
) -> ChannelOrder:
    """Compare the similarities of the same pairs ``(N,)`` with either order."""
    before, after = (_margins(scores, same) for scores in (described, swapped))
    gain = after - before
    accuracies = [float(np.mean((s >= best_threshold(s, same)) == same)) for s in (described, swapped)]
    return ChannelOrder(
        len(same),
        (float(before.mean()), float(after.mean())),
        (accuracies[0], accuracies[1]),
        float(gain.mean() / max(gain.std(ddof=1) / np.sqrt(len(gain)), 1e-12)),
    )


def drawn_channel_order(recognizer: Embedder) -> ChannelOrder:
    """Compare both orders on drawn people."""
    crops = np.stack([draw_face(person, number) for person in range(PEOPLE) for number in range(IMAGES)])
    first, second = np.triu_indices(len(crops), 1)
    genuine = first // IMAGES == second // IMAGES
    rows = np.concatenate([np.flatnonzero(genuine), _spaced(np.flatnonzero(~genuine), int(genuine.sum()))])
    described, swapped = (
        recognizer(images).embedding.astype(np.float64)
        for images in (crops, np.ascontiguousarray(crops[..., ::-1]))
    )
    scores = [np.einsum("nd,nd->n", each[first[rows]], each[second[rows]]) for each in (described, swapped)]
    return compare_orders(scores[0], scores[1], genuine[rows])


def channel_probe(
    embedder: Embedder,
    benchmark: PairBenchmark,
    outputs: FaceOutputs,
    *,
    flip: bool,
    batch_size: int,
    similarity: Similarity = COSINE,
    kept: Kept | None = None,
) -> str | None:
    """Embed some images with red and blue swapped; a sentence where that serves the model better.

    Args:
        benchmark: the benchmark; evenly spaced pairs of it are used.
        outputs: outputs for all its images, with the channels in the given order.
        flip: whether ``outputs`` include mirror images.
        kept: takes the outputs of the swapped images from a cache, see ``options.kept_outputs``; None for no cache.
    """
    rows = np.concatenate([_spaced(np.flatnonzero(benchmark.same == flag), PAIRS) for flag in (True, False)])
    same = benchmark.same[rows]
    images, pairs = np.unique(benchmark.pairs[rows], return_inverse=True)
    pairs = pairs.reshape(-1, 2)

    def compute() -> FaceOutputs:
        parts = []
        for start in range(0, len(images), batch_size):
            crops = np.stack([benchmark.images.crop(int(row)) for row in images[start : start + batch_size]])
            parts.append(embed_crops(embedder, np.ascontiguousarray(crops[..., ::-1]), flip=flip))
        return concatenate(parts)

    swapped = compute() if kept is None else kept(compute, images, what="red and blue swapped")
    given = similarity.of_pairs(outputs.take(images), pairs)
    other = similarity.of_pairs(swapped, pairs)
    order = compare_orders(given, other, same)
    if not order.is_wrong:
        return None
    (before, after), (accuracy, swapped_accuracy) = order.margins, order.accuracies
    return (
        f"With red and blue swapped, {order.pairs} pairs are separated better (mean margin {after:.2f} standard "
        f"deviations instead of {before:.2f}, accuracy {swapped_accuracy:.3f} instead of {accuracy:.3f}): "
        'the model may expect the other channel order; check "color" in its description.'
    )


def _margins(scores: NDArray[np.float64], same: NDArray[np.bool_]) -> NDArray[np.float64]:
    """How far each pair lies on its own side of the middle, in standard deviations within the classes."""
    middle = (scores[same].mean() + scores[~same].mean()) / 2
    spread = np.sqrt((scores[same].var() + scores[~same].var()) / 2)
    return np.asarray(np.where(same, scores - middle, middle - scores) / max(spread, 1e-12))


def _spaced(rows: NDArray[np.intp], count: int) -> NDArray[np.intp]:
    return np.asarray(rows[np.unique(np.linspace(0, len(rows) - 1, count).astype(int))])
