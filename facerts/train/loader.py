"""Training images in batches: the same batches whatever the number of workers and wherever a run resumes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from facerts.data import Source, open_source
from facerts.data.augment import Augmentation, build_augmentation
from facerts.data.sampler import epoch_order, hold_out_identities
from facerts.errors import DataError, Error
from facerts.image import CROP_SIZE
from facerts.train.recipe import Recipe

# (epoch, index): an image, and the key of its augmentation.
Key = tuple[int, int]


class TrainingData:
    """The recipe's training images.

    Attributes:
        identities: C.
        heldout: the identities that the recipe keeps out, or None.
    """

    def __init__(self, recipe: Recipe) -> None:
        source = open_source(recipe.data.train)
        if source.labels is None:
            raise DataError(
                f"{source.name} has no identities, which training needs; give a folder by identity, "
                "a record directory or tar shards"
            )
        self.heldout: Source | None = None
        if recipe.data.holdout_identities:
            source, self.heldout = hold_out_identities(source, recipe.data.holdout_identities, recipe.seed)
        self.identities = len(source.identities)
        if self.identities < 2:
            raise DataError(f"{source.name} has only one identity; there is nothing to tell apart")
        if len(source) < recipe.optim.batch_size:
            raise DataError(
                f"{source.name} has {len(source)} images, fewer than one batch of {recipe.optim.batch_size}; "
                "lower optim.batch_size"
            )
        self._source = source
        self._recipe = recipe

    def __len__(self) -> int:
        return len(self._source)

    def batches(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """The batches of steps ``start`` to ``stop − 1``.

        Yields:
            crops ``(B, 112, 112, 3) uint8`` RGB, labels ``(B,) int64``, data set indices ``(B,) int64``.
        """
        recipe = self._recipe
        loader = DataLoader(
            CropDataset(
                self._source, build_augmentation(**recipe.data.augmentation.model_dump()), recipe.seed
            ),
            batch_sampler=StepSampler(len(self), recipe.optim.batch_size, recipe.seed, start, stop),
            num_workers=recipe.data.workers,
            # Its own, or starting it would draw from the generator that a resumed run has just restored.
            generator=torch.Generator(),
            collate_fn=_as_is,
            worker_init_fn=_one_thread,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if recipe.data.workers else None,
        )
        for batch in loader:
            if isinstance(batch, Error):
                raise DataError(f"{batch}; `facerts data pack` leaves such pictures out") from batch
            yield batch


class StepSampler(Sampler[list[Key]]):
    """The keys of each step's images; an epoch's last images that do not fill a batch are left out."""

    def __init__(self, images: int, batch_size: int, seed: int, start: int, stop: int) -> None:
        self._images = images
        self._batch_size = batch_size
        self._seed = seed
        self._steps = range(start, stop)

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[Key]]:
        per_epoch = self._images // self._batch_size
        order, ordered = np.empty(0, dtype=np.int64), -1
        for step in self._steps:
            epoch, position = divmod(step, per_epoch)
            if epoch != ordered:
                order, ordered = epoch_order(self._images, self._seed, epoch), epoch
            first = position * self._batch_size
            yield [(epoch, int(index)) for index in order[first : first + self._batch_size]]


class CropDataset(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Decoded, augmented crops, a whole batch at a time."""

    def __init__(self, source: Source, augment: Augmentation, seed: int) -> None:
        self._source = source
        self._augment = augment
        self._seed = seed

    def __getitems__(self, keys: list[Key]) -> tuple[Tensor, Tensor, Tensor] | Error:
        """A batch, or why there is none: raised in a worker, an error would arrive as a traceback's text."""
        try:
            return self._batch(keys)
        except Error as error:
            return error

    def _batch(self, keys: list[Key]) -> tuple[Tensor, Tensor, Tensor]:
        crops = np.empty((len(keys), CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
        for row, (epoch, index) in enumerate(keys):
            crops[row] = self._augment(self._source.crop(index), (self._seed, epoch, index))
        indices = np.array([index for _, index in keys], dtype=np.int64)
        assert self._source.labels is not None
        labels = self._source.labels[indices]
        return torch.from_numpy(crops), torch.from_numpy(labels), torch.from_numpy(indices)


def _as_is(batch: Any) -> Any:
    """The data set already gives whole batches."""
    return batch


def _one_thread(_: int) -> None:
    """Workers share the cores; OpenCV's own threads in each would only get in each other's way."""
    cv2.setNumThreads(0)
