"""Trains the head of a loss and its own parameters on fixed features."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from pydantic import dataclasses as checked
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
from facerts.training.loader import SampleKey, StepSampler
from facerts.training.posthoc_features import Features, Labels

# Fewer people to measure on would give no useful intervals.
MIN_MEASURED = 20
# Dividing a constant feature by its standard deviation would amplify rounding errors.
MIN_DEVIATION = 1e-6
# Keeps the logarithm of a zero norm finite.
MIN_NORM = 1e-6


@checked.dataclass(frozen=True)
class HeadSettings:
    """Settings of the training of heads, by AdamW without weight decay unless the method sets one.

    Attributes:
        hidden: units of the hidden layer.
        epochs: maximum number of epochs.
        holdout: share of the identities to hold out; training stops when the loss on them rises, or on half of them if
            there are enough to measure the heads on the other half. 0 holds out none.
        seed: seed of weights, orders, views and held-out identities.
        device: "auto", "cpu" or "cuda"; "auto" is a GPU if there is one.
        per_identity: images of each identity in a batch, for methods that draw batches by identity.
        norm: use the logarithm of the embedding's norm as a feature; None uses it if it is available.
    """

    hidden: int = Field(default=256, ge=1)
    epochs: int = Field(default=8, ge=1)
    batch_size: int = Field(default=512, ge=2)
    lr: float = Field(default=1e-3, gt=0)
    holdout: float = Field(default=0.1, ge=0, le=0.9)
    seed: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    per_identity: int = Field(default=4, ge=2)
    norm: bool | None = None


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


def train_heads(loss: FaceLoss, features: Features, labels: Labels, settings: HeadSettings) -> TrainedHeads:
    """Train a loss's head on features.

    Args:
        loss: its ``state`` is trained too.
        features: features of V views of N images, all first views first.
        labels: ``(N,)`` identities of the images, numbered without gaps.
    """
    # PyTorch's global generator must not change for the caller.
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return _train(loss, features, labels, settings)


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
    """Views of images, and the mean embeddings of the identities that they are compared with.

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
        self._unit, self._embedding, self._tap = (
            torch.from_numpy(values[rows]).to(device) for values in (features.unit, features.embedding, features.tap)
        )
        means = features.unit[: len(labels)][in_means]
        self.centers = LeaveOneOutMeans(torch.from_numpy(means), torch.from_numpy(mean_rows), len(identities)).to(
            device
        )

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def features(self) -> tuple[Tensor, Tensor]:
        """``(V·n, d)`` embeddings before normalization, and ``(V·n, f)`` values of the tapped tensor."""
        return self._embedding, self._tap

    def batches(self, loss: FaceLoss, size: int, per_identity: int, seed: int, epoch: int) -> list[list[SampleKey]]:
        """The epoch's batches of images, as a run would draw them."""
        steps = len(self) // size
        several = per_identity if loss.sampler == "identities" else None
        order = range(epoch * steps, (epoch + 1) * steps)
        return list(StepSampler(self.labels, size, seed, order, loss.views, several, slice(None), ()))

    def rows(self, batch: list[SampleKey], loss: FaceLoss) -> Tensor:
        """Rows ``(M·B,)`` of the features of a batch; all first views come first."""
        epochs, images, views = (torch.tensor(column) for column in zip(*batch, strict=True))
        return (epochs * loss.views + views) % self.views * len(self) + images

    def loss(self, heads: QualityHeads, loss: FaceLoss, batch: list[SampleKey], step: int) -> Tensor:
        """The mean loss of a batch; the views of an image come in turn."""
        rows = self.rows(batch, loss)
        images = rows % len(self)
        labels = torch.from_numpy(self.labels)[images].to(self._unit.device)
        # Rows of the first views, which are the original images.
        centers = self.centers.without(self._unit[images], labels)
        samples = torch.from_numpy(self.numbers)[images]
        outputs = heads(self._embedding[rows], self._tap[rows])
        return loss.of_batch(outputs, labels, samples=samples, step=step, centers=centers).total


def _train(loss: FaceLoss, features: Features, labels: Labels, settings: HeadSettings) -> TrainedHeads:
    """Train until the held-out loss rises, or for all epochs."""
    device, seed = choose_device(settings.device), settings.seed
    held = held_out(labels, settings.holdout, seed)
    measured = measured_half(labels, held, seed)
    images = _Images(features, labels, ~held, ~held, device)
    # Held-out images are compared with the means of other identities too, as images of new people would be.
    heldout = _Images(features, labels, ~measured, held & ~measured, device)
    if loss.views > images.views:
        raise Error(f"{loss.name} compares {loss.views} views of each image, but there are only {images.views}")
    heads = QualityHeads(*images.features, loss.heads(), settings.hidden, norm=bool(settings.norm)).to(device)
    learned = nn.ModuleDict({"heads": heads, "state": loss.state}).to(device)
    # Decoupled weight decay, which is what losses that set their own expect.
    optimizer = torch.optim.AdamW(loss.parameter_groups(heads), lr=settings.lr, weight_decay=0.0)
    for group in optimizer.param_groups:
        group["lr"] *= group.get("lr_scale", 1.0)
    size = min(settings.batch_size, len(images))
    steps = len(images) // size
    batches_of = partial(images.batches, loss, size, settings.per_identity, seed)
    check_size = min(settings.batch_size, len(heldout))
    checks = heldout.batches(loss, check_size, settings.per_identity, seed, 0) if check_size else []
    losses: list[float] = []
    heldout_losses: list[float] = []
    best = copy.deepcopy(learned.state_dict())
    with progress_bar() as bar:
        task = bar.add_task(loss.name, total=settings.epochs * steps, unit="batches")
        for epoch in range(settings.epochs):
            learned.train()
            total = 0.0
            for step, batch in enumerate(batches_of(epoch), epoch * steps):
                value = images.loss(heads, loss, batch, step)
                if not math.isfinite(value.item()):
                    raise NonFiniteLossError(f"the loss is {value.item()} at step {step}; lower train.lr")
                optimizer.zero_grad(set_to_none=True)
                value.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                total += value.item()
            losses.append(total / steps)
            bar.update(task, advance=steps)
            learned.eval()
            message = f"epoch {epoch + 1} loss {losses[-1]:.4f}"
            if checks:
                # Always with the same views and noise.
                heldout_losses.append(_mean_loss(heldout, heads, loss, checks))
                message += f", on held-out identities {heldout_losses[-1]:.4f}"
            say(message)
            if heldout_losses and heldout_losses[-1] > min(heldout_losses):
                break
            best = copy.deepcopy(learned.state_dict())
    learned.load_state_dict(best)
    learned.eval().cpu()
    identities = len(np.unique(images.labels))
    return TrainedHeads(heads, loss, losses, heldout_losses, len(images), identities, held, measured)


@torch.no_grad()
def _mean_loss(images: _Images, heads: QualityHeads, loss: FaceLoss, batches: list[list[SampleKey]]) -> float:
    try:
        return float(np.mean([images.loss(heads, loss, batch, 0).item() for batch in batches]))
    except Error as error:
        raise Error(f"on {len(images)} held-out images: {error}, or change train.holdout") from error


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
