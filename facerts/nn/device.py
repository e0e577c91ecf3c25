"""Where a run computes and in which precision; tensors on their way there, without waiting for earlier work."""

from __future__ import annotations

import torch
from torch import Tensor

# The data type of the backbone's autocast in each precision; None without autocast.
AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}

# What a CPU that computes in bf16 calls it, as in ``torch.cpu.get_capabilities``. ARM's was not timed.
BF16_UNITS = ("amx_bf16", "avx512_bf16")


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
