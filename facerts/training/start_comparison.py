"""Whether a trained network tells held-out people apart better than the weights that it started from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.metrics.all_pairs import compare_all, tar_estimates
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.training.init_weights import init_weights
from facerts.training.recipe import Recipe

# The lowest of these at which so many impostor pairs match.
FMRS, MIN_FALSE_MATCHES = (1e-3, 1e-2, 1e-1), 10
# A bootstrap over fewer people says nothing.
MIN_PEOPLE = 5
REPLICATES = 1000


@dataclass(frozen=True)
class StartComparison:
    """FNMR of a network and of its start, on all pairs of the same images.

    Attributes:
        before: FNMR of the initial weights, at a threshold of their own.
        after: FNMR of the trained network.
        ci95: 95% bootstrap interval, over people, of ``after − before``.
    """

    start: str
    people: int
    images: int
    fmr: float
    before: float
    after: float
    ci95: Interval

    @property
    def better(self) -> bool:
        """Whether the trained network is clearly better."""
        return self.ci95[1] < 0 and self.people >= MIN_PEOPLE

    @property
    def told_nothing(self) -> bool:
        """Whether the difference is the same whoever is drawn, so that its interval says nothing."""
        return self.ci95[0] == self.ci95[1]

    @property
    def verdict(self) -> str:
        """What was found, in one sentence."""
        low, high = self.ci95
        interval = "" if self.told_nothing else f" [{low:+.4f}, {high:+.4f}]"
        measured = (
            f"at FMR {self.fmr:g} it misses {self.after:.4f} of the pairs of one person, {self.start} "
            f"{self.before:.4f} (difference {self.after - self.before:+.4f}{interval}), on "
            f"{self.people} held-out people ({self.images} images)"
        )
        if self.told_nothing:
            advice = f"use {self.start}, or more people"
            return f"not clearly better than {self.start}: {measured}, too few to tell; {advice}"
        if self.better:
            return f"better than {self.start}: {measured}"
        if low > 0:
            return f"worse than {self.start}: {measured}; use {self.start}"
        return f"not clearly better than {self.start}: {measured}; use {self.start}, or more people"


def compare_with_start(recipe: Recipe, source: Source, trained: Embedder) -> StartComparison | None:
    """Compare a network with the weights that its recipe starts from; None if there are too few pairs."""
    weights = recipe.backbone.weights
    assert weights is not None
    loss = recipe.build_loss()
    network = recipe.build_network(loss)
    init_weights(weights, network, loss, None)
    before, after = (
        embed_source(embedder, source, flip=False, progress=False).embedding
        for embedder in (NetworkEmbedder(network), trained)
    )
    return compare_embeddings(weights, source, before, after)


def compare_embeddings(
    start: str, source: Source, before: NDArray[np.floating], after: NDArray[np.floating]
) -> StartComparison | None:
    """Compare two embeddings ``(N, d)`` of the images of a source; None if there are too few pairs."""
    assert source.labels is not None
    try:
        pairs = [compare_all(embedding, source.labels) for embedding in (before, after)]
    except ValueError:  # no two people, or none with two images
        return None
    fmr = next((fmr for fmr in FMRS if fmr * pairs[0].impostors >= MIN_FALSE_MATCHES), None)
    if fmr is None:
        return None
    old, new = (tar_estimates(each, [fmr], replicates=REPLICATES)[fmr] for each in pairs)
    # FNMR is 1 − TAR, so its difference is that of TAR, exchanged.
    ci95 = percentile_interval(old.minus(new).replicates)
    people = len(np.unique(source.labels))
    return StartComparison(start, people, len(source), fmr, 1 - old.value, 1 - new.value, ci95)
