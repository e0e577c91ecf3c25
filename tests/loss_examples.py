"""Batches for the losses, and their values by plain loops over numbers."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.losses.noise import keyed_normal
from facerts.training.loader import Batch


@dataclass(frozen=True)
class Images:
    """What a loss knows about the images of a step, beside the outputs of the network."""

    labels: Tensor
    samples: Tensor
    step: int = 3
    ramp: float = 1.0


def batch_of(labels, views=1, *, ramp=1.0, step=3):
    """All first views, then all second ones; each image is a sample of its own."""
    return Images(torch.tensor(labels * views), torch.arange(len(labels)).repeat(views) + 50, step, ramp)


def batch_for(crops, images):
    """Crops ``(B, 112, 112, 3)`` of a step as a learner takes them."""
    return Batch.of(crops, images.labels, images.samples)


def noise_of(loss, images):
    """The noise that a loss draws for these images."""
    return lambda count: keyed_normal(loss.seed, images.step, images.samples, count)


def value_of(loss, outputs, images, centers):
    """The value of a loss on class centers that are not its own."""
    options = {"samples": images.samples, "step": images.step, "ramp": images.ramp}
    return loss.of_batch(outputs, images.labels, centers=centers, **options)


def units(rows):
    """Rows divided by their norms, as lists of floats."""
    return [[x / math.sqrt(sum(y * y for y in row)) for x in row] for row in rows.tolist()]


def of_lengths(*lengths):
    """Random embeddings ``(N, 6)`` of these norms."""
    directions = F.normalize(torch.randn(len(lengths), 6, dtype=torch.float64))
    return directions * torch.tensor(lengths, dtype=torch.float64).unsqueeze(1)


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def slow_softmax(
    embedding,
    centers,
    labels,
    scale,
    target=lambda angle, row: math.cos(angle),
):
    """Mean cross-entropy of scaled cosines; ``target`` makes the own cosine of its angle, for each row."""
    theta, losses = units(centers), []
    for row, (y, label) in enumerate(zip(units(embedding), labels, strict=True)):
        gamma = scale[row] if isinstance(scale, list) else scale
        cosines = [dot(y, w) for w in theta]
        own = math.exp(gamma * target(math.acos(cosines[label]), row))
        others = sum(math.exp(gamma * cosine) for j, cosine in enumerate(cosines) if j != label)
        losses.append(-math.log(own / (own + others)))
    return sum(losses) / len(losses)


def slow_info_nce(rows, positive, temperatures):
    """InfoNCE of each row."""
    z, losses = units(rows), []
    for i, tau in enumerate(temperatures):
        s = [dot(z[i], other) / tau for other in z]
        pool = sum(math.exp(s[k]) for k in range(len(z)) if k != i)
        losses.append(sum(-math.log(math.exp(s[p]) / pool) for p in positive[i]) / len(positive[i]))
    return losses


def slow_nt_xent(rows, tau):
    """SimCLR's NT-Xent (Chen et al., ICML 2020, Eq. 1): row i's positive is the other view of its image."""
    half = len(rows) // 2
    positive = [[(i + half) % len(rows)] for i in range(len(rows))]
    return sum(slow_info_nce(rows, positive, [tau] * len(rows))) / len(rows)
