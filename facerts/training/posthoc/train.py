"""Quality heads, and what a method keeps of its own, trained with its own loss on features that stay as they are."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from facerts.errors import DataError, Error, NonFiniteLossError
from facerts.io.progress import progress_bar
from facerts.training.class_head.leave_one_out_means import LeaveOneOutMeans
from facerts.training.learner import choose_device
from facerts.training.methods import Batch, Method
from facerts.training.posthoc.batches import Batches, Labels
from facerts.training.posthoc.features import Features
from facerts.training.posthoc.heads import QualityHeads


@dataclass(frozen=True)
class Settings:
    """How heads are trained, by Adam, whose weight decay is 0 but where a method asks for one.

    Attributes:
        hidden: units of the hidden layer.
        epochs: at most.
        batch_size: images per step.
        lr: learning rate.
        holdout: share of the identities that are kept out, to stop when the loss on them rises; 0 for none.
        seed: of weights, orders, views and held-out identities.
        device: "auto" takes a GPU where there is one.
        per_identity: images of each person in a batch, for methods that draw batches by identity.
        norm: whether heads read the logarithm of the embedding's length too; None where it is there and they can.
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
class Trained:
    """What training gives.

    Attributes:
        heads: as they were after the best epoch, in evaluation mode, on the CPU.
        method: whose ``score`` reads their outputs.
        loss: the mean of each epoch.
        heldout_loss: after each epoch; empty where nobody is held out.
        images: that were trained on.
        identities: whose images they are.
    """

    heads: QualityHeads
    method: Method
    loss: list[float]
    heldout_loss: list[float]
    images: int
    identities: int


def train_heads(method: Method, features: Features, labels: Labels, settings: Settings) -> Trained:
    """Train a method's heads on features.

    Args:
        method: with its settings; what its ``state`` learns, it learns here too.
        features: of V views of N images, all first views first.
        labels: ``(N,)`` the images' identities, numbered without gaps.
        settings: of the training.

    Raises:
        DataError: too few identities with two images.
        Error: the method compares more views of an image than there are, or too few people.
        NonFiniteLossError: the loss is no longer a number.
    """
    # Random numbers of its own: what a caller draws afterwards does not change.
    with torch.random.fork_rng():
        torch.manual_seed(settings.seed)
        return _Training(method, features, labels, settings).run()


def held_out(labels: Labels, share: float, seed: int) -> NDArray[np.bool_]:
    """``(N,)`` the images of a share of the identities, drawn by the seed.

    Raises:
        DataError: fewer than two identities with two images are left to train on.
    """
    several = np.flatnonzero(np.bincount(labels) >= 2)
    count = math.ceil(share * len(several))
    if len(several) - count < 2:
        raise DataError(
            f"{len(several)} identities have two images or more and {count} of them are to be held out; at least two "
            "must be left to train on"
        )
    return np.isin(labels, np.random.default_rng(seed).choice(several, count, replace=False))


class _Images:
    """Views of images, and the means of the identities that they are compared with.

    Args:
        features: of V views of all images.
        labels: of all images.
        compared: ``(N,)`` the images that the means are of.
        chosen: ``(N,)`` those of them that a loss is computed on, where their identity has others.
        device: of the tensors.

    Attributes:
        images: ``(n,)`` the images that a loss is computed on, as numbered in the data.
        labels: ``(n,)`` theirs.
        unit: ``(V·n, d)``; row v·n + i is view v of image i.
        tap: ``(V·n, f)``.
        centers: the means.
    """

    def __init__(
        self,
        features: Features,
        labels: Labels,
        compared: NDArray[np.bool_],
        chosen: NDArray[np.bool_],
        device: torch.device,
    ) -> None:
        identities, numbers = np.unique(labels[compared], return_inverse=True)
        place = np.full(len(labels), -1)
        place[compared] = numbers
        images = np.flatnonzero(chosen & (np.bincount(labels)[labels] >= 2))
        views = np.arange(len(features.unit) // len(labels))[:, None]
        rows = (views * len(labels) + images).reshape(-1)
        self.images = torch.from_numpy(images)
        self.labels = torch.from_numpy(place[images]).to(device)
        self.unit = torch.from_numpy(features.unit[rows]).to(device)
        self._norm = torch.from_numpy(features.norm[rows]).to(device)
        self.tap = torch.from_numpy(features.tap[rows]).to(device)
        self.centers = LeaveOneOutMeans(
            torch.from_numpy(features.unit[: len(labels)][compared]),
            torch.from_numpy(numbers),
            len(identities),
        ).to(device)

    def __len__(self) -> int:
        return len(self.images)

    def embedding(self, rows: slice | Tensor = slice(None)) -> Tensor:
        """``(B, d)`` before normalization."""
        return self.unit[rows] * self._norm[rows].unsqueeze(1)


class _Training:
    """Heads, optimizer and images of a run."""

    def __init__(self, method: Method, features: Features, labels: Labels, settings: Settings) -> None:
        views = len(features.unit) // len(labels)
        if method.views > views:
            raise Error(f"{method.name} compares {method.views} views of each image, and there are {views}")
        device = choose_device(settings.device)
        held = held_out(labels, settings.holdout, settings.seed)
        self._images = _Images(features, labels, ~held, ~held, device)
        # Held-out images meet everybody, as new people will.
        self._heldout = _Images(features, labels, np.ones_like(held), held, device)
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
        # A method that asks for weight decay means one that Adam's steps do not scale.
        self._optimizer = torch.optim.AdamW(groups, lr=settings.lr, weight_decay=0.0)
        for group in self._optimizer.param_groups:
            group["lr"] *= group.get("lr_scale", 1.0)
        self._size = min(settings.batch_size, len(self._images))

    def run(self) -> Trained:
        """Train until the held-out loss rises, or to the end."""
        losses: list[float] = []
        heldout_losses: list[float] = []
        best = copy.deepcopy(self._learned.state_dict())
        with progress_bar() as bar:
            steps = len(self._images) // self._size
            task = bar.add_task(self._method.name, total=self._settings.epochs * steps, unit="batches")
            for epoch in range(self._settings.epochs):
                losses.append(self._epoch(epoch, steps))
                bar.update(task, advance=steps)
                said = f"epoch {epoch + 1} loss {losses[-1]:.4f}"
                if len(self._heldout):
                    heldout_losses.append(self._measure())
                    said += f", on held-out identities {heldout_losses[-1]:.4f}"
                bar.console.print(said, highlight=False)
                if heldout_losses and heldout_losses[-1] > min(heldout_losses):
                    break
                best = copy.deepcopy(self._learned.state_dict())
        self._learned.load_state_dict(best)
        self._learned.eval().cpu()
        images, identities = len(self._images), len(torch.unique(self._images.labels))
        return Trained(self._heads, self._method, losses, heldout_losses, images, identities)

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
        """The mean loss on the held-out images, always on the same views and with the same noise."""
        self._learned.eval()
        parts = self._heldout_batches.of_all(self._settings.batch_size)
        try:
            total = sum(len(rows) * self._loss(self._heldout, rows, 0).item() for rows in parts)
        except Error as error:
            raise Error(f"on {len(self._heldout)} held-out images: {error}; or change --holdout") from error
        return total / sum(len(rows) for rows in parts)

    def _loss(self, images: _Images, rows: Tensor, step: int) -> Tensor:
        which = rows % len(images)
        samples = images.images[which]
        at, which = rows.to(images.unit.device), which.to(images.unit.device)
        labels = images.labels[which]
        outputs = self._heads(images.embedding(at), images.tap[at])
        batch = Batch(labels, samples, step, self._settings.seed)
        # The first view, which the means are of.
        centers = images.centers.without(images.unit[which], labels)
        return self._method.loss(outputs, batch, centers).total
