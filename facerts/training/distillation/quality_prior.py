"""What models of quality say of a view, on the scale of its cosine to the own center.

That cosine, to the mean of the m other images of a person, is the less reliable the fewer they are, and says nothing
where there are none. Beside it, a method may therefore learn from models that give a quality. With q the mean of their
standardized qualities of the view, stretched to the mean and the standard deviation of the cosines, the target is

    (m cos θ + n q) / (m + n)

a shrinkage estimator (Efron and Morris, "Data Analysis Using Stein's Estimator and its Generalizations", Journal of the
American Statistical Association, 1975), with n other images weighing as much as the models.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facerts.errors import Error
from facerts.training.device import to_device
from facerts.training.distillation.view_embeddings import FILE_IMAGES, ViewEmbeddings
from facerts.training.methods import Batch

# Cosines ``(B,)`` of the given views of the given images to their own centers.
Cosines = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float32]]


class QualityPrior:
    """The target's part from the models, and its share.

    Args:
        labels: ``(N,)`` person of each image.
        cosines_of: for the scale, which is that of the first view of all images whose person has others.
        weight: n.

    Raises:
        Error: a model gives all images the same quality.
    """

    def __init__(
        self, views: ViewEmbeddings, labels: NDArray[np.int64], cosines_of: Cosines, weight: float
    ) -> None:
        self._views = views
        others = np.bincount(labels)[labels] - 1
        self._share = (weight / (others + weight)).astype(np.float32)
        known = np.flatnonzero(others)
        parts = [known[start : start + FILE_IMAGES] for start in range(0, len(known), FILE_IMAGES)]
        cosines = np.concatenate([cosines_of(part, np.zeros_like(part)) for part in parts])
        qualities = np.concatenate([views.qualities(part, np.zeros_like(part)) for part in parts])
        self._mean, self._std = qualities.mean(axis=0), qualities.std(axis=0)
        if not self._std.all():
            raise Error(
                f"teacher.qualities: model {int(np.argmin(self._std)) + 1} gives all images the same quality"
            )
        together = ((qualities - self._mean) / self._std).mean(axis=1)
        self._slope = cosines.std() / together.std()
        self._level = cosines.mean() - self._slope * together.mean()

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """For each image of a batch, q as ``prior`` and n / (m + n) as ``prior_share``, ``(B,)`` each."""
        assert batch.views is not None
        qualities = self._views.qualities(batch.samples.numpy(), batch.views.numpy())
        together = ((qualities - self._mean) / self._std).mean(axis=1)
        values = {
            "prior": (self._level + self._slope * together).astype(np.float32),
            "prior_share": self._share[batch.samples.numpy()],
        }
        return {name: to_device(torch.from_numpy(rows), batch.labels.device) for name, rows in values.items()}
