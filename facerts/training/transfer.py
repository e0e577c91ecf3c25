"""Tensors between host and device, without waiting for the work that the device was given before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# Crops, labels and data set indices of a step.
CropBatch = tuple[Tensor, Tensor, Tensor]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device. The copy from the host is queued, and the host goes on.

    Only page-locked memory can be copied like that; other memory is copied into such memory first.
    """
    if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def on_device(batches: Iterable[CropBatch], device: torch.device) -> Iterator[CropBatch]:
    """Batches with crops and labels on the device, each copied while the step before it runs.

    The indices stay on the host, which computes the methods' noise from them.
    """
    if device.type != "cuda":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied(batch: CropBatch) -> CropBatch:
        crops, labels, samples = batch
        with torch.cuda.stream(stream):
            return to_device(crops, device), to_device(labels, device), samples

    iterator = iter(batches)
    upcoming = next(iterator, None)
    ahead = None if upcoming is None else copied(upcoming)
    while ahead is not None:
        torch.cuda.current_stream(device).wait_stream(stream)
        for tensor in ahead[:2]:
            # Its memory must not be used for another copy before this step has read it.
            tensor.record_stream(torch.cuda.current_stream(device))
        yield ahead
        upcoming = next(iterator, None)
        ahead = None if upcoming is None else copied(upcoming)
