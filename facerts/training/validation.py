"""Validation during training, with the same code as evaluation.

Networks are validated by verification; those without embedding by how well their quality predicts the errors of their
teachers on the same faces.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import PairBenchmark, Source, open_benchmark, open_source, pairs_from_identities
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.errors import DataError
from facerts.evaluation.while_training import NetworkEmbedder, measure_pairs
from facerts.io.console import warn
from facerts.metrics.all_pairs import compare_all, tar_estimates
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.training.init_weights import init_weights
from facerts.training.recipe import Recipe, Validation
from facerts.training.teachers import TeacherEnsemble

# FMRs of thresholds: the lowest at which enough impostor pairs match.
FMRS = (1e-3, 1e-2, 1e-1)
# Share of the pairs that are rejected at most.
REJECTED = 0.3
# For the comparison with the initial weights; a bootstrap over fewer people says nothing.
MIN_FALSE_MATCHES, MIN_PEOPLE, REPLICATES = 10, 5, 1000


class Validator:
    """Verification on held-out identities and on benchmarks, or how well a quality predicts the teachers' errors there.

    Sets that do not exist are left out: recipes name sets that not everybody has.
    """

    def __init__(self, recipe: Recipe, heldout: Source | None, *, warns: bool = True) -> None:
        settings = recipe.validation
        absent = absent_sets(settings)
        for key, path in absent if warns else ():
            warn(f"{key}: {path} does not exist, so nothing is measured on it")
        sources = [] if heldout is None else [heldout]
        if paths := heldout_paths(settings):
            sources.append(open_source(paths))
        self.heldout = sources
        self._flip = settings.flip
        self._errors = []
        if not recipe.backbone.embedding:
            assert recipe.teacher is not None
            teachers = TeacherEnsemble(recipe.teacher.models)
            self._errors = [TeachersErrors(source, teachers) for source in sources]
            self._benchmarks: list[PairBenchmark] = []
            self.names = [errors.name for errors in self._errors]
            return
        self._benchmarks = [
            pairs_from_identities(source, genuine=settings.pairs, impostors=settings.pairs, seed=recipe.seed)
            for source in sources
        ]
        self._benchmarks += [
            open_benchmark(path)
            for path in settings.benchmarks
            if ("validation.benchmarks", path) not in absent
        ]
        self.names = [benchmark.name for benchmark in self._benchmarks]

    def measure(self, embedder: Embedder) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the name of each set with its accuracy, AUROC, EER and TAR at each FAR, or the area of each teacher.

        Prints a warning if all pairs have the same similarity.
        """
        for errors in self._errors:
            yield errors.name, errors.measure(embedder)
        for benchmark in self._benchmarks:
            yield benchmark.name, measure_pairs(embedder, benchmark, flip=self._flip)


def heldout_paths(settings: Validation) -> list[str]:
    """The sources of held-out identities that exist."""
    absent = absent_sets(settings)
    return [path for path in settings.heldout if ("validation.heldout", path) not in absent]


def absent_sets(settings: Validation) -> list[tuple[str, str]]:
    """The validation sets that do not exist: the recipe's key and the path of each."""
    heldout = [
        ("validation.heldout", path)
        for path in settings.heldout
        if not (os.path.lexists(path) or glob.glob(path))
    ]
    benchmarks = [
        ("validation.benchmarks", path) for path in settings.benchmarks if not os.path.lexists(path)
    ]
    return heldout + benchmarks


def require_sets(settings: Validation, keys: Collection[str]) -> None:
    """Check that the validation sets exist which somebody has asked for by the recipe's keys.

    These are "validation.heldout", "validation.benchmarks", or "validation" for both; others are ignored.
    """
    for key, path in absent_sets(settings):
        if key in keys or "validation" in keys:
            raise DataError(f"{key}: {path}: no such file or folder; correct the path, or leave it out")


class TeachersErrors:
    """How well a quality orders the teachers' errors on held-out identities: areas below error versus reject."""

    def __init__(self, source: Source, teachers: TeacherEnsemble) -> None:
        if source.labels is None:
            raise DataError(f"{source.name}: pairs need identities, and this source has none")
        self.name, self._source = source.name, source
        self._pairs = {}
        for embedder in teachers.embedders:
            embedding = embed_source(embedder, source, flip=False).embedding
            try:
                self._pairs[embedder.name] = compare_all(embedding, source.labels)
            except ValueError as error:
                raise DataError(f"{source.name}: {error}") from error

    def measure(self, embedder: Embedder) -> dict[str, float]:
        """The area for each teacher, and their mean: 1 for a random order, lower is better; see ``metrics.pauc``."""
        quality = embed_source(embedder, self._source, flip=False, progress=False).quality
        assert quality is not None
        areas = {}
        for name, pairs in self._pairs.items():
            fmr = next(fmr for fmr in FMRS if fmr * pairs.impostors >= 1)
            curves = error_versus_reject(pairs, {"quality": quality}, [fmr], replicates=0)[fmr]
            areas[f"area_{name}"] = curves.by["quality"].area[REJECTED].value
        return {"area": float(np.mean(list(areas.values()))), **areas}


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
