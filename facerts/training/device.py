"""Where a run computes and in which precision; tensors on their way there, without waiting for earlier work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

# The data type of the backbone's autocast in each precision; None without autocast.
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

# What a CPU that computes in bf16 calls it, as in ``torch.cpu.get_capabilities``. ARM's was not timed.
BF16_UNITS = ("amx_bf16", "avx512_bf16")

# Crops, labels, data set indices and view numbers of a step, and whether something covers the faces.
CropBatch = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def choose_device(name: str) -> torch.device:
    """The PyTorch device of a setting; "auto" is a GPU if there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def choose_precision(name: str, device: torch.device) -> str:
    """The precision of a setting; "auto" is "bf16" where the device has units for it, else "fp32"."""
    if name == "auto":
        return "bf16" if has_bf16(device) else "fp32"
    return name


def has_bf16(device: torch.device) -> bool:
    """Whether a device computes in bf16 itself; others imitate it, and CPUs then take many times as long."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        capabilities = torch.cpu.get_capabilities()
        return any(capabilities.get(unit) for unit in BF16_UNITS)
    return False


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on the device. The copy from the host is queued, and the host goes on.

    Only page-locked memory can be copied like that; other memory is copied into such memory first.
    """
    if device.type == "cuda" and tensor.device.type == "cpu" and not tensor.is_pinned():
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def on_device(batches: Iterable[CropBatch], device: torch.device) -> Iterator[CropBatch]:
    """Batches with crops and labels on the device, each copied while the step before it runs.

    Indices and view numbers stay on the host, which computes the methods' noise from them and finds embeddings by them.
    """
    if device.type != "cuda":
        yield from batches
        return
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied(batch: CropBatch) -> CropBatch:
        crops, labels, samples, views, covered = batch
        with torch.cuda.stream(stream):
            return to_device(crops, device), to_device(labels, device), samples, views, covered

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
