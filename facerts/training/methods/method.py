"""The interface of a training method: what it needs, its loss, and its score.

The training loop knows no method by name. A method declares its heads, views, sampler, trainable parts and parameter
groups, and computes a loss. After training it turns the network's outputs into the exported ones.
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
from facerts.training.face_heads import FACE_HEADS
from facerts.training.methods.margin import MarginGradient, additive_angular
from facerts.training.nn.twin_heads import HeadSpec

Outputs = Mapping[str, Tensor]
Margin = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """What the loop knows about the images of one step.

    With V views of N images, B = V·N. Row v·N + i is view v of image i, so labels and samples repeat V times.

    Attributes:
        labels: ``(B,) int64``.
        samples: ``(B,) int64``, indices into the data set; they key the noise.
        step: step of the run, from 0.
        ramp: share of its margin that a method applies at this step, 0 to 1.
        processes: the processes of the run, each with its own batch; for statistics over all of them.
        views: ``(B,) int64``, which of the recipe's keyed views the images are.
        covered: ``(B,) int64``, whether something covers the face; see ``facerts.training.face_heads``.
    """

    labels: Tensor
    samples: Tensor
    step: int
    seed: int
    ramp: float = 1.0
    processes: Processes = field(default_factory=Processes)
    views: Tensor | None = None
    covered: Tensor | None = None


@dataclass(frozen=True)
class Loss:
    """The loss of one step.

    Attributes:
        total: scalar to differentiate.
        parts: detached scalars to log, by name.
        per_image: detached ``(B,)`` values, by name; their mean and percentiles are logged.
    """

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    per_image: dict[str, Tensor] = field(default_factory=dict)


class Centers(Protocol):
    """Class centers: the only part that knows all identities, whole or sharded over processes."""

    def __call__(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """Softmax cross-entropy ``(B,)`` of each embedding against every class center.

        Args:
            embedding: ``(B, d)``, of any norm.
            labels: ``(B,) int64``.
            margin: function applied to the target cosines, ``(B,)`` to ``(B,)``.
            scale: factor on an image's logits: a scalar or ``(B,)``; or ``(B, K)`` for the mean of K cross-entropies.
        """
        ...

    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own class center and maximum cosine to any other, ``(B,)`` each, without gradient."""
        ...

    def own(self, embedding: Tensor, labels: Tensor) -> Tensor:
        """Cosine ``(B,)`` to the own class center alone, without gradient."""
        ...

    @property
    def is_learned(self) -> bool:
        """Whether training changes the centers."""
        ...

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosines of each embedding to every class center, for methods that need all of them."""
        ...


class MethodConfig(BaseModel):
    """Settings of a method, as written in a recipe."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Method(ABC):
    """One training method with its settings.

    Attributes:
        name: name in the registry and in recipes.
        views: augmented views of each image in a batch.
        sampler: how batches are drawn: "shuffle", or "identities" for several images per identity.
        trains: "network", or "heads" if trunk and embedding stay as they were trained before.
        state: the method's own buffers and parameters, such as moving averages. Checkpoints save it, and exported files
            contain what ``score`` reads of it.
        per_sample: values that only training reads, by name: ``(n,)`` tensors with one value for each image, indexed by
            ``Batch.samples``. Checkpoints save them; exported files and runs that start from the weights have none.
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
        self.per_sample: dict[str, Tensor] = {}

    def heads(self) -> dict[str, HeadSpec]:
        """Heads that the network needs in addition to the embedding, by name."""
        return {}

    @property
    def learns_beside_embedding(self) -> bool:
        """Whether it can be trained on a frozen network: it has heads, or ``score`` reads parameters of its own."""
        return bool(self.heads()) or any(parameter.requires_grad for parameter in self.state.parameters())

    def parameter_groups(self, network: nn.Module, centers: nn.Module) -> list[dict[str, Any]]:
        """Parameter groups for the optimizer; by default a single group with everything that is trainable.

        A group may set ``lr_scale``, a factor on the scheduled learning rate, and its own ``weight_decay``.
        """
        parameters = [*network.parameters(), *centers.parameters(), *self.state.parameters()]
        return [{"params": [parameter for parameter in parameters if parameter.requires_grad]}]

    @abstractmethod
    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """The loss of one step, from the network's outputs: ``embedding`` ``(B, d)`` and the method's heads."""

    def non_face_loss(self, outputs: Outputs) -> Tensor:
        """The loss of what the method's own heads say of non-faces, whose outputs are given; by default none."""
        return torch.zeros((), device=outputs["embedding"].device)

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        """The exported outputs, computed from the network's outputs in evaluation mode.

        They are unit ``embedding`` ``(N, d)``; ``norm``, ``quality`` and ``uncertainty`` ``(N,)``; and extras. By
        default the norm of the embedding is the quality. Methods that learn a quality override this.
        """
        scored = self.scored(outputs)
        return {**scored, "quality": scored["norm"], "uncertainty": -scored["norm"]}

    @staticmethod
    def scored(outputs: Outputs, **scores: Tensor) -> dict[str, Tensor]:
        """Further scores with the unit embedding, the norm before normalization and the face heads if there are any."""
        embedding = outputs["embedding"]
        norm = torch.linalg.vector_norm(embedding, dim=1)
        of_face = {name: outputs[name].squeeze(1) for name in FACE_HEADS if name in outputs}
        return {"embedding": F.normalize(embedding, dim=1), "norm": norm, **scores, **of_face}


class MarginConfig(MethodConfig):
    """Settings shared by all methods with an ArcFace head: γ, m in radians after the ramp, and its gradient."""

    logit_scale: float = Field(64.0, gt=0)
    margin: float = Field(0.5, ge=0, lt=3.1415)
    margin_gradient: MarginGradient = "exact"


@dataclass(frozen=True)
class ImageTerms:
    """The terms of a classification loss that depend on the image alone, computed by the process that has the image.

    Attributes:
        embedding: ``(B, d)``, compared with the class centers.
        temperature: ``(B,)`` divisor of the image's logits, or ``(B, K)`` for the mean loss of K; None for 1.
        penalty: ``(B,)`` term added to the image's cross-entropy; None for 0.
        parts: scalars to log, by name.
        per_image: ``(B,)`` values to log, by name.
    """

    embedding: Tensor
    temperature: Tensor | None = None
    penalty: Tensor | None = None
    parts: dict[str, Tensor] = field(default_factory=dict)
    per_image: dict[str, Tensor] = field(default_factory=dict)


class ClassificationMethod(Method):
    """Methods that classify identities by scaled cosines to class centers, with a margin on the target.

    A method defines what depends on the image in ``image_terms``, and its margin on the target cosine in ``margin``.
    The class centers compute the cross-entropy themselves, so that they can be sharded.
    """

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        """Temperature, penalty and values to log of each image; by default only its embedding."""
        return ImageTerms(outputs["embedding"])

    def margin(self, terms: ImageTerms, batch: Batch) -> Margin:
        """The function that applies the margin to the target cosines; by default ArcFace's."""
        margin = self.config.margin * batch.ramp
        return lambda cosine: additive_angular(cosine, margin, self.config.margin_gradient)

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean cross-entropy over the batch plus the mean penalty."""
        terms = self.image_terms(outputs, batch)
        scale = torch.full((), self.config.logit_scale, dtype=torch.float32, device=terms.embedding.device)
        if terms.temperature is not None:
            scale = scale / terms.temperature
        entropy = centers(terms.embedding, batch.labels, self.margin(terms, batch), scale).mean()
        total = entropy if terms.penalty is None else entropy + terms.penalty.mean()
        return Loss(total, {"cross_entropy": entropy.detach(), **terms.parts}, terms.per_image)
