"""A step's images on their way from the loader to the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from facerts.nn.device import to_device


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
            return batch._replace(
                crops=to_device(batch.crops, device), labels=to_device(batch.labels, device)
            )

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
