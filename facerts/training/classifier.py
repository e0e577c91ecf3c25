"""A training run as a classifier: network, class centers and logits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from facerts.errors import Error
from facerts.losses import ClassificationLoss, FaceLoss, PartialFC
from facerts.nn import FaceNetwork
from facerts.training.checkpoint import FILE, load_checkpoint, load_network
from facerts.training.recipe import Recipe


@dataclass(frozen=True)
class Classifier:
    """Network and class centers of a run, in evaluation mode and without gradients of their parameters.

    Attributes:
        loss: its ``score`` turns the network's outputs into the exported ones.
        centers: class centers of the C training identities.
    """

    path: Path
    network: FaceNetwork
    loss: FaceLoss
    recipe: Recipe
    centers: PartialFC

    @property
    def name(self) -> str:
        """Name of the run's folder, or of the checkpoint file if it was renamed."""
        return self.path.parent.resolve().name if self.path.name == FILE else self.path.stem

    @property
    def identities(self) -> int:
        """C, the number of training identities."""
        return len(self.centers.weight)

    @property
    def device(self) -> torch.device:
        """The device of the network."""
        return self.centers.weight.device

    def cosines(self, embedding: Tensor) -> Tensor:
        """Cosines ``(B, C)`` of embeddings ``(B, d)`` of any norm to the class centers; an error without a softmax."""
        if not isinstance(self.loss, ClassificationLoss):
            raise Error(
                f"{self.path}: {self.loss.name} trains no softmax over class centers (it has no logit_scale), so "
                "there are no logits; use a run of a classification method such as arcface, or a score that needs "
                "only the embedding (ser_fiq)"
            )
        return self.centers.cosines(embedding)

    def logits(self, embedding: Tensor) -> Tensor:
        """Logits γ cos θ ``(B, C)`` of embeddings ``(B, d)`` of any norm, without margin.

        Temperatures that the method predicts for an image (RTS, relaxed softmax, GODIN) are left out, because they are
        the method's own quality.
        """
        cosines = self.cosines(embedding)
        assert isinstance(self.loss, ClassificationLoss)
        return self.loss.logit_scale * cosines

    def image_logits(self, images: Tensor) -> Tensor:
        """Logits ``(B, C)`` of network inputs ``(B, 3, 112, 112)``."""
        return self.logits(self.network.embedding(self.network.trunk(images)))

    def image_quality(self, images: Tensor) -> Tensor:
        """The method's own quality ``(B,)`` of network inputs ``(B, 3, 112, 112)``."""
        return self.loss.score(self.network(images))["quality"]


def load_classifier(run: str | Path) -> Classifier:
    """Load a run's classifier from its folder or a checkpoint file, onto a GPU if there is one."""
    path = Path(run) / FILE if Path(run).is_dir() else Path(run)
    trained = load_network(path)
    _, state = load_checkpoint(path)
    centers = PartialFC(trained.identities, trained.recipe.backbone.embedding_size)
    centers.load_state_dict(state["centers"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for module in (trained.network, centers, trained.loss.state):
        module.eval().requires_grad_(False).to(device)
    return Classifier(path, trained.network, trained.loss, trained.recipe, centers)
