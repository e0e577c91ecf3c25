"""Validation during training, with the same code as evaluation.

Networks are validated by verification; those without embedding by how well their quality predicts the errors of their
teachers on the same faces.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from facerts.datasets import PairBenchmark, Source, open_benchmark, open_source, pairs_from_identities
from facerts.embedding import OnnxEmbedder
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.errors import DataError
from facerts.evaluation.while_training import NetworkEmbedder, measure_pairs
from facerts.io.console import warn
from facerts.metrics.all_pairs import AllPairs, compare_all, tar_estimates
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.training.init_weights import init_weights
from facerts.training.recipe import Recipe, Validation
from facerts.training.teachers import open_teachers

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
            teachers = open_teachers(recipe.teacher.models)
            self._errors = [TeachersErrors(source, teachers) for source in sources]
            self._benchmarks: list[PairBenchmark] = []
            self.names = [errors.name for errors in self._errors]
            return
        self._benchmarks = [
            pairs_from_identities(source, genuine=settings.pairs, impostors=settings.pairs, seed=recipe.seed)
            for source in sources
        ]
        self._benchmarks += [
            open_benchmark(path) for path in settings.benchmarks if ("validation.benchmarks", path) not in absent
        ]
        self.names = [benchmark.name for benchmark in self._benchmarks]

    def measure(self, embedder: Embedder) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the name of each set with its accuracy, AUROC, EER and FNMR at each FMR, or the area of each teacher.

        Prints a warning if all pairs have the same similarity.
        """
        for errors in self._errors:
            yield errors.name, errors.measure(embedder)
        for benchmark in self._benchmarks:
            yield benchmark.name, measure_pairs(embedder, benchmark, flip=self._flip)


def lowest_fmr(pairs: AllPairs, matches: float) -> float | None:
    """The lowest of ``FMRS`` at which so many impostor pairs match; None if there are too few pairs."""
    return next((fmr for fmr in FMRS if fmr * pairs.impostors >= matches), None)


def heldout_paths(settings: Validation) -> list[str]:
    """The sources of held-out identities that exist."""
    absent = absent_sets(settings)
    return [path for path in settings.heldout if ("validation.heldout", path) not in absent]


def absent_sets(settings: Validation) -> list[tuple[str, str]]:
    """The validation sets that do not exist: the recipe's key and the path of each."""
    heldout = [
        ("validation.heldout", path) for path in settings.heldout if not (os.path.lexists(path) or glob.glob(path))
    ]
    benchmarks = [("validation.benchmarks", path) for path in settings.benchmarks if not os.path.lexists(path)]
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

    def __init__(self, source: Source, teachers: Sequence[OnnxEmbedder]) -> None:
        if source.labels is None:
            raise DataError(f"{source.name}: pairs need identities, and this source has none")
        self.name, self._source = source.name, source
        self._pairs = {}
        for embedder in teachers:
            embedding = embed_source(embedder, source, flip=False).embedding
            try:
                pairs = self._pairs[embedder.name] = compare_all(embedding, source.labels)
            except ValueError as error:
                raise DataError(f"{source.name}: {error}") from error
            if lowest_fmr(pairs, 1) is None:
                raise DataError(f"{source.name}: has only {pairs.impostors} pairs of two people; hold out more people")

    def measure(self, embedder: Embedder) -> dict[str, float]:
        """The area (``pauc``) for each teacher, and their mean: 1 for a random order, lower is better."""
        quality = embed_source(embedder, self._source, flip=False, progress=False).quality
        assert quality is not None
        areas = {}
        for name, pairs in self._pairs.items():
            fmr = lowest_fmr(pairs, 1) or max(FMRS)
            curves = error_versus_reject(pairs, {"quality": quality}, [fmr], replicates=0)[fmr]
            areas[f"area_{name}"] = curves.by["quality"].area[REJECTED].value
        return {"area": float(np.mean(list(areas.values()))), **areas}


def compare_with_start(recipe: Recipe, source: Source, trained: Embedder) -> str:
    """Whether a network is better than the weights that its recipe starts from, in one sentence.

    Their FNMRs are those of all pairs of the same images, each at a threshold of its own.
    """
    start, labels = recipe.backbone.weights, source.labels
    assert start is not None
    assert labels is not None
    loss = recipe.build_loss()
    network = recipe.build_network(loss)
    init_weights(start, network, loss, None)
    embeddings = [
        embed_source(embedder, source, flip=False, progress=False).embedding
        for embedder in (NetworkEmbedder(network), trained)
    ]
    try:
        pairs = [compare_all(embedding, labels) for embedding in embeddings]
    except ValueError:  # no two people, or none with two images
        pairs = []
    fmr = lowest_fmr(pairs[0], MIN_FALSE_MATCHES) if pairs else None
    if fmr is None:
        return (
            f"{source.name} has too few pairs to tell whether this model is better than {start}: use {start}, or more "
            "people"
        )
    before, after = (tar_estimates(each, [fmr], replicates=REPLICATES)[fmr] for each in pairs)
    # FNMR is 1 − TAR, so its difference is that of TAR, exchanged.
    ci95 = percentile_interval(before.minus(after).replicates)
    people = len(np.unique(labels))
    return start_verdict(start, people, len(source), fmr, 1 - before.value, 1 - after.value, ci95)


def start_verdict(start: str, people: int, images: int, fmr: float, before: float, after: float, ci95: Interval) -> str:
    """What the FNMR ``before`` and ``after`` training say, with the interval over people of their difference."""
    low, high = ci95
    # Whoever is drawn, the difference is the same.
    few = low == high
    interval = "" if few else f" [{low:+.4f}, {high:+.4f}]"
    measured = (
        f"{start}: at FMR {fmr:g} it misses {after:.4f} of the pairs of one person, {start} {before:.4f} (difference "
        f"{after - before:+.4f}{interval}), on {people} held-out people ({images} images)"
    )
    if few:
        return f"not clearly better than {measured}, too few to tell; hold out more, or use {start}"
    if high < 0 and people >= MIN_PEOPLE:
        return f"better than {measured}"
    if low > 0:
        return f"worse than {measured}; use {start}"
    return f"not clearly better than {measured}; with more people it may be; until then, use {start}"
