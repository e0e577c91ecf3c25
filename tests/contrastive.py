"""Batches of views, and contrastive losses by plain loops over numbers."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from facerts.training.methods import Batch


def views_batch(labels: list[int], views: int = 2) -> Batch:
    """All first views, then all second ones; each image is a sample of its own."""
    count = len(labels)
    return Batch(torch.tensor(labels * views), torch.arange(count).repeat(views) + 50, step=3, seed=7)


def permuted(batch: Batch, order: Tensor) -> Batch:
    return Batch(batch.labels[order], batch.samples[order], batch.step, batch.seed)


def slow_info_nce(rows: Tensor, positive: list[list[int]], temperatures: list[float]) -> list[float]:
    """InfoNCE of each row by plain loops over numbers."""
    z = [row / math.sqrt(sum(float(x) ** 2 for x in row)) for row in rows]
    losses = []
    for i, tau in enumerate(temperatures):
        s = [float(torch.dot(z[i], other)) / tau for other in z]
        pool = sum(math.exp(s[k]) for k in range(len(z)) if k != i)
        losses.append(sum(-math.log(math.exp(s[p]) / pool) for p in positive[i]) / len(positive[i]))
    return losses


def slow_nt_xent(rows: Tensor, tau: float) -> float:
    """SimCLR's NT-Xent (Chen et al., ICML 2020, Eq. 1): row i's positive is the other view of its image."""
    half = len(rows) // 2
    positive = [[(i + half) % len(rows)] for i in range(len(rows))]
    return sum(slow_info_nce(rows, positive, [tau] * len(rows))) / len(rows)
