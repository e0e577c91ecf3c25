"""Batches of training images, independent of the number of workers and of where a run is resumed."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

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
from facerts.losses import LOSSES
from facerts.losses.collectives import Processes
from facerts.losses.face_heads import NON_FACE, UNCLEAR, UNKNOWN
from facerts.nn.device import to_device
from facerts.training.augment import Augmenter, KeptViews, build_augmentation
from facerts.training.recipe import Recipe

SAMPLE_SIZE = 256

# (epoch, index, view of a method with several): identifies an image and its augmentation.
SampleKey = tuple[int, int, int]


class Batch(NamedTuple):
    """The images of one step. With V views of N images, B = V·N, and row v·N + i is view v of image i.

    Attributes:
        crops: ``(B, 112, 112, 3) uint8`` RGB.
        labels: ``(B,) int64``.
        samples: ``(B,) int64``, numbers in the data set.
        views: ``(B,) int64``, which of the recipe's keyed views the crops are; without these the epochs.
        covered: ``(B,) int64``, whether something covers the face; see ``facerts.losses.face_heads``.
    """

    crops: Tensor
    labels: Tensor
    samples: Tensor
    views: Tensor
    covered: Tensor

    @classmethod
    def of(cls, crops: Tensor, labels: Tensor, samples: Tensor) -> Batch:
        """Images as they are, with nothing that covers a face."""
        return cls(crops, labels, samples, torch.zeros_like(samples), torch.zeros_like(samples))

    def rows(self, rows: slice) -> Batch:
        """Some of the rows."""
        return Batch(*(values[rows] for values in self))

    def split(self, parts: int) -> list[Batch]:
        """Equal parts, one after the other."""
        return [Batch(*part) for part in zip(*(values.chunk(parts) for values in self), strict=True)]


def on_device(batches: Iterable[Batch], device: torch.device) -> Iterator[Batch]:
    """Batches with crops and labels on the device, each copied while the step before it runs.

    The others stay on the host, which computes the losses' noise from them and finds embeddings by them.
    """
    if device.type != "cuda":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied(batch: Batch) -> Batch:
        with torch.cuda.stream(stream):
            return batch._replace(crops=to_device(batch.crops, device), labels=to_device(batch.labels, device))

    iterator = iter(batches)
    upcoming = next(iterator, None)
    ahead = None if upcoming is None else copied(upcoming)
    while ahead is not None:
        torch.cuda.current_stream(device).wait_stream(stream)
        for tensor in (ahead.crops, ahead.labels):
            # Its memory must not be used for another copy before this step has read it.
            tensor.record_stream(torch.cuda.current_stream(device))
        yield ahead
        upcoming = next(iterator, None)
        ahead = None if upcoming is None else copied(upcoming)


def open_identified(data: str | Path | Sequence[str | Path], purpose: str) -> Source:
    """A source whose images have identities, which the purpose needs."""
    source = open_source(data)
    if source.labels is None:
        raise DataError(
            f"{source.name}: has no identities, but {purpose} needs them; use a folder by identity, a record directory "
            "or tar shards"
        )
    return source


def sample(source: Source) -> Tensor:
    """At most ``SAMPLE_SIZE`` crops from all over a source: ``(B, 112, 112, 3) uint8`` RGB."""
    rows = np.linspace(0, len(source) - 1, min(SAMPLE_SIZE, len(source))).round().astype(int)
    return torch.from_numpy(np.stack([source.crop(int(row)) for row in rows]))


class TrainingData:
    """The training images of a recipe.

    Args:
        processes: processes of the run, each of which loads its share of every batch.

    Attributes:
        source: the labeled images, without augmentation.
        unlabeled: the images without identity, or None.
        heldout: images of the identities that the recipe holds out, or None.
    """

    def __init__(self, recipe: Recipe, processes: Processes | None = None) -> None:
        self._processes = processes or Processes()
        if recipe.optim.batch_size % (self._processes.count * recipe.compute.accumulate):
            raise Error(
                f"optim.batch_size {recipe.optim.batch_size} must be a multiple of the number of processes, "
                f"{self._processes.count}, times compute.accumulate, {recipe.compute.accumulate}"
            )
        source = open_identified(recipe.data.train, "training")
        self.heldout: Source | None = None
        if recipe.data.holdout_identities:
            source, self.heldout = hold_out_identities(source, recipe.data.holdout_identities, recipe.seed)
        self.identities = len(source.identities)
        if self.identities < 2:
            held_out = 0 if self.heldout is None else len(self.heldout.identities)
            raise DataError(
                f"{source.name}: {self.identities} identity is left to train on, {held_out} are held out; it needs "
                "at least two to train on, so give more people"
            )
        if recipe.optim.epochs and len(source) < recipe.labeled_size:
            raise DataError(
                f"{source.name}: has {len(source)} images, fewer than the {recipe.labeled_size} of one batch; "
                "lower optim.batch_size"
            )
        self.source = source
        self.unlabeled = open_source(recipe.data.unlabeled) if recipe.data.unlabeled else None
        assert source.labels is not None
        sources, labels, self._others = [source], [source.labels], []
        others = [] if self.unlabeled is None else [(self.unlabeled, UNKNOWN, recipe.unlabeled_size)]
        kinds = len(recipe.data.non_faces)
        for number, path in enumerate(recipe.data.non_faces):
            others.append((open_source(path), NON_FACE, (recipe.non_face_size + number) // kinds))
        for images, label, size in others:
            self._others.append((len(images), size))
            sources.append(images)
            labels.append(np.full(len(images), label, dtype=np.int64))
        self._images = source if len(sources) == 1 else Joined(sources)
        self._labels = np.concatenate(labels)
        self._recipe = recipe
        self._loss = LOSSES[recipe.method["name"]]

    def __len__(self) -> int:
        return len(self.source)

    def batches(self, start: int, stop: int) -> Generator[Batch]:
        """This process's share of the batches of steps ``start`` to ``stop − 1``.

        B is the batch size times the method's number of views, divided by the number of processes. Faces without
        identity and then non-faces are at the end of the batch, with labels ``UNKNOWN`` and ``NON_FACE`` and numbers
        after those of all labeled images.
        """
        recipe = self._recipe
        augmentation = recipe.data.augmentation
        by_identity = recipe.data.per_identity if self._loss.sampler == "identities" else None
        loader = DataLoader(
            CropDataset(
                self._images,
                self._labels,
                build_augmentation(augmentation),
                recipe.seed,
                kept=None if augmentation.views is None else KeptViews(augmentation, recipe.seed),
            ),
            batch_sampler=StepSampler(
                self._labels[: len(self.source)],
                recipe.labeled_size,
                recipe.seed,
                range(start, stop),
                views=self._loss.views,
                per_identity=by_identity,
                share=self._processes.own_rows(recipe.labeled_size),
                others=tuple(self._others),
            ),
            num_workers=recipe.data.workers,
            # Without its own generator, the loader would draw from the global one that a resumed run has just restored.
            generator=torch.Generator(),
            collate_fn=_identity,
            worker_init_fn=_start_worker,
            pin_memory=torch.cuda.is_available(),
            prefetch_factor=4 if recipe.data.workers else None,
        )
        batches: Any = iter(loader)
        try:
            for batch in batches:
                if isinstance(batch, Error):
                    raise DataError(f"{batch}; `facerts data pack` leaves such images out") from batch
                yield batch
        finally:
            # The trace of an error keeps the iterator, and at exit Python waits for workers, which ignore its SIGTERM.
            if recipe.data.workers:
                batches._shutdown_workers()


@dataclass(frozen=True, eq=False)
class StepSampler(Sampler[list[SampleKey]]):
    """The keys of the images of each step; the last images of an epoch that do not fill a batch are dropped.

    Args:
        labels: ``(N,)`` identity of each image.
        views: views of each image.
        per_identity: images of each identity in a batch; None draws images regardless of identity.
        share: the images of a step that this process loads.
        others: of each set of images without identity, their total number and that of a step; their indices follow each
            other from N on. Each set has its own order, in which all of them come before any comes again.
    """

    labels: NDArray[np.int64]
    batch_size: int
    seed: int
    steps: range
    views: int
    per_identity: int | None
    share: slice
    others: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[SampleKey]]:
        per_epoch = len(self.labels) // self.batch_size
        order, order_epoch = np.empty(0, dtype=np.int64), -1
        starts = np.cumsum([len(self.labels), *(count for count, _ in self.others)])
        without_identity = [
            (self._without_identity(number, int(start), *other), other[1])
            for number, (start, other) in enumerate(zip(starts, self.others, strict=False))
        ]
        for step in self.steps:
            epoch, position = divmod(step, per_epoch)
            if epoch != order_epoch:
                order, order_epoch = self._order(epoch, per_epoch * self.batch_size), epoch
            first = position * self.batch_size
            images = order[first : first + self.batch_size].tolist()
            repeats = _repeats(images)
            yield [
                (epoch, index, view + self.views * repeat)
                for view in range(self.views)
                for index, repeat in zip(images[self.share], repeats[self.share], strict=True)
            ] + [key for keys, size in without_identity for key in islice(keys, size)]

    def _without_identity(self, number: int, start: int, count: int, size: int) -> Iterator[SampleKey]:
        """One set of images without identity, from the first step on, in epochs of its own."""
        epoch, position = divmod(self.steps.start * size, count)
        while True:
            order = epoch_order(count, self.seed, epoch, UNLABELED + number)
            yield from ((epoch, start + int(index), 0) for index in order[position:])
            epoch, position = epoch + 1, 0

    def _order(self, epoch: int, length: int) -> NDArray[np.int64]:
        if self.per_identity is None:
            return epoch_order(len(self.labels), self.seed, epoch)
        return identity_order(self.labels, self.per_identity, length, self.seed, epoch)


def _repeats(images: list[int]) -> list[int]:
    """How often each index has come before: an image that repeats within an identity gets another augmentation."""
    seen: Counter[int] = Counter()
    repeats = []
    for index in images:
        repeats.append(seen[index])
        seen[index] += 1
    return repeats


@dataclass(frozen=True, eq=False)
class CropDataset(Dataset[Batch]):
    """Decoded and augmented crops, a whole batch at a time.

    ``kept`` are the views that come again; None for a new one in every epoch.
    """

    source: Source
    labels: NDArray[np.int64]
    augment: Augmenter
    seed: int
    kept: KeptViews | None = None

    def __getitems__(self, keys: list[SampleKey]) -> Batch | Error:
        """A batch, or an error, returned because one raised in a worker would arrive as the text of a traceback."""
        try:
            return self._batch(keys)
        except Error as error:
            return error

    def _batch(self, keys: list[SampleKey]) -> Batch:
        crops = np.empty((len(keys), CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
        covered = np.empty(len(keys), dtype=np.int64)
        for row, (epoch, index, view) in enumerate(keys):
            # The first view is the one that a method with a single view gets.
            key = (self.seed, epoch, index) if view == 0 else (self.seed, epoch, index, view)
            image = self.source.crop(index)
            # No teacher is asked about non-faces, so they need not come again in the same views.
            if self.kept is not None and self.labels[index] != NON_FACE:
                crops[row] = self.kept.shown(image, epoch, index, view)
                covers = self.kept.covers(self.kept.number_of(epoch, index, view), index)
            else:
                crops[row] = self.augment(image, key)
                covers = self.augment.covers(key)
            covered[row] = UNCLEAR if covers is None else covers
        epochs, indices, _ = np.array(keys, dtype=np.int64).T
        if self.kept is not None:
            epochs = np.array([self.kept.number_of(*key) for key in keys], dtype=np.int64)
        return Batch(
            torch.from_numpy(crops),
            torch.from_numpy(self.labels[indices]),
            torch.from_numpy(indices.copy()),
            torch.from_numpy(epochs.copy()),
            torch.from_numpy(covered),
        )


def _identity(batch: Any) -> Any:
    """No collation: the data set already returns whole batches."""
    return batch


def _start_worker(_: int) -> None:
    """Set up a worker process.

    OpenCV's threads are disabled, because the workers already share the cores. Signals that a terminal or a queue sends
    to all processes are ignored: the run needs its workers to finish the step that it is about to save, and ends them.
    """
    cv2.setNumThreads(0)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
