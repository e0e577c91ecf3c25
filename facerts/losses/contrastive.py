"""Building blocks of the contrastive methods: cosines within a batch, masks of positives, and InfoNCE.

All functions take and return tensors. Rows are all views of all images, B = V·N. A row is never its own positive, and
never part of its own pool (the rows in the denominator).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def similarities(embedding: Tensor) -> Tensor:
    """s_ij = ẑ_i·ẑ_j with ẑ = y/‖y‖, ``(B, d)`` to ``(B, B)``, in float32 or wider whatever the input and autocast."""
    with torch.autocast(embedding.device.type, enabled=False):
        z = F.normalize(embedding.to(torch.promote_types(embedding.dtype, torch.float32)))
        return z @ z.T


def positives(keys: Tensor) -> Tensor:
    """P_i, the other rows with the same key as i: ``(B,) int64`` to ``(B, B) bool``, false on the diagonal.

    Keys are labels if identities are known, else samples, so that only views of one image match.
    """
    return (keys.unsqueeze(1) == keys.unsqueeze(0)).fill_diagonal_(False)


def members(labels: Tensor) -> Tensor:
    """One-hot membership of each row in the K classes of the batch, ``(B,)`` to ``(B, K) bool``."""
    classes: Tensor = torch.unique(labels)
    return labels.unsqueeze(1) == classes


def log_pool(logits: Tensor) -> Tensor:
    """log Σ_{j≠i} exp l_ij, ``(B, B)`` to ``(B,)``."""
    itself = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    # Not −∞: the pool of a batch of one row is empty, and its gradient would be NaN.
    return logits.masked_fill(itself, torch.finfo(logits.dtype).min).logsumexp(dim=1)


def info_nce(logits: Tensor, positive: Tensor) -> Tensor:
    """−(1/|P_i|) Σ_{p∈P_i} log [exp l_ip / Σ_{k≠i} exp l_ik] ``(B,)``; 0 for a row without a positive.

    Args:
        logits: ``(B, B)``, similarities of anchor i (row) divided by its temperature.
        positive: ``(B, B) bool``, see ``positives``.
    """
    loss = log_pool(logits) - (logits * positive).sum(dim=1) / positive.sum(dim=1).clamp_min(1)
    return torch.where(positive.any(dim=1), loss, 0.0)


def tightness(cosines: Tensor, labels: Tensor) -> Tensor:
    """−ẑ_i·θ_{y_i}, from ``(B, C)`` cosines to the prototypes to ``(B,)``."""
    return -cosines.gather(1, labels.unsqueeze(1)).squeeze(1)
