"""Validation during training, with the same code as evaluation.

Networks are validated by verification; those without embedding by how well their quality predicts the errors of their
teachers on the same faces.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator

import numpy as np

from facerts.benchmarks import PairBenchmark, open_benchmark, pairs_from_identities
from facerts.datasets import Source, open_source
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.errors import DataError
from facerts.evaluation.while_training import measure_pairs
from facerts.io.console import warn
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.training.distillation.teachers import TeacherEnsemble
from facerts.training.recipe import Recipe, Validation

# Of the teachers' thresholds, and of the pairs that are rejected at most.
FMRS, REJECTED = (1e-3, 1e-2, 1e-1), 0.3


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
