"""Trains the head of a loss and its own parameters on fixed features."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.errors import DataError, Error, NonFiniteLossError
from facerts.io.console import say
from facerts.io.progress import progress_bar
from facerts.losses import FaceLoss
from facerts.losses.leave_one_out_means import LeaveOneOutMeans
from facerts.nn import HeadSpec
from facerts.nn.device import choose_device
from facerts.nn.twin_heads import FeatureHead
from facerts.training.loader import StepSampler
from facerts.training.posthoc_features import Features, Labels
from facerts.training.recipe import Section

# Fewer people to measure on would give no useful intervals.
MIN_MEASURED = 20
# Dividing a constant feature by its standard deviation would amplify rounding errors.
MIN_DEVIATION = 1e-6
# Keeps the logarithm of a zero norm finite.
MIN_NORM = 1e-6


class HeadSettings(Section):
    """Settings of the training of heads, by AdamW without weight decay unless the method sets one.

    Attributes:
        hidden: units of the hidden layer.
        epochs: maximum number of epochs.
        holdout: share of the identities to hold out; training stops when the loss on them rises, or on half of them if
            there are enough to measure the heads on the other half. 0 holds out none.
        seed: seed of weights, orders, views and held-out identities.
        device: "auto", "cpu" or "cuda"; "auto" is a GPU if there is one.
        per_identity: images of each identity in a batch, for methods that draw batches by identity.
        norm: use the logarithm of the embedding's norm as a feature, if the embedder outputs it.
        tap: name of an intermediate tensor of the embedder's graph whose values are further features.
    """

    hidden: int = Field(256, ge=1)
    epochs: int = Field(8, ge=1)
    batch_size: int = Field(512, ge=2)
    lr: float = Field(1e-3, gt=0)
    holdout: float = Field(0.1, ge=0, le=0.9)
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    per_identity: int = Field(4, ge=2)
    norm: bool = True
    tap: str | None = None


@dataclass(frozen=True)
class TrainedHeads:
    """The result of training heads.

    Attributes:
        heads: heads of the best epoch, in evaluation mode, on the CPU.
        method: its ``score`` turns the heads' outputs into the exported ones.
        loss: mean loss of each epoch.
        heldout_loss: loss on the held-out identities after each epoch; empty if none are held out.
        held_out: ``(N,)`` mask of the images that were not used to train.
        measured: ``(N,)`` mask of those of them that were not used to stop either.
    """

    heads: QualityHeads
    method: FaceLoss
    loss: list[float]
    heldout_loss: list[float]
    images: int
    identities: int
    held_out: NDArray[np.bool_]
    measured: NDArray[np.bool_]


def train_heads(
    loss: FaceLoss, features: Features, labels: Labels, settings: HeadSettings, *, norm: bool = False
) -> TrainedHeads:
    """Train a loss's head on features, until the loss on held-out identities rises, or for all epochs.

    Args:
        loss: its ``state`` is trained too.
        features: features of V views of N images, all first views first.
        labels: ``(N,)`` identities of the images, numbered without gaps.
        norm: use the logarithm of the embedding's norm as a feature.
    """
    # PyTorch's global generator must not change for the caller.
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return _train(loss, features, labels, settings, norm)


def held_out(labels: Labels, share: float, seed: int) -> NDArray[np.bool_]:
    """Mask ``(N,)`` of the images of a share of the identities, drawn by the seed."""
    several = np.flatnonzero(np.bincount(labels) >= 2)
    count = math.ceil(share * len(several))
    if len(several) - count < 2:
        raise DataError(
            f"only {len(several)} identities have two images or more, of which {count} would be held out; at least two "
            "must remain for training"
        )
    return np.isin(labels, np.random.default_rng(seed).choice(several, count, replace=False))


def measured_half(labels: Labels, held: NDArray[np.bool_], seed: int) -> NDArray[np.bool_]:
    """Mask ``(N,)`` of the images of half of the held-out identities, drawn by the seed; empty if they are too few."""
    people = np.unique(labels[held])
    if len(people) < 2 * MIN_MEASURED:
        return np.zeros_like(held)
    return held & np.isin(labels, np.random.default_rng((seed, 1)).choice(people, len(people) // 2, replace=False))


class _Images:
    """Features of images' views, and the mean embeddings of the identities that they are compared with.

    Args:
        features: features of V views of all N images.
        in_means: ``(N,)`` mask of the images whose identities have means.
        in_loss: ``(N,)`` mask of those images on which the loss is computed, if their identity has other images.
    """

    def __init__(
        self,
        features: Features,
        labels: Labels,
        in_means: NDArray[np.bool_],
        in_loss: NDArray[np.bool_],
        device: torch.device,
    ) -> None:
        identities, mean_rows = np.unique(labels[in_means], return_inverse=True)
        mean_of_image = np.full(len(labels), -1)
        mean_of_image[in_means] = mean_rows
        self.numbers = np.flatnonzero(in_loss & (np.bincount(labels)[labels] >= 2))
        self.labels = mean_of_image[self.numbers]
        self.views = len(features.unit) // len(labels)
        rows = (np.arange(self.views)[:, None] * len(labels) + self.numbers).reshape(-1)
        # Row v·n + i is view v of image i.
        self.unit, self.embedding, self.tap = (
            torch.from_numpy(values[rows]).to(device) for values in (features.unit, features.embedding, features.tap)
        )
        means = torch.from_numpy(features.unit[: len(labels)][in_means])
        self.centers = LeaveOneOutMeans(means, torch.from_numpy(mean_rows), len(identities)).to(device)

    def batches(self, loss: FaceLoss, settings: HeadSettings, epoch: int) -> list[Tensor]:
        """Rows ``(M·B,)`` of the features in each of an epoch's batches, drawn as in a run; first views first."""
        images = len(self.numbers)
        size = min(settings.batch_size, images)
        steps = images // size if size else 0
        several = settings.per_identity if loss.sampler == "identities" else None
        order = range(epoch * steps, (epoch + 1) * steps)
        drawn = StepSampler(self.labels, size, settings.seed, order, loss.views, several, slice(None), ())
        keys = [torch.tensor(batch).T for batch in drawn] if steps else []
        return [(epochs * loss.views + views) % self.views * images + numbers for epochs, numbers, views in keys]

    def loss(self, heads: QualityHeads, loss: FaceLoss, rows: Tensor, step: int) -> Tensor:
        """The mean loss of a batch; the views of an image come in turn."""
        images = rows % len(self.numbers)
        labels = torch.from_numpy(self.labels)[images].to(self.unit.device)
        # Rows of the first views, which are the original images.
        centers = self.centers.without(self.unit[images], labels)
        samples = torch.from_numpy(self.numbers)[images]
        outputs = heads(self.embedding[rows], self.tap[rows])
        return loss.of_batch(outputs, labels, samples=samples, step=step, centers=centers).total


def _train(loss: FaceLoss, features: Features, labels: Labels, settings: HeadSettings, norm: bool) -> TrainedHeads:
    device, seed = choose_device(settings.device), settings.seed
    held = held_out(labels, settings.holdout, seed)
    measured = measured_half(labels, held, seed)
    images = _Images(features, labels, ~held, ~held, device)
    # Held-out images are compared with the means of other identities too, as images of new people would be.
    heldout = _Images(features, labels, ~measured, held & ~measured, device)
    heads = QualityHeads(images.embedding, images.tap, loss.heads(), settings.hidden, norm=norm).to(device)
    learned = nn.ModuleDict({"heads": heads, "state": loss.state}).to(device)
    # Decoupled weight decay, which is what losses that set their own expect.
    optimizer = torch.optim.AdamW(loss.parameter_groups(heads), lr=settings.lr, weight_decay=0.0)
    for group in optimizer.param_groups:
        group["lr"] *= group.get("lr_scale", 1.0)
    # Always with the same views and noise.
    checks = heldout.batches(loss, settings, 0)
    losses: list[float] = []
    heldout_losses: list[float] = []
    best = copy.deepcopy(learned.state_dict())
    with progress_bar() as bar:
        task = bar.add_task(loss.name, total=settings.epochs, unit="epochs")
        for epoch in range(settings.epochs):
            learned.train()
            batches = images.batches(loss, settings, epoch)
            total = 0.0
            for step, rows in enumerate(batches, epoch * len(batches)):
                value = images.loss(heads, loss, rows, step)
                if not math.isfinite(value.item()):
                    raise NonFiniteLossError(f"the loss is {value.item()} at step {step}; lower train.lr")
                optimizer.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += value.item()
            losses.append(total / len(batches))
            bar.advance(task)
            learned.eval()
            message = f"epoch {epoch + 1} loss {losses[-1]:.4f}"
            if checks:
                heldout_losses.append(_mean_loss(heldout, heads, loss, checks))
                message += f", on held-out identities {heldout_losses[-1]:.4f}"
            say(message)
            if heldout_losses and heldout_losses[-1] > min(heldout_losses):
                break
            best = copy.deepcopy(learned.state_dict())
    learned.load_state_dict(best)
    learned.eval().cpu()
    identities = len(np.unique(images.labels))
    return TrainedHeads(heads, loss, losses, heldout_losses, len(images.numbers), identities, held, measured)


@torch.no_grad()
def _mean_loss(images: _Images, heads: QualityHeads, loss: FaceLoss, batches: list[Tensor]) -> float:
    try:
        return float(np.mean([images.loss(heads, loss, rows, 0).item() for rows in batches]))
    except Error as error:
        raise Error(f"on {len(images.numbers)} held-out images: {error}, or change train.holdout") from error


class QualityHeads(nn.Module):
    """One perceptron with one hidden layer for each head of a method.

    Args:
        embedding: ``(N, d)`` embeddings of the training images before normalization.
        tap: ``(N, f)`` values of the tapped tensor; f may be 0.
        norm: use the logarithm of the embedding's norm as a further feature.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(
        self,
        embedding: Tensor,
        tap: Tensor,
        heads: Mapping[str, HeadSpec],
        hidden: int,
        *,
        norm: bool = False,
    ) -> None:
        super().__init__()
        self.sizes = embedding.shape[1], tap.shape[1]
        self._norm = norm
        features = self._features(embedding, tap)
        self.register_buffer("mean", features.mean(dim=0))
        self.register_buffer("deviation", features.std(dim=0).clamp_min(MIN_DEVIATION))
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(
                    nn.Linear(features.shape[1], hidden),
                    nn.BatchNorm1d(hidden),
                    nn.ReLU(),
                    FeatureHead(hidden, spec),
                )
                for name, spec in heads.items()
            }
        )

    def forward(self, embedding: Tensor, tap: Tensor | None = None) -> dict[str, Tensor]:
        """The outputs that a network would have: ``embedding`` unchanged, and ``(B, size)`` of each head."""
        features = (self._features(embedding, tap) - self.mean) / self.deviation
        return {"embedding": embedding, **{name: head(features) for name, head in self.heads.items()}}

    def _features(self, embedding: Tensor, tap: Tensor | None) -> Tensor:
        """``(B, d + f)`` features, or ``(B, d + f + 1)`` with the norm."""
        parts = [F.normalize(embedding)]
        if tap is not None:
            parts.append(tap)
        if self._norm:
            norm: Tensor = torch.linalg.vector_norm(embedding, dim=1, keepdim=True)
            parts.append(norm.clamp_min(MIN_NORM).log())
        return torch.cat(parts, dim=1)
