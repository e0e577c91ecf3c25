"""Normal noise that depends only on its key, so that resumed and distributed runs draw the same."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of SplitMix64 (Steele et al., OOPSLA 2014): each input bit flips about half of the output bits."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def keyed_normal(seed: int, step: int, samples: Tensor, count: int) -> Tensor:
    """Standard normal draws, one row per sample, keyed by (seed, step, sample).

    A row depends neither on the rest of the batch nor on the rank or the device: it is computed on the CPU by a
    counter-based generator, which has no state but its key. Samples ``(B,) int64`` give ``(B, count) float32``.
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        key = np.zeros(1, dtype=np.uint64)
        for part in (seed, step):
            key = _mix(key + np.array([part], dtype=np.int64).view(np.uint64) + golden)
        rows = _mix(key + samples.detach().cpu().numpy().view(np.uint64) * golden + golden)
        pairs = (count + 1) // 2
        counters = np.arange(1, 2 * pairs + 1, dtype=np.uint64) * golden
        bits = _mix(rows[:, None] + counters[None, :])
    # 53 bits to (0, 1], then the Box-Muller transform: two normals from two uniforms.
    uniform = ((bits >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:, :pairs]))
    angle = 2.0 * math.pi * uniform[:, pairs:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)], axis=1)
    return torch.from_numpy(normal[:, :count].astype(np.float32))
