"""Which images, and which of their views, a method is given together: the same for the same seed."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facerts.datasets.sampler import epoch_order, identity_order
from facerts.training.methods import Method

Labels = NDArray[np.int64]


class Batches:
    """Batches as a method declares them, of rows in view-major order: row v·N + i is view v of image i.

    Args:
        method: says how many views of an image it compares, and whether it wants several images of a person.
        labels: ``(N,)``.
        views: V that each image has.
        per_identity: images of a person, where the method wants several.
        seed: of the orders and of the views drawn.
    """

    def __init__(self, method: Method, labels: Labels, views: int, per_identity: int, seed: int) -> None:
        self._labels = labels
        self._views, self._drawn = views, method.views
        self._per_identity = per_identity if method.sampler == "identities" else None
        # Else the loss of an image does not depend on the others in its batch.
        self._compares = method.views > 1 or method.sampler == "identities"
        self._seed = seed

    def of_epoch(self, epoch: int, size: int) -> list[Tensor]:
        """``(M·size,)`` rows of each step, all first views first, M views of each image.

        A last short batch is left out: it could be one image, of which BatchNorm learns nothing.
        """
        rows = self._rows(self._order(epoch), epoch)
        return [rows[:, step * size : (step + 1) * size].reshape(-1) for step in range(rows.shape[1] // size)]

    def of_all(self, size: int) -> list[Tensor]:
        """``(M·B,)`` rows, B at most ``size``, always the same: all images, to measure a loss."""
        count = len(self._labels)
        if not self._compares:
            return [part.reshape(-1) for part in torch.split(self._rows(np.arange(count), 0), size, dim=1)]
        # In an order of their own, and of about one size, for each image has its batch as its rivals.
        parts = self._rows(self._order(0), 0).tensor_split(max(-(-count // size), 1), dim=1)
        return [part.reshape(-1) for part in parts if part.numel()]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self._labels)
        if self._per_identity is None or not count:
            return epoch_order(count, self._seed, epoch)
        return identity_order(self._labels, self._per_identity, count, self._seed, epoch)

    def _rows(self, order: NDArray[np.int64], epoch: int) -> Tensor:
        """``(M, B)`` rows of M different views of each image."""
        views = np.zeros((self._drawn, len(order)), dtype=np.int64)
        if self._views > 1:
            random = np.random.default_rng((self._seed, epoch, self._views))
            views = random.random((self._views, len(order))).argsort(axis=0)[: self._drawn]
        return torch.from_numpy(views * len(self._labels) + order)
