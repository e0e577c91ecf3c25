"""Trains a method's quality heads and its own parameters on fixed features, with the method's own loss."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.datasets.sampler import epoch_order, identity_order
from facerts.errors import DataError, Error, NonFiniteLossError
from facerts.io.console import say
from facerts.io.progress import progress_bar
from facerts.training.class_head.leave_one_out_means import LeaveOneOutMeans
from facerts.training.device import choose_device
from facerts.training.methods import Batch, Method
from facerts.training.nn import HeadSpec
from facerts.training.nn.twin_heads import FeatureHead
from facerts.training.posthoc.features import Features, Labels

# Fewer people to measure on would give no useful intervals.
MIN_MEASURED = 20
# Dividing a constant feature by its standard deviation would amplify rounding errors.
MIN_DEVIATION = 1e-6
# Keeps the logarithm of a zero norm finite.
MIN_NORM = 1e-6


@dataclass(frozen=True)
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

    hidden: int = 256
    epochs: int = 8
    batch_size: int = 512
    lr: float = 1e-3
    holdout: float = 0.1
    seed: int = 0
    device: str = "auto"
    per_identity: int = 4
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
    method: Method
    loss: list[float]
    heldout_loss: list[float]
    images: int
    identities: int
    held_out: NDArray[np.bool_]
    measured: NDArray[np.bool_]


def train_heads(method: Method, features: Features, labels: Labels, settings: HeadSettings) -> TrainedHeads:
    """Train a method's heads on features.

    Args:
        method: its ``state`` is trained too.
        features: features of V views of N images, all first views first.
        labels: ``(N,)`` identities of the images, numbered without gaps.

    Raises:
        NonFiniteLossError: the loss is infinite or NaN.
    """
    # PyTorch's global generator must not change for the caller.
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return _Training(method, features, labels, settings).run()


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
    return held & np.isin(
        labels, np.random.default_rng((seed, 1)).choice(people, len(people) // 2, replace=False)
    )


class Batches:
    """Batches of row indices as a method declares them: how many views of an image, and whether several of an identity.

    Row v·N + i is view v of image i, one of V; ``labels`` are the identities ``(N,)`` of the images.
    """

    def __init__(self, method: Method, labels: Labels, views: int, per_identity: int, seed: int) -> None:
        self._labels = labels
        self._views, self._method_views = views, method.views
        self._per_identity = per_identity if method.sampler == "identities" else None
        # Otherwise the loss of an image does not depend on the rest of the batch.
        self._compares = method.views > 1 or method.sampler == "identities"
        self._seed = seed

    def of_epoch(self, epoch: int, size: int) -> list[Tensor]:
        """Rows ``(M·size,)`` of each step, for M views of each image; all first views come first.

        A short last batch is dropped: BatchNorm cannot train on a single image.
        """
        rows = self._rows(self._order(epoch), epoch)
        return [rows[:, step * size : (step + 1) * size].reshape(-1) for step in range(rows.shape[1] // size)]

    def of_all(self, size: int) -> list[Tensor]:
        """Rows ``(M·B,)`` of batches that cover all images, B at most ``size``, always the same; to measure a loss."""
        count = len(self._labels)
        if not self._compares:
            return [part.reshape(-1) for part in torch.split(self._rows(np.arange(count), 0), size, dim=1)]
        # Shuffled and of similar sizes, because each image is contrasted with its batch.
        parts = self._rows(self._order(0), 0).tensor_split(max(-(-count // size), 1), dim=1)
        return [part.reshape(-1) for part in parts if part.numel()]

    def _order(self, epoch: int) -> NDArray[np.int64]:
        count = len(self._labels)
        if self._per_identity is None or not count:
            return epoch_order(count, self._seed, epoch)
        return identity_order(self._labels, self._per_identity, count, self._seed, epoch)

    def _rows(self, order: NDArray[np.int64], epoch: int) -> Tensor:
        """Rows ``(M, B)`` of M different views of each image."""
        views = np.zeros((self._method_views, len(order)), dtype=np.int64)
        if self._views > 1:
            random = np.random.default_rng((self._seed, epoch, self._views))
            views = random.random((self._views, len(order))).argsort(axis=0)[: self._method_views]
        return torch.from_numpy(views * len(self._labels) + order)


class _ImageSet:
    """Views of images, and the mean embeddings of the identities that they are compared with.

    Args:
        features: features of V views of all images.
        in_means: ``(N,)`` mask of the images whose identities have means.
        in_loss: ``(N,)`` mask of those images on which the loss is computed, if their identity has other images.

    Attributes:
        images: ``(n,)`` indices of the images on which the loss is computed.
        labels: ``(n,)`` rows of their identities' means.
        unit: ``(V·n, d)`` unit embeddings; row v·n + i is view v of image i.
        tap: ``(V·n, f)`` values of the tapped tensor.
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
        images = np.flatnonzero(in_loss & (np.bincount(labels)[labels] >= 2))
        views = np.arange(len(features.unit) // len(labels))[:, None]
        rows = (views * len(labels) + images).reshape(-1)
        self.images = torch.from_numpy(images)
        self.labels = torch.from_numpy(mean_of_image[images]).to(device)
        self.unit = torch.from_numpy(features.unit[rows]).to(device)
        self._norm = torch.from_numpy(features.norm[rows]).to(device)
        self.tap = torch.from_numpy(features.tap[rows]).to(device)
        self.centers = LeaveOneOutMeans(
            torch.from_numpy(features.unit[: len(labels)][in_means]),
            torch.from_numpy(mean_rows),
            len(identities),
        ).to(device)

    def __len__(self) -> int:
        return len(self.images)

    def embedding(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """``(B, d)`` embeddings before normalization."""
        return self.unit[rows] * self._norm[rows].unsqueeze(1)


class _Training:
    """Heads, optimizer and images of one training of heads."""

    def __init__(self, method: Method, features: Features, labels: Labels, settings: HeadSettings) -> None:
        views = len(features.unit) // len(labels)
        if method.views > views:
            raise Error(
                f"{method.name} compares {method.views} views of each image, but there are only {views}"
            )
        device = choose_device(settings.device)
        self._held = held = held_out(labels, settings.holdout, settings.seed)
        self._images = _ImageSet(features, labels, ~held, ~held, device)
        self._measured = measured_half(labels, held, settings.seed)
        # Held-out images are compared with the means of other identities too, as images of new people would be.
        self._heldout = _ImageSet(features, labels, ~self._measured, held & ~self._measured, device)
        self._method, self._settings = method, settings
        self._batches, self._heldout_batches = (
            Batches(method, images.labels.cpu().numpy(), views, settings.per_identity, settings.seed)
            for images in (self._images, self._heldout)
        )
        self._heads = QualityHeads(
            self._images.embedding(),
            self._images.tap,
            method.heads(),
            settings.hidden,
            norm=bool(settings.norm),
        ).to(device)
        self._learned = nn.ModuleDict({"heads": self._heads, "state": method.state}).to(device)
        groups = method.parameter_groups(self._heads, self._images.centers)
        # Decoupled weight decay, which is what methods that set their own expect.
        self._optimizer = torch.optim.AdamW(groups, lr=settings.lr, weight_decay=0.0)
        for group in self._optimizer.param_groups:
            group["lr"] *= group.get("lr_scale", 1.0)
        self._size = min(settings.batch_size, len(self._images))

    def run(self) -> TrainedHeads:
        """Train until the held-out loss rises, or for all epochs."""
        losses: list[float] = []
        heldout_losses: list[float] = []
        best = copy.deepcopy(self._learned.state_dict())
        with progress_bar() as bar:
            steps = len(self._images) // self._size
            task = bar.add_task(self._method.name, total=self._settings.epochs * steps, unit="batches")
            for epoch in range(self._settings.epochs):
                losses.append(self._epoch(epoch, steps))
                bar.update(task, advance=steps)
                message = f"epoch {epoch + 1} loss {losses[-1]:.4f}"
                if len(self._heldout):
                    heldout_losses.append(self._measure())
                    message += f", on held-out identities {heldout_losses[-1]:.4f}"
                say(message)
                if heldout_losses and heldout_losses[-1] > min(heldout_losses):
                    break
                best = copy.deepcopy(self._learned.state_dict())
        self._learned.load_state_dict(best)
        self._learned.eval().cpu()
        images, identities = len(self._images), len(torch.unique(self._images.labels))
        return TrainedHeads(
            self._heads, self._method, losses, heldout_losses, images, identities, self._held, self._measured
        )

    def _epoch(self, epoch: int, steps: int) -> float:
        self._learned.train()
        total = 0.0
        for number, rows in enumerate(self._batches.of_epoch(epoch, self._size)):
            step = epoch * steps + number
            loss = self._loss(self._images, rows, step)
            if not math.isfinite(loss.item()):
                raise NonFiniteLossError(f"the loss is {loss.item()} at step {step}; lower --lr")
            self._optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            total += loss.item()
        return total / steps

    @torch.no_grad()
    def _measure(self) -> float:
        """Mean loss on the held-out images, always with the same views and noise."""
        self._learned.eval()
        parts = self._heldout_batches.of_all(self._settings.batch_size)
        try:
            total = sum(len(rows) * self._loss(self._heldout, rows, 0).item() for rows in parts)
        except Error as error:
            raise Error(f"on {len(self._heldout)} held-out images: {error}, or change --holdout") from error
        return total / sum(len(rows) for rows in parts)

    def _loss(self, images: _ImageSet, rows: Tensor, step: int) -> Tensor:
        # Rows of the first views, which are the original images.
        originals = rows % len(images)
        samples = images.images[originals]
        rows, originals = rows.to(images.unit.device), originals.to(images.unit.device)
        labels = images.labels[originals]
        outputs = self._heads(images.embedding(rows), images.tap[rows])
        batch = Batch(labels, samples, step, self._settings.seed)
        centers = images.centers.without(images.unit[originals], labels)
        return self._method.loss(outputs, batch, centers).total


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
