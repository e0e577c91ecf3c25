"""A training run as a classifier: its network, its class centers, and the logits that they give."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from facerts.errors import Error
from facerts.training.checkpoint import FILE, load_checkpoint, load_network
from facerts.training.class_head.centers import ClassCenters
from facerts.training.methods import Method
from facerts.training.nn import FaceNetwork
from facerts.training.recipe import Recipe


@dataclass(frozen=True)
class Classifier:
    """A run's network and class centers, both in evaluation mode and without gradients of their own.

    Attributes:
        path: of the checkpoint file.
        network: the network.
        method: whose ``score`` reads its outputs.
        recipe: of the run.
        centers: of the C identities that it was trained on.
    """

    path: Path
    network: FaceNetwork
    method: Method
    recipe: Recipe
    centers: ClassCenters

    @property
    def name(self) -> str:
        """Of the run's folder, or of a checkpoint with a name of its own."""
        return self.path.parent.resolve().name if self.path.name == FILE else self.path.stem

    @property
    def identities(self) -> int:
        """C."""
        return len(self.centers.weight)

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        return self.centers.weight.device

    def check_classifies(self) -> None:
        """Refuse methods that train no softmax over the class centers.

        Raises:
            Error: the method has no logit_scale.
        """
        if not hasattr(self.method.config, "logit_scale"):
            raise Error(
                f"{self.path}: {self.method.name} trains no softmax over class centers (it has no logit_scale), so "
                "there are no logits to score by; give a run of a classification method such as arcface, or a "
                "score of the embedding alone (ser_fiq)"
            )

    def logits(self, embedding: Tensor) -> Tensor:
        """``(B, d)`` embeddings of any length to ``(B, C)`` logits γ cos θ, without margin.

        A temperature that the method itself gives an image (RTS, relaxed softmax, GODIN) is left out: it is the
        method's own quality.
        """
        return float(self.method.config.logit_scale) * self.centers.cosines(embedding)

    def image_logits(self, images: Tensor) -> Tensor:
        """``(B, 3, 112, 112)`` network inputs to ``(B, C)`` logits."""
        return self.logits(self.network.embedding(self.network.trunk(images)))

    def image_quality(self, images: Tensor) -> Tensor:
        """``(B, 3, 112, 112)`` network inputs to the method's own quality, ``(B,)``."""
        return self.method.score(self.network(images))["quality"]


def load_classifier(run: str | Path) -> Classifier:
    """A run's classifier, from its folder or from a checkpoint file; on a GPU where there is one.

    Raises:
        ModelError: no such run.
    """
    path = Path(run) / FILE if Path(run).is_dir() else Path(run)
    trained = load_network(path)
    _, state = load_checkpoint(path)
    centers = ClassCenters(trained.identities, trained.recipe.backbone.embedding_size)
    centers.load_state_dict(state["centers"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for module in (trained.network, centers, trained.method.state):
        module.eval().requires_grad_(False).to(device)
    return Classifier(path, trained.network, trained.method, trained.recipe, centers)
