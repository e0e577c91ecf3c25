"""Aligned faces on disk as a PyTorch data set, for an own training loop.

people = ImageDataset("people/")
loader = DataLoader(people, batch_size=128, shuffle=True, num_workers=4)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from facerts.datasets.open_source import open_source


def to_tensor(crop: NDArray[np.uint8]) -> Tensor:
    """``(112, 112, 3) uint8`` RGB to ``(3, 112, 112) float32``, (x − 127.5) / 127.5."""
    return torch.from_numpy(crop).permute(2, 0, 1).float().sub_(127.5).div_(127.5)


class ImageDataset(Dataset[tuple[Any, int]]):
    """Images with the numbers of their identities, by index; −1 where identities are not known.

    Args:
        data: a folder with a folder for each person, a record directory (``train.rec``), tar shards, or several of
            these, as in ``data.train`` of a recipe. All have an index, so every image can be read at random.
        transform: crop ``(112, 112, 3) uint8`` RGB to what the data set gives; by default a tensor as networks take it.

    Attributes:
        identities: names of the identities, by number.
        labels: ``(N,) int64`` numbers of the identities, for samplers; None if they are not known.
    """

    def __init__(
        self,
        data: str | Path | Sequence[str | Path],
        transform: Callable[[NDArray[np.uint8]], Any] = to_tensor,
    ) -> None:
        self._source, self._transform = open_source(data), transform
        self.identities, self.labels = self._source.identities, self._source.labels

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"{self._source.name}: no image {index} of {len(self):,}")
        label = -1 if self.labels is None else int(self.labels[index])
        return self._transform(self._source.crop(index)), label
