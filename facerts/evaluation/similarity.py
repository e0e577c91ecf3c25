"""Similarity measures of pairs of images, and the pairs of a benchmark, compared by them.

Whatever measures pairs asks a ``Similarity`` for their scores, and for all that depends on it: how an image's mirror
joins it, and whether pairs can be had that are not listed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark, subjects_of_pairs
from facerts.embedding.embed import AnyEmbedder
from facerts.embedding.embedding_table import EmbeddingTable
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import Error, ModelError
from facerts.io.progress import progress_bar
from facerts.metrics.all_pairs import AllPairs, all_pairs
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.likelihood import fused_gaussian, mutual_likelihood
from facerts.metrics.verification import Scores, check_fmr, pair_cosine

VARIANCE = "variance"


@dataclass(frozen=True)
class Similarity:
    """A way to compare two images; higher is more alike.

    Attributes:
        of_pairs: outputs of N images and ``(P, 2)`` row numbers to ``(P,) float64``.
        of_directions: it needs the unit embeddings alone, so that one matrix product gives all pairs, and pooled
            embeddings can be compared like any others.
        wrapped: a model, and whether mirrors are wanted, to a model that adds them itself; None where the embeddings
            of the crop and of its mirror are added, as ``embed_source`` does.
    """

    name: str
    words: str
    of_pairs: Callable[[FaceOutputs, NDArray[np.integer]], Scores]
    suffix: str = ""
    of_directions: bool = True
    wrapped: Callable[[Embedder, bool], Embedder] | None = None

    def title(self, benchmark: str) -> str:
        """The name under which a benchmark's results stand."""
        return f"{benchmark}{self.suffix}"

    def ready(self, embedder: AnyEmbedder, flip: bool) -> tuple[AnyEmbedder, bool]:
        """The embedder to use, and whether ``embed_source`` should add mirror images; tables are returned unchanged."""
        if self.wrapped is None or isinstance(embedder, EmbeddingTable):
            return embedder, flip
        return self.wrapped(embedder, flip), False


class GaussianEmbedder:
    """A model with variances, whose crops and mirrors are fused by them if ``flip``; else outputs are only checked.

    The two views' Gaussians are multiplied (``metrics.likelihood.fused_gaussian``); the mean is brought back to unit
    length, that of the embeddings which the variances were learned for. Norm, quality, uncertainty and other extras
    are those of the crop.
    """

    def __init__(self, embedder: Embedder, flip: bool) -> None:
        self.name = embedder.name
        self.method = embedder.method
        self.sha256 = embedder.sha256
        self._embedder = embedder
        self._flip = flip
        inner = getattr(embedder, "identity", None)
        self.identity = None if inner is None else f"Gaussians, flip {flip}: {inner}"

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Embed aligned crops ``(N, 112, 112, 3) uint8`` RGB."""
        outputs = self._embedder(crops)
        variance = variance_of(outputs)
        if not self._flip:
            return outputs
        mirrored = self._embedder(np.ascontiguousarray(crops[:, :, ::-1]))
        mean, fused = fused_gaussian(
            np.stack([outputs.embedding, mirrored.embedding]), np.stack([variance, variance_of(mirrored)])
        )
        # Opposite means of one variance fuse to nothing; they keep the zero rather than become NaN.
        length = np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        extras = {**outputs.extras, VARIANCE: fused.astype(np.float32)}
        return replace(outputs, embedding=(mean / length).astype(np.float32), extras=extras)


def variance_of(outputs: FaceOutputs) -> NDArray[np.float32]:
    """``(N, d)`` variances of the embeddings' entries."""
    if VARIANCE not in outputs.extras:
        raise ModelError(
            "mls compares Gaussians, but the embeddings come without a variance, which PFE models output; "
            "compare by the cosine"
        )
    variance = outputs.extras[VARIANCE]
    if variance.shape != outputs.embedding.shape:
        raise ModelError(
            f"mls needs a variance for each entry of the embedding, {outputs.embedding.shape}, and the variance is "
            f"{variance.shape}; compare by the cosine"
        )
    wrong = np.argwhere(~(np.isfinite(variance) & (variance > 0)))
    if len(wrong):
        row, entry = wrong[0]
        raise ModelError(
            f"mls needs finite variances above 0, and entry {entry} of image {row} has "
            f"{variance[row, entry]:g}; compare by the cosine"
        )
    return variance


def _cosine(outputs: FaceOutputs, pairs: NDArray[np.integer]) -> Scores:
    return pair_cosine(outputs.embedding, pairs)


def _mls(outputs: FaceOutputs, pairs: NDArray[np.integer]) -> Scores:
    return mutual_likelihood(outputs.embedding, variance_of(outputs), pairs)


COSINE = Similarity("cosine", "cosine similarity", _cosine)
MLS = Similarity("mls", "mutual likelihood score", _mls, suffix=" (mls)", of_directions=False, wrapped=GaussianEmbedder)
SIMILARITIES = {similarity.name: similarity for similarity in (COSINE, MLS)}


def compare_benchmark(scores: Scores, benchmark: PairBenchmark) -> ComparedPairs:
    """The pairs that a benchmark lists, with their similarities ``(P,)``; people are resampled if they are known."""
    people = None if subjects_of_pairs(benchmark) is None else benchmark.images.labels
    return compare_listed(scores, benchmark.same, benchmark.pairs, people)


def compare_images(
    name: str,
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    compare: Callable[..., AllPairs] = all_pairs,
) -> AllPairs:
    """Compare all pairs of the images of a set with this name, and show the progress."""
    total = len(people) * (len(people) - 1) // 2
    with progress_bar() as bar:
        task = bar.add_task(f"all pairs of {name}", total=total, unit="pairs")
        try:
            pairs = compare(embedding, people, progress=lambda done: bar.advance(task, done))
        except ValueError as error:
            raise Error(f"{name}: {error}") from error
        bar.update(task, completed=total)
    return pairs


def check_fmrs(fmrs: Sequence[float], impostors: int, name: str, way_out: str = "") -> None:
    """Refuse false match rates that cannot be measured on the benchmark of this name."""
    for fmr in fmrs:
        try:
            check_fmr(fmr, impostors)
        except ValueError as error:
            raise Error(f"{name}: {error}{way_out}") from error
