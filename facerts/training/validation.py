"""Validation during training, with the same code as evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from facerts.benchmarks import open_benchmark, pairs_from_identities
from facerts.datasets import Source, open_source
from facerts.embedding.outputs import Embedder
from facerts.evaluation import evaluate_verification
from facerts.training.recipe import Recipe


class Validator:
    """Verification on held-out identities and on benchmarks.

    Args:
        recipe: its ``validation`` section names the sets.
        heldout: images of the identities that the recipe holds out of its training data, or None.
    """

    def __init__(self, recipe: Recipe, heldout: Source | None) -> None:
        settings = recipe.validation
        sources = [] if heldout is None else [heldout]
        if settings.heldout:
            sources.append(open_source(settings.heldout))
        self._flip = settings.flip
        self._benchmarks = [
            pairs_from_identities(source, genuine=settings.pairs, impostors=settings.pairs, seed=recipe.seed)
            for source in sources
        ]
        self._benchmarks += [open_benchmark(path) for path in settings.benchmarks]

    def measure(self, embedder: Embedder) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield the name of each set with its accuracy, AUROC, EER and TAR at each FAR."""
        for benchmark in self._benchmarks:
            section, _ = evaluate_verification(embedder, benchmark, flip=self._flip)
            assert section.accuracy is not None  # pairs have folds; templates alone have none
            yield (
                benchmark.name,
                {
                    "accuracy": section.accuracy.value,
                    "auroc": section.auroc,
                    "eer": section.eer,
                    **{f"tar_at_far_{far}": point.value for far, point in section.tar_at_far.items()},
                },
            )
