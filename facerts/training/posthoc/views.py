"""Views of each image for a frozen embedder: the original, and augmented ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.changed import ChangedCrops
from facerts.training.augment import Augmenter, build_augmentation
from facerts.training.recipe import Augmentation

# Number of views by default, for methods that compare views.
DEFAULT_VIEWS = 4
# As in the recipes of the methods that compare views.
AUGMENTATION = Augmentation(flip=True, scale=0.15, shift=0.04, rotation=8.0, corruption=0.5)


@dataclass(frozen=True)
class Views:
    """The views of each image to embed.

    Attributes:
        count: V. The first view is the original image, the others are augmented.
        augmentation: augmentation of the others, as in recipes.
        seed: seed of the augmentation; view v of image i depends only on (seed, i, v).
    """

    count: int = 1
    augmentation: Augmentation = AUGMENTATION
    seed: int = 0

    @property
    def key(self) -> str:
        """Everything that the views depend on besides the images; empty if there are only the originals."""
        if self.count == 1:
            return ""
        settings = {"views": self.count, "seed": self.seed, **self.augmentation.model_dump(mode="json")}
        return f" {json.dumps(settings, sort_keys=True)}"

    def of(self, source: Source) -> Iterator[Source]:
        """Yield the source once for each view.

        Raises:
            MissingExtraError: there are augmented views, but albumentations is not installed.
        """
        yield source
        if self.count > 1:
            augment = build_augmentation(**self.augmentation.model_dump())
            for number in range(1, self.count):
                yield _augmented(source, augment, self.seed, number)


def _augmented(source: Source, augment: Augmenter, seed: int, number: int) -> Source:
    """A source with augmented crops."""

    def change(crop: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        # Keyed as in training; there are no epochs here, so the epoch is 0.
        return augment(crop, (seed, 0, index, number))

    return ChangedCrops(source, f"view {number + 1}", change)
