"""What a training method is: what it needs, its loss, and how it scores.

The training loop knows no method by name. A method declares its heads, views, sampler, trainable parts and parameter
groups, and gives a loss; after training it turns the network's outputs into the exported ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.distributed.collectives import Processes
from facerts.training.methods.margin import MarginGradient, additive_angular
from facerts.training.nn.heads import HeadSpec

Outputs = Mapping[str, Tensor]
Margin = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """What the loop knows about a step's images.

    With V views of N images, B = V·N: row v·N + i is view v of image i, and labels and samples repeat.

    Attributes:
        labels: ``(B,) int64``.
        samples: ``(B,) int64``, indices into the data set; they key the noise.
        step: of the run, from 0.
        seed: of the run.
        ramp: how much of its margin a method uses at this step, 0 to 1.
        processes: each of which has a batch of its own at this step; what depends on the whole of them asks here.
    """

    labels: Tensor
    samples: Tensor
    step: int
    seed: int
    ramp: float = 1.0
    processes: Processes = field(default_factory=Processes)


@dataclass(frozen=True)
class Loss:
    """A step's loss.

    Attributes:
        total: scalar to differentiate.
        parts: named scalars to log, detached.
        per_image: named ``(B,)`` values whose mean and percentiles are logged, detached.
    """

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    per_image: dict[str, Tensor] = field(default_factory=dict)


class Centers(Protocol):
    """Class centers: the one place that knows all identities, whole or sharded over processes."""

    def __call__(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """Softmax cross-entropy of each embedding against every class center.

        Args:
            embedding: ``(B, d)``, any length.
            labels: ``(B,) int64``.
            margin: changes the cosines of the targets, ``(B,)`` to ``(B,)``.
            scale: multiplies an image's logits: a scalar or ``(B,)``.

        Returns:
            ``(B,)`` cross-entropies.
        """
        ...

    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine of each embedding to its own class center and the largest to another, ``(B,)`` each, no gradient."""
        ...

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosine of each embedding to every class center, for methods that need them all."""
        ...


class MethodConfig(BaseModel):
    """Settings of a method, as a recipe gives them."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Method(ABC):
    """One training method with its settings.

    Attributes:
        name: in the registry and in recipes.
        Config: its settings.
        views: augmented views of each image in a batch.
        sampler: how a batch is drawn: "shuffle", or "identities" for several images of each person in it.
        trains: "network", or "heads" where trunk and embedding stay as they were trained before.
        state: what the method itself has to keep: moving averages, parameters of its own. Checkpoints save it, and
            exported files hold what ``score`` reads of it.
    """

    name: ClassVar[str]
    Config: ClassVar[type[MethodConfig]]
    views: ClassVar[int] = 1
    sampler: ClassVar[Literal["shuffle", "identities"]] = "shuffle"
    trains: ClassVar[Literal["network", "heads"]] = "network"

    def __init__(self, config: MethodConfig, embedding_size: int = 512) -> None:
        self.config: Any = config
        self.embedding_size = embedding_size
        self.state = nn.Module()

    def heads(self) -> dict[str, HeadSpec]:
        """The heads beside the embedding that the network must have."""
        return {}

    def parameter_groups(self, network: nn.Module, centers: nn.Module) -> list[dict[str, Any]]:
        """What is trained, in the optimizer's groups; by default everything alike.

        A group may have ``lr_scale``, which multiplies the schedule's learning rate, and its own ``weight_decay``.
        """
        parameters = [*network.parameters(), *centers.parameters(), *self.state.parameters()]
        return [{"params": [parameter for parameter in parameters if parameter.requires_grad]}]

    @abstractmethod
    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """The loss of a step.

        Args:
            outputs: of the network, ``embedding`` ``(B, d)`` and the method's heads.
            batch: labels and keys.
            centers: the class centers, for methods that classify.
        """

    @abstractmethod
    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        """The exported outputs, from the network's outputs in evaluation mode.

        Returns:
            unit ``embedding`` ``(N, d)``; ``norm``, ``quality`` and ``uncertainty`` ``(N,)``; and extras.
        """


def unit_embedding(outputs: Outputs) -> dict[str, Tensor]:
    """The part of a score that all methods share: the unit embedding and the length that it had."""
    embedding = outputs["embedding"]
    return {"embedding": F.normalize(embedding, dim=1), "norm": torch.linalg.vector_norm(embedding, dim=1)}


class MarginConfig(MethodConfig):
    """Settings of every method with an ArcFace head.

    Attributes:
        logit_scale: γ.
        margin: m in radians, after the ramp.
        margin_gradient: see ``margin.additive_angular``.
    """

    logit_scale: float = Field(64.0, gt=0)
    margin: float = Field(0.5, ge=0, lt=3.1415)
    margin_gradient: MarginGradient = "exact"


@dataclass(frozen=True)
class ImageTerms:
    """What a classification method says of each image, computed where the image is.

    Attributes:
        embedding: ``(B, d)``, compared with the class centers.
        temperature: ``(B,)``, divides the image's logits; None for 1.
        penalty: ``(B,)``, added to the image's cross-entropy; None for 0.
        parts: named scalars to log.
        per_image: named ``(B,)`` values to log.
    """

    embedding: Tensor
    temperature: Tensor | None = None
    penalty: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    per_image: dict[str, Tensor] = field(default_factory=dict)


class ClassificationMethod(Method):
    """Methods that tell identities apart by scaled cosines to class centers with a margin on the target.

    A method says what it has to say of each image in ``image_terms`` and of the target's cosine in
    ``margin``; the cross-entropy over all centers is the centers' own work, so that they can be sharded.
    """

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        """Temperature, penalty and what else depends on the image alone; by default only its embedding."""
        return ImageTerms(outputs["embedding"])

    def margin(self, terms: ImageTerms, batch: Batch) -> Margin:
        """The function from the target's cosine to the cosine with margin; by default ArcFace's."""
        margin = self.config.margin * batch.ramp
        return lambda cosine: additive_angular(cosine, margin, self.config.margin_gradient)

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean cross-entropy over the batch plus the mean penalty."""
        terms = self.image_terms(outputs, batch)
        scale = torch.as_tensor(self.config.logit_scale, dtype=torch.float32, device=terms.embedding.device)
        if terms.temperature is not None:
            scale = scale / terms.temperature
        entropy = centers(terms.embedding, batch.labels, self.margin(terms, batch), scale).mean()
        total = entropy if terms.penalty is None else entropy + terms.penalty.mean()
        return Loss(total, {"cross_entropy": entropy.detach(), **terms.parts}, terms.per_image)
