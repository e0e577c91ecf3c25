"""Training images in batches: the same batches whatever the number of workers and wherever a run resumes."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Sampler

from facerts.datasets import Joined, Source, open_source
from facerts.datasets.sampler import UNLABELED, epoch_order, hold_out_identities, identity_order
from facerts.errors import DataError, Error
from facerts.images import CROP_SIZE
from facerts.training.augment import Augmentation, Corruption, build_augmentation
from facerts.training.distributed.collectives import Processes
from facerts.training.methods import METHODS
from facerts.training.recipe import Recipe

# The label of an image without identity.
UNKNOWN = -1

# (epoch, index, view): an image, and the key of its augmentation.
Key = tuple[int, int, int]


class TrainingData:
    """The recipe's training images.

    Attributes:
        source: the labeled images as they are.
        unlabeled: those without identity, or None.
        identities: C.
        heldout: the identities that the recipe keeps out, or None.
    """

    def __init__(self, recipe: Recipe, processes: Processes | None = None) -> None:
        self._processes = processes or Processes()
        if recipe.optim.batch_size % (self._processes.count * recipe.compute.accumulate):
            raise Error(
                f"optim.batch_size {recipe.optim.batch_size} is the batch of all processes; it must be a multiple of "
                f"their number, {self._processes.count}, and of compute.accumulate, {recipe.compute.accumulate}"
            )
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
        if len(source) < recipe.labeled_size:
            raise DataError(
                f"{source.name} has {len(source)} images, fewer than the {recipe.labeled_size} of one batch; "
                "lower optim.batch_size"
            )
        self.source = source
        self.unlabeled = open_source(recipe.data.unlabeled) if recipe.data.unlabeled else None
        self._images = source if self.unlabeled is None else Joined([source, self.unlabeled])
        # People's numbers, and none for whoever is unknown.
        unknown = np.full(len(self._images) - len(source), UNKNOWN, dtype=np.int64)
        assert source.labels is not None
        self._labels = np.concatenate([source.labels, unknown])
        self._corrupt = Corruption(
            len(self._images),
            fraction=recipe.data.corrupt_fraction,
            radius=recipe.data.corrupt_radius,
            seed=recipe.seed,
        )
        self._recipe = recipe
        self._method = METHODS[recipe.method["name"]]

    def __len__(self) -> int:
        return len(self.source)

    def batches(self, start: int, stop: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """This process's share of the batches of steps ``start`` to ``stop − 1``.

        Yields:
            crops ``(B, 112, 112, 3) uint8`` RGB, labels ``(B,) int64``, data set indices ``(B,) int64``; B is the batch
            size times the method's views, all first views first, divided by the number of processes. Images without
            identity are a batch's last, with the label −1 and indices after those of all labeled images.
        """
        recipe = self._recipe
        by_identity = recipe.data.per_identity if self._method.sampler == "identities" else None
        loader = DataLoader(
            CropDataset(
                self._images,
                self._labels,
                self._corrupt,
                build_augmentation(**recipe.data.augmentation.model_dump()),
                recipe.seed,
            ),
            batch_sampler=StepSampler(
                self._labels[: len(self.source)],
                recipe.labeled_size,
                recipe.seed,
                start,
                stop,
                views=self._method.views,
                per_identity=by_identity,
                share=self._processes.share(recipe.labeled_size),
                unlabeled=(len(self._images) - len(self.source), recipe.unlabeled_size),
            ),
            num_workers=recipe.data.workers,
            # Its own, or starting it would draw from the generator that a resumed run has just restored.
            generator=torch.Generator(),
            collate_fn=_as_is,
            worker_init_fn=_start_worker,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if recipe.data.workers else None,
        )
        for batch in loader:
            if isinstance(batch, Error):
                raise DataError(f"{batch}; `facerts data pack` leaves such pictures out") from batch
            yield batch


class StepSampler(Sampler[list[Key]]):
    """The keys of each step's images; an epoch's last images that do not fill a batch are left out.

    Args:
        labels: ``(N,)`` person of each image.
        batch_size: labeled images of a step.
        seed: of the orders.
        start: first step.
        stop: the step after the last.
        views: of each image.
        per_identity: images of each person in a batch; None draws images whoever they are of.
        share: which of a step's images; None for all.
        unlabeled: how many images without identity there are, numbered after the N, and how many a step has. They come
            in an order of their own, all of them before one comes again.
    """

    def __init__(
        self,
        labels: NDArray[np.int64],
        batch_size: int,
        seed: int,
        start: int,
        stop: int,
        *,
        views: int = 1,
        per_identity: int | None = None,
        share: slice | None = None,
        unlabeled: tuple[int, int] = (0, 0),
    ) -> None:
        self._share = share or slice(None)
        self._unlabeled, self._unlabeled_size = unlabeled
        self._labels = labels
        self._batch_size = batch_size
        self._seed = seed
        self._steps = range(start, stop)
        self._views = views
        self._per_identity = per_identity

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[Key]]:
        per_epoch = len(self._labels) // self._batch_size
        order, ordered = np.empty(0, dtype=np.int64), -1
        without_identity = self._without_identity()
        for step in self._steps:
            epoch, position = divmod(step, per_epoch)
            if epoch != ordered:
                order, ordered = self._order(epoch, per_epoch * self._batch_size), epoch
            first = position * self._batch_size
            images = order[first : first + self._batch_size].tolist()
            again = _repeats(images)
            yield [
                (epoch, index, view + self._views * repeat)
                for view in range(self._views)
                for index, repeat in zip(images[self._share], again[self._share], strict=True)
            ] + list(islice(without_identity, self._unlabeled_size))

    def _without_identity(self) -> Iterator[Key]:
        """The images without identity from the first step on, epoch after epoch of their own."""
        count = self._unlabeled
        if not count:
            return
        epoch, place = divmod(self._steps.start * self._unlabeled_size, count)
        while True:
            order = epoch_order(count, self._seed, epoch, UNLABELED)
            yield from ((epoch, len(self._labels) + int(index), 0) for index in order[place:])
            epoch, place = epoch + 1, 0

    def _order(self, epoch: int, length: int) -> NDArray[np.int64]:
        if self._per_identity is None:
            return epoch_order(len(self._labels), self._seed, epoch)
        return identity_order(self._labels, self._per_identity, length, self._seed, epoch)


def _repeats(images: list[int]) -> list[int]:
    """How often each has come before: a picture that fills up its person's run comes again, as a view of its own."""
    seen: Counter[int] = Counter()
    repeats = []
    for index in images:
        repeats.append(seen[index])
        seen[index] += 1
    return repeats


class CropDataset(Dataset[tuple[Tensor, Tensor, Tensor]]):
    """Decoded crops, corrupted and augmented, a whole batch at a time."""

    def __init__(
        self,
        source: Source,
        labels: NDArray[np.int64],
        corrupt: Corruption,
        augment: Augmentation,
        seed: int,
    ) -> None:
        self._source = source
        self._labels = labels
        self._corrupt = corrupt
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
        for row, (epoch, index, view) in enumerate(keys):
            # The first view is what a method with one view sees.
            key = (self._seed, epoch, index) if view == 0 else (self._seed, epoch, index, view)
            crops[row] = self._augment(self._corrupt(self._source.crop(index), index), key)
        indices = np.array([index for _, index, _ in keys], dtype=np.int64)
        return torch.from_numpy(crops), torch.from_numpy(self._labels[indices]), torch.from_numpy(indices)


def _as_is(batch: Any) -> Any:
    """The data set already gives whole batches."""
    return batch


def _start_worker(_: int) -> None:
    """Workers share the cores, so OpenCV's own threads in each would only get in each other's way.

    They end when the run does, and not by a signal that a terminal or a queue sends to all processes: the run is about
    to save its step then, and could not without them.
    """
    cv2.setNumThreads(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
