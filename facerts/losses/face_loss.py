"""A loss as a PyTorch module: its settings, its class centers, the head that it needs, its value, and its score.

    loss = RTS(num_classes=10_575, embedding_size=512)
    head = loss.head(in_features)                     # beside the embedding, for the losses that need one
    loss((embedding, head(features)), labels).backward()

The recipes run the same modules. A loss also turns the outputs of a trained network into the exported ones (``score``).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar, dataclass_transform

import torch
from pydantic import ConfigDict, Field
from pydantic import dataclasses as checked
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.errors import Error
from facerts.losses.face_heads import FACE_HEADS
from facerts.losses.margin import MarginGradient, additive_angular
from facerts.losses.noise import keyed_normal
from facerts.losses.partial_fc import PartialFC
from facerts.nn.device import to_device
from facerts.nn.twin_heads import FeatureHead, HeadSpec

Outputs = Mapping[str, Tensor]
# As PyTorch's optimizers take them.
ParameterGroups = list[dict[str, object]]
# Standard normal draws ``(B, count)``, the same for an image in a step whatever else the batch holds.
Noise = Callable[[int], Tensor]

NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
# In radians.
Angle = Annotated[float, Field(ge=0, lt=3.1415)]


Loss = TypeVar("Loss", bound="FaceLoss")

CHECKED = ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass_transform(kw_only_default=True)
def settings(loss: type[Loss]) -> type[Loss]:
    """Make the annotated fields of a loss its settings: arguments by name, which are checked when it is built."""
    return checked.dataclass(loss, kw_only=True, eq=False, repr=False, config=CHECKED)  # type: ignore[return-value]


@dataclasses.dataclass(frozen=True)
class LossValue:
    """The loss of one batch.

    Attributes:
        total: scalar to differentiate.
        parts: detached scalars to log, by name.
        per_image: detached ``(B,)`` values, by name; their mean and percentiles are logged.
    """

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
    per_image: dict[str, Tensor] = field(default_factory=dict)

    def backward(self) -> None:
        """Differentiate ``total``."""
        self.total.backward()  # type: ignore[no-untyped-call]

    def item(self) -> float:
        """``total`` as a number."""
        return self.total.item()


@checked.dataclass(eq=False, repr=False, config=CHECKED)
class FaceLoss(nn.Module, ABC):
    """Base class of the losses; subclasses say what they need, and define ``compute``.

    Args:
        num_classes: C, the identities; by default those of ``centers``. 0 builds no class centers, which is enough to
            score, and for losses that compare the images of a batch with each other.
        embedding_size: d.
        centers: class centers instead of a ``PartialFC`` of all C, such as ones that are sampled or sharded.
        seed: seed of the noise.

    Attributes:
        name: name in recipes.
        views: augmented views of each image in a batch.
        sampler: how batches are drawn: "shuffle", or "identities" for several images per identity.
        needs_centers: whether it compares with class centers.
        trains: "network", or "heads" if trunk and embedding stay as they were trained before.
        state: the loss's own buffers and parameters, such as moving averages. Exported files contain what ``score``
            reads of it.
        per_sample: values that only training reads, by name: ``(n,)`` tensors with one value for each image, indexed by
            its number. Checkpoints save them; exported files and runs that start from the weights have none.
    """

    name: ClassVar[str]
    views: ClassVar[int] = 1
    sampler: ClassVar[Literal["shuffle", "identities"]] = "shuffle"
    needs_centers: ClassVar[bool] = False
    trains: ClassVar[Literal["network", "heads"]] = "network"

    num_classes: Annotated[int, Field(ge=0)] = 0
    embedding_size: Annotated[int, Field(ge=1)] = 512
    _: KW_ONLY
    # Without a default of the class, which would hide the submodule.
    centers: PartialFC | None = field(default_factory=lambda: None)
    seed: int = 0

    def __post_init__(self) -> None:
        centers = self.__dict__.pop("centers")
        super().__init__()
        self.per_sample: dict[str, Tensor] = {}
        if centers is None and self.num_classes:
            centers = PartialFC(self.num_classes, self.embedding_size, seed=self.seed)
        if centers is not None:
            self.num_classes = self.num_classes or centers.num_classes
            size, theirs = (
                (self.num_classes, self.embedding_size),
                (centers.num_classes, centers.weight.shape[1]),
            )
            if size != theirs:
                raise Error(f"num_classes and embedding_size are {size}, but those of centers {theirs}")
        self.centers = centers
        self.state: Any = self.build_state()
        self._step = 0

    def build_state(self) -> nn.Module:
        """The module of the loss's own buffers and parameters; by default it has none."""
        return nn.Module()

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={getattr(self, key)!r}" for key in ("num_classes", *setting_names(type(self))))

    def heads(self) -> dict[str, HeadSpec]:
        """What the network outputs in addition to the embedding, by name; at most one."""
        return {}

    def head(self, in_features: int) -> FeatureHead:
        """A head for this loss: features ``(B, in_features)`` to its second input."""
        for spec in self.heads().values():
            return FeatureHead(self.embedding_size if spec.reads == "embedding" else in_features, spec)
        raise Error(f"{type(self).__name__} needs no head: it takes the embedding alone")

    @property
    def learns_beside_embedding(self) -> bool:
        """Whether it can be trained on a frozen network: it has a head, or ``score`` reads parameters of its own."""
        return bool(self.heads()) or any(parameter.requires_grad for parameter in self.state.parameters())

    def parameter_groups(self, network: nn.Module) -> ParameterGroups:
        """Parameter groups of a network and this loss for an optimizer; by default one with all that is trainable.

        A group may set ``lr_scale``, a factor on the scheduled learning rate, and its own ``weight_decay``.
        """
        return [{"params": [p for p in (*network.parameters(), *self.parameters()) if p.requires_grad]}]

    def forward(
        self,
        outputs: Tensor | Sequence[Tensor] | Outputs,
        labels: Tensor,
        *,
        samples: Tensor | None = None,
        step: int | None = None,
        ramp: float = 1.0,
        centers: PartialFC | None = None,
    ) -> LossValue:
        """The loss of a batch. With V views of N images, B = V·N, and row v·N + i is view v of image i.

        Args:
            outputs: embedding ``(B, d)`` before normalization; for losses with a head, a pair of it and the head's
                ``(B, size)``, or both by name. Half precision is converted to float32.
            labels: ``(B,) int64`` identities, 0 … C − 1.
            samples: ``(B,) int64`` numbers of the images in the data set, which key the noise; by default of the batch.
            step: step of the training, which keys the noise and the sampling; by default it counts the calls.
            ramp: share of the margin that is applied.
            centers: class centers to compare with instead of the module's own.
        """
        named = self._named(outputs)
        self._check(named, labels, centers or self.centers)
        if samples is None:
            samples = torch.arange(len(labels) // self.views).repeat(self.views)
        if step is None:
            step = self._count()
        if self.centers is not None:
            self.centers.begin(step)
        return self.of_batch(named, labels, samples=samples, step=step, ramp=ramp, centers=centers)

    def of_batch(
        self,
        outputs: Outputs,
        labels: Tensor,
        *,
        samples: Tensor,
        step: int,
        ramp: float = 1.0,
        centers: PartialFC | None = None,
    ) -> LossValue:
        """``forward`` for outputs by name, without its checks, which would wait for a GPU."""
        device = outputs["embedding"].device

        @torch.compiler.disable  # type: ignore[untyped-decorator]
        def noise(count: int) -> Tensor:
            return to_device(keyed_normal(self.seed, step, samples, count), device)

        with torch.autocast(device.type, enabled=False):
            wide = {name: value.float() if value.itemsize < 4 else value for name, value in outputs.items()}
            return self.compute(wide, labels, samples=samples, noise=noise, ramp=ramp, centers=centers or self.centers)

    @abstractmethod
    def compute(
        self, outputs: Outputs, labels: Tensor, *, samples: Tensor, noise: Noise, ramp: float, centers: Any
    ) -> LossValue:
        """The loss of a batch from ``embedding`` ``(B, d)`` and the head's output; ``centers`` are a ``PartialFC``."""

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _count(self) -> int:
        step = self._step
        self._step += self.training
        return step

    def _named(self, outputs: Tensor | Sequence[Tensor] | Outputs) -> Outputs:
        if isinstance(outputs, Mapping):
            return outputs
        given, names = [outputs] if isinstance(outputs, Tensor) else outputs, list(self._expected())
        if len(given) > len(names):
            raise Error(f"{type(self).__name__} takes {' and '.join(names)}, and got {len(given)} outputs")
        return dict(zip(names, given, strict=False))

    def _expected(self) -> dict[str, int]:
        return {"embedding": self.embedding_size, **{name: spec.size for name, spec in self.heads().items()}}

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _check(self, outputs: Outputs, labels: Tensor, centers: PartialFC | None) -> None:
        expected, rows = self._expected(), len(labels)
        if any(getattr(outputs.get(name), "shape", None) != (rows, size) for name, size in expected.items()):
            wanted = " and ".join(f"{name} ({rows}, {size})" for name, size in expected.items())
            found = " and ".join(f"{name} {tuple(value.shape)}" for name, value in outputs.items()) or "nothing"
            advice = "; loss.head(in_features) makes the head" if len(expected) > 1 else ""
            raise Error(f"{type(self).__name__} needs {wanted} for {rows} labels, and got {found}{advice}")
        if labels.dtype != torch.int64 or labels.ndim != 1:
            raise Error(f"labels must be (B,) int64, not {tuple(labels.shape)} {labels.dtype}")
        if rows % self.views:
            raise Error(f"{type(self).__name__} compares {self.views} views of each image, and {rows} rows are not")
        if centers is None and self.needs_centers:
            raise Error(f"{type(self).__name__} compares with class centers: build it with num_classes")
        if centers is None or self.num_classes == 0:
            return
        wrong = ((labels < 0) | (labels >= self.num_classes)).nonzero().flatten().tolist()
        if wrong:
            shown = ", ".join(f"{labels[row]} in row {row}" for row in wrong[:5])
            more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
            raise Error(f"labels must lie in 0 to {self.num_classes - 1}, the num_classes: {shown}{more} do not")

    def non_face_loss(self, outputs: Outputs) -> Tensor:
        """The loss of what the loss's own head says of non-faces, whose outputs are given; by default none."""
        return torch.zeros((), device=outputs["embedding"].device)

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        """The exported outputs, computed from the network's outputs in evaluation mode.

        They are unit ``embedding`` ``(N, d)``; ``norm``, ``quality`` and ``uncertainty`` ``(N,)``; and extras. By
        default the norm of the embedding is the quality. Losses that learn a quality override this.
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


def setting_names(loss: type[FaceLoss]) -> list[str]:
    """The names of a loss's own settings, as recipes give them."""
    common = {each.name for each in dataclasses.fields(FaceLoss)}
    return [each.name for each in dataclasses.fields(loss) if each.name not in common]


@dataclasses.dataclass(frozen=True)
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


@settings
class ClassificationLoss(FaceLoss):
    """Losses that classify identities by scaled cosines to class centers, with a margin on the target.

    A loss defines what depends on the image in ``image_terms``, and its margin on the target cosine in
    ``apply_margin``. The class centers compute the cross-entropy themselves, so that they can be sharded.

    Args:
        logit_scale: γ.
    """

    needs_centers = True
    logit_scale: Positive = 64.0

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        """Temperature, penalty and values to log of each image; by default only its embedding."""
        return ImageTerms(outputs["embedding"])

    @abstractmethod
    def apply_margin(self, cosine: Tensor, embedding: Tensor, ramp: float) -> Tensor:
        """The target cosines ``(B,)`` after the share ``ramp`` of the margin."""

    def compute(
        self, outputs: Outputs, labels: Tensor, *, noise: Noise, ramp: float, centers: Any, **_: Any
    ) -> LossValue:
        """Mean cross-entropy over the batch plus the mean penalty."""
        terms = self.image_terms(outputs, noise)
        scale = torch.full((), self.logit_scale, dtype=torch.float32, device=terms.embedding.device)
        if terms.temperature is not None:
            scale = scale / terms.temperature
        entropy = centers(
            terms.embedding, labels, lambda cosine: self.apply_margin(cosine, terms.embedding, ramp), scale
        ).mean()
        total = entropy if terms.penalty is None else entropy + terms.penalty.mean()
        return LossValue(total, {"cross_entropy": entropy.detach(), **terms.parts}, terms.per_image)


@settings
class ArcMarginLoss(ClassificationLoss):
    """Base of the losses with ArcFace's margin.

    Args:
        margin: m in radians, after the ramp.
        margin_gradient: see ``margin.additive_angular``.
    """

    margin: Angle = 0.5
    margin_gradient: MarginGradient = "exact"

    def apply_margin(self, cosine: Tensor, embedding: Tensor, ramp: float) -> Tensor:
        """cos(θ + m)."""
        return additive_angular(cosine, self.margin * ramp, self.margin_gradient)
