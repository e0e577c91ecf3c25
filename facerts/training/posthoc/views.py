"""Versions of each picture that a frozen embedder is shown: the picture as it is, and augmented ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.training.augment import Augmentation, build_augmentation
from facerts.training.recipe import Augmentation as AugmentationSettings

# Where a method compares views and nothing else is asked for.
SEVERAL = 4
# What the recipes of the methods that compare views have.
AUGMENTATION = AugmentationSettings(flip=True, scale=0.15, shift=0.04, rotation=8.0, ladder=0.5)


@dataclass(frozen=True)
class Views:
    """Which versions of each picture are embedded.

    Attributes:
        count: V. The first view is the picture as it is, the others are augmented.
        augmentation: of the others, as recipes have it.
        seed: of the augmentation; view v of picture i depends on (seed, i, v) alone.
    """

    count: int = 1
    augmentation: AugmentationSettings = AUGMENTATION
    seed: int = 0

    @property
    def key(self) -> str:
        """All that the views of a picture depend on beside it; nothing where there is only the picture itself."""
        if self.count == 1:
            return ""
        how = {"views": self.count, "seed": self.seed, **self.augmentation.model_dump(mode="json")}
        return f" {json.dumps(how, sort_keys=True)}"

    def of(self, source: Source) -> Iterator[Source]:
        """The source once for each view.

        Raises:
            MissingExtraError: there are augmented views, and albumentations is not installed.
        """
        yield source
        if self.count > 1:
            augment = build_augmentation(**self.augmentation.model_dump())
            for number in range(1, self.count):
                yield _AugmentedView(source, augment, self.seed, number)


class _AugmentedView(Source):
    """A source whose crops are augmented."""

    def __init__(self, source: Source, augment: Augmentation, seed: int, number: int) -> None:
        self.name = f"{source.name}, view {number + 1}"
        self.labels, self.identities = source.labels, source.identities
        self._source = source
        self._augment = augment
        self._seed, self._number = seed, number

    def __len__(self) -> int:
        return len(self._source)

    def key(self, index: int) -> str:
        return self._source.key(index)

    def location(self, index: int) -> str:
        return self._source.location(index)

    def read(self, index: int) -> bytes:
        return self._source.read(index)

    def crop(self, index: int) -> NDArray[np.uint8]:
        # As in training, where the epoch is a part of the key; these views are of no epoch.
        return self._augment(self._source.crop(index), (self._seed, 0, index, self._number))
