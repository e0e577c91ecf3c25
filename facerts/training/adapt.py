"""Adapts the embedding of a trained network to other people and cameras, in closed form.

With e the embeddings of K people before normalization, c_k the mean of a person's, m the mean of these and S_b their
covariance, and S_w the covariance within a person,

    e' = T (e − max(0, 1 − tr S_b / (K |m|²)) m),    T ∝ ((1 − λ) (tr S_w / d) I + λ S_w)^(−1/2)

What all faces share tells nobody apart, so their mean is subtracted, as far as K people determine it (James and Stein,
"Estimation with Quadratic Loss", 1961). T shrinks the directions in which one person's images differ (Hatch, Kajarekar
and Stolcke, "Within-Class Covariance Normalization for SVM-based Speaker Recognition", Interspeech 2006); λ is small,
because a few people determine few of these directions. T keeps the mean norm. Both become part of the last layer; the
features below it, and what the heads beside it compute, stay what they are.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.modules.batchnorm import _BatchNorm

from facerts.datasets import Source
from facerts.embedding.embed import embed_source
from facerts.errors import DataError
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.nn import FaceNetwork
from facerts.nn.twin_heads import EmbeddingHead, FeatureHead

Floats = NDArray[np.float64]


def adapted_map(embedding: Floats, labels: NDArray[np.integer], share: float) -> tuple[Floats, Floats]:
    """T ``(d, d)`` and the mean to subtract ``(d,)``, from embeddings ``(N, d)`` before normalization, for share λ."""
    people, rows = np.unique(labels, return_inverse=True)
    count = np.bincount(rows)
    if len(people) < 2 or count.max() < 2:
        raise ValueError("adapting needs two people, and two images of one of them")
    means = np.stack([np.bincount(rows, column) for column in embedding.T], axis=1) / count[:, None]
    mean = means.mean(axis=0)
    uncertainty = np.square(means - mean).sum() / (len(people) - 1) / len(people)
    mean *= max(0.0, 1.0 - uncertainty / max(float(mean @ mean), 1e-30))
    inside = embedding - means[rows]
    within = inside.T @ inside / (len(embedding) - len(people))
    size = embedding.shape[1]
    values, directions = np.linalg.eigh((1 - share) * np.trace(within) / size * np.eye(size) + share * within)
    # Images of one person that are all alike have no covariance.
    linear = (directions * np.maximum(values, 1e-12) ** -0.5) @ directions.T
    before, after = (np.linalg.norm(rows, axis=1).mean() for rows in (embedding, (embedding - mean) @ linear))
    return linear * (before / after), mean


@torch.no_grad()
def adapt_embedding(network: FaceNetwork, source: Source, share: float) -> _BatchNorm:
    """Adapt a network's embedding to the people of a source.

    Returns its BatchNorm, which now adds a bias and nothing else; see ``exported.refit_norms``.
    """
    assert source.labels is not None
    outputs = embed_source(NetworkEmbedder(network), source, flip=False)
    assert outputs.norm is not None
    embedding = outputs.embedding.astype(np.float64) * outputs.norm[:, None]
    try:
        linear, mean = adapted_map(embedding, source.labels, share)
    except ValueError as error:
        raise DataError(f"{source.name}: {error}; backbone.adapt=null leaves the embedding as it is") from error
    head = network.embedding
    assert isinstance(head, EmbeddingHead)
    layer, norm = head
    assert isinstance(layer, torch.nn.Linear)
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    bias = (layer.bias - norm.running_mean) * scale + norm.bias
    transform, subtracted = (torch.from_numpy(values).to(layer.weight) for values in (linear, mean))
    layer.weight.copy_(transform @ (scale[:, None] * layer.weight))
    layer.bias.zero_()
    norm.bias.copy_(transform @ (bias - subtracted))
    norm.running_mean.zero_()
    norm.running_var.fill_(1 - norm.eps)
    for name, further in network.heads.items():
        if network.reads[name] == "embedding":
            assert isinstance(further, FeatureHead)
            reader = further[0]
            assert isinstance(reader, torch.nn.Linear)
            # e = T⁻¹ e' + m
            reader.bias.add_(reader.weight @ subtracted)
            reader.weight.copy_(torch.linalg.solve(transform, reader.weight, left=False))
    return norm
