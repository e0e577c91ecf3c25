"""Batches of images and views, determined by the seed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facerts.datasets.sampler import epoch_order, identity_order
from facerts.training.methods import Method

Labels = NDArray[np.int64]


class Batches:
    """Batches of row indices as a method declares them: how many views of an image, and whether several of an identity.

    Row v·N + i is view v of image i, one of V; ``labels`` are the identities ``(N,)`` of the images.
    """

    def __init__(self, method: Method, labels: Labels, views: int, per_identity: int, seed: int) -> None:
        self._labels = labels
        self._views, self._method_views = views, method.views
        self._per_identity = per_identity if method.sampler == "identities" else None
        # Otherwise the loss of an image does not depend on the rest of the batch.
        self._compares = method.views > 1 or method.sampler == "identities"
        self._seed = seed

    def of_epoch(self, epoch: int, size: int) -> list[Tensor]:
        """Rows ``(M·size,)`` of each step, for M views of each image; all first views come first.

        A short last batch is dropped: BatchNorm cannot train on a single image.
        """
        rows = self._rows(self._order(epoch), epoch)
        return [rows[:, step * size : (step + 1) * size].reshape(-1) for step in range(rows.shape[1] // size)]

    def of_all(self, size: int) -> list[Tensor]:
        """Rows ``(M·B,)`` of batches that cover all images, B at most ``size``, always the same; to measure a loss."""
        count = len(self._labels)
        if not self._compares:
            return [part.reshape(-1) for part in torch.split(self._rows(np.arange(count), 0), size, dim=1)]
        # Shuffled and of similar sizes, because each image is contrasted with its batch.
        parts = self._rows(self._order(0), 0).tensor_split(max(-(-count // size), 1), dim=1)
        return [part.reshape(-1) for part in parts if part.numel()]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self._labels)
        if self._per_identity is None or not count:
            return epoch_order(count, self._seed, epoch)
        return identity_order(self._labels, self._per_identity, count, self._seed, epoch)

    def _rows(self, order: NDArray[np.int64], epoch: int) -> Tensor:
        """Rows ``(M, B)`` of M different views of each image."""
        views = np.zeros((self._method_views, len(order)), dtype=np.int64)
        if self._views > 1:
            random = np.random.default_rng((self._seed, epoch, self._views))
            views = random.random((self._views, len(order))).argsort(axis=0)[: self._method_views]
        return torch.from_numpy(views * len(self._labels) + order)
