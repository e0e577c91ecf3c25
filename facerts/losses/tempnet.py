"""TempNet: a network that predicts the temperature of each image's robust contrastive loss.

Qiu, Guo, Xu, Zhao, Zhang, Yang: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via
DRO", ICML 2024. The loss f of an image at temperature τ is that of ``robust_loss``, with cosines as logits. A small
network on the detached unit embedding ŷ predicts the temperature that minimizes f:

    v = σ(W₁ ŷ + b₁) ∈ R^{d1},   σ the sigmoid
    u = W̄₂ᵀ v ∈ R^{d2},   the columns of W̄₂ unit vectors
    s = (1/ρ) [Σ_k (softmax(u/φ)_k − 1/d2) w₃ₖ u_k − b]
    τ = τ_0 + (τ_max − τ_0) σ(s)

Here u corresponds to the logits of d2 learned references, and b to the b of the fixed point in ``robust_loss``. Both
networks are trained together: L = mean_i f_i(τ(x_i)).

The mean over C in f is over the images of the batch or, with ``denominator_rate`` below 1, a moving average over the
batches of the run, as in the paper, which optimizes f as iSogCLR does (Qiu et al., "Not All Semantics are Created
Equal", ICML 2023) and, with one temperature, SogCLR (Yuan et al., "Provable Stochastic Optimization for Global
Contrastive Learning", ICML 2022). For the view v of an image with average u:

    g_v = (1/|C|) Σ_{k∈C} exp((L_k − L_+)/τ),   C in the batch
    u_v = (1 − γ) u + γ g_v,   or g_v in the image's first step
    u   ← mean of u_v over the views
    ∇ log of the denominator ≈ ∇g_v / u_v

With γ = 1 this is the gradient of the batch's own log g_v; for a small γ, the gradients of both networks approach those
of C as the whole data set. All values are kept as logarithms, because (L_k − L_+)/τ reaches thousands.

What the paper compares it with is the same loss with other temperatures. iSogCLR (``temperature: individual``) learns
one for each image by gradient descent on its own f, and SogCLR (``fixed``) has one for all:

    τ_i ← clip(τ_i − η f_i'(τ_i), τ_0, τ_max),   f_i' the mean over the views, each within ±5

And ``loss: contrastive`` trains both networks by the ordinary contrastive loss log((1/|C|) Σ_k exp((L_k − L_+)/τ)),
without the factor τ and without ρ (its Table 18).

With ReLU in place of σ, nearly all units die in the first epoch of a joint training, in which the temperatures of all
images move alike, and all end up equal.

The paper does not say whether a high temperature means a good image. Degraded faces get higher temperatures if the
training views include degraded ones, so it means a poor one; otherwise there is no consistent direction.

Choices that are not the paper's: the authors' code has dropout after σ, which is left out. The paper initializes the
columns of W₂ with first-layer features of random images; no images are available where the method is built, so features
of random unit vectors are used. φ is learned as its logarithm, so that it stays positive. Vectors and scalars of the
temperature network have no weight decay. η, the first τ_i and the bounds of f_i' are those of the authors' code for
iSogCLR, of whose f_i' a tenth is the one before.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.errors import Error
from facerts.losses.face_loss import (
    FaceLoss,
    LossValue,
    NonNegative,
    Outputs,
    ParameterGroups,
    Positive,
    settings,
)
from facerts.losses.robust_loss import log_denominator
from facerts.nn.device import to_device

INITIAL_SHARPNESS = 0.01
# Below this φ, u/φ loses differences that float32 can resolve.
MIN_SHARPNESS = 1e-4
# The paper's weight decay for the temperature network. It is AdamW's: added to the gradients of SGD, it would drive all
# weights to 0 within a run, and all temperatures to one value.
WEIGHT_DECAY = 0.02
# Bound of the derivatives by which individual temperatures move.
MAX_SLOPE = 5.0
# The logarithm of an image's moving denominator before its first step.
UNSEEN = -math.inf

# Settings that a kind of temperature does not read, without those that recipes set for all of them: ρ and
# temperature_lr.
NETWORK_ONLY = {"loss", "hidden", "references", "stop_gradient", "last_layer"}
UNUSED = {
    "network": {"tau", "tau_step"},
    "individual": NETWORK_ONLY,
    "fixed": {*NETWORK_ONLY, "tau_step", "tau_min", "tau_max"},
}


class TemperatureNetwork(nn.Module):
    """Predicts temperatures ``(B,)`` in [τ_0, τ_max] from unit embeddings ``(B, d)``."""

    log_sharpness: nn.Parameter | None

    def __init__(self, embedding_size: int, config: TempNet) -> None:
        super().__init__()
        self.rho, self.tau_min, self.tau_max = config.rho, config.tau_min, config.tau_max
        self.features = nn.Linear(embedding_size, config.hidden)
        nn.init.kaiming_uniform_(self.features.weight, nonlinearity="relu")
        nn.init.zeros_(self.features.bias)
        with torch.no_grad():
            directions = F.normalize(torch.randn(config.references, embedding_size))
            references = self.features(directions).sigmoid().T.contiguous()
        self.references = nn.Parameter(references)
        if config.last_layer == "pooling":
            self.log_sharpness = nn.Parameter(torch.tensor(math.log(INITIAL_SHARPNESS)))
            weight = torch.ones(config.references)
        else:
            self.log_sharpness = None
            # As nn.Linear starts; ones would put all temperatures at one end of the range.
            weight = (2 * torch.rand(config.references) - 1) / math.sqrt(config.references)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, embedding: Tensor) -> Tensor:
        v = self.features(embedding).sigmoid()
        s = self._last_layer(v @ F.normalize(self.references, dim=0))
        return self.tau_min + (self.tau_max - self.tau_min) * s.sigmoid()

    def _last_layer(self, u: Tensor) -> Tensor:
        if self.log_sharpness is None:
            return u @ self.weight - self.bias
        sharpness = self.log_sharpness.exp().clamp_min(MIN_SHARPNESS)
        p = (u / sharpness).softmax(dim=1)
        return (((p - 1.0 / u.shape[1]) * self.weight * u).sum(dim=1) - self.bias) / self.rho


@settings
class TempNet(FaceLoss):
    """The robust loss at each image's temperature; uncertainty is a predicted τ, quality −τ.

    Individual temperatures have no value for a new image and a fixed one is no score: then quality is ‖y‖.

    Args:
        contrast: "batch" contrasts the two views of an image with the images of other people in the batch; "centers"
            contrasts the own class center with all class centers.
        temperature: "network" predicts it from the image; "individual" learns one for each image; "fixed" has one.
        loss: "robust" is f, "contrastive" the ordinary contrastive loss.
        rho: ρ; a larger value gives lower temperatures. It must be below log |C|, or all temperatures fall to τ_0. With
            a fixed temperature it only adds a constant, and the contrastive loss is without.
        tau_min, tau_max: τ_0 and τ_max.
        tau: the fixed temperature, or the first of each image.
        tau_step: η.
        hidden, references: d1 and d2.
        temperature_lr: learning rate of the temperature network, as a multiple of the scheduled one.
        denominator_rate: γ of the moving average of each image's denominator; 1 uses the batch alone. The authors' code
            uses 0.8.
        stop_gradient: whether the temperature network reads detached embeddings, as in the paper; without it, the
            gradient of the temperatures trains the embedding too (its Table 18).
        last_layer: "pooling" as above, or "linear", s = w₃·u − b (the paper's ablation, Table 19).
    """

    name = "tempnet"
    views = 2
    contrast: Literal["batch", "centers"] = "batch"
    temperature: Literal["network", "individual", "fixed"] = "network"
    loss: Literal["robust", "contrastive"] = "robust"
    rho: Positive = 3.0
    tau_min: Positive = 0.001
    tau_max: Positive = 0.05
    tau: Positive = 0.01
    tau_step: Positive = 0.001
    hidden: Annotated[int, Field(ge=1, le=4096)] = 256
    references: Annotated[int, Field(ge=2, le=4096)] = 256
    temperature_lr: NonNegative = 1.0
    denominator_rate: Annotated[float, Field(gt=0, le=1)] = 1.0
    stop_gradient: bool = True
    last_layer: Literal["pooling", "linear"] = "pooling"

    @model_validator(mode="after")
    def settings_fit(self) -> TempNet:
        """Bounds rise, a first temperature lies between them, and nothing is set that is not read."""
        if self.tau_min >= self.tau_max:
            raise ValueError(f"tau_min {self.tau_min} must be below tau_max {self.tau_max}")
        if self.temperature == "individual" and not self.tau_min <= self.tau <= self.tau_max:
            raise ValueError(f"tau {self.tau} must lie between tau_min {self.tau_min} and tau_max {self.tau_max}")
        if self.contrast == "centers" and self.denominator_rate < 1:
            raise ValueError(
                "with contrast: centers every step has all centers in its denominators, so there is nothing to "
                "average; set denominator_rate: 1"
            )
        for name in sorted(UNUSED[self.temperature]):
            if getattr(self, name) != getattr(TempNet, name):
                raise ValueError(f"temperature: {self.temperature} does not read {name}; leave it out")
        return self

    @property
    def needs_centers(self) -> bool:  # type: ignore[override]
        """Only where they are what is contrasted with."""
        return self.contrast == "centers"

    def build_state(self) -> nn.Module:
        """The temperature network, if there is one."""
        return TemperatureNetwork(self.embedding_size, self) if self.temperature == "network" else nn.Module()

    def parameter_groups(self, network: nn.Module) -> ParameterGroups:
        """Separate groups for the temperature network: its own learning rate, and weight decay on its matrices only."""
        centers = () if self.centers is None else self.centers.parameters()
        trained = [p for p in (*network.parameters(), *centers) if p.requires_grad]
        own = list(self.state.parameters())
        rate = {"lr_scale": self.temperature_lr}
        return [
            {"params": trained},
            {"params": [p for p in own if p.ndim == 2], "weight_decay": WEIGHT_DECAY, **rate},
            {"params": [p for p in own if p.ndim < 2], "weight_decay": 0.0, **rate},
        ]

    def compute(self, outputs: Outputs, labels: Tensor, *, samples: Tensor, centers: Any, **_: Any) -> LossValue:
        embedding = F.normalize(outputs["embedding"])
        tau = self._temperatures(embedding, samples)
        if self.contrast == "batch":
            logits, positive, among = batch_contrast(embedding, labels)
            contrasted = among.any(dim=1)
            # A row without contrasts gets all columns instead: its value is finite, and is then left out.
            among = among | ~contrasted.unsqueeze(1)
            # Both views of an image show the same person.
            self._check_rho(len(logits) - 2)
        else:
            logits, among = centers.cosines(embedding), None
            positive = logits.gather(1, labels.unsqueeze(1)).squeeze(1)
            contrasted = torch.ones_like(labels, dtype=torch.bool)
            self._check_rho(logits.shape[1])
        log_mean = log_denominator(logits, positive, tau, among)
        if self.denominator_rate < 1 and self.state.training:
            log_mean = self._averaged(log_mean, samples, contrasted)
        robust = self.loss == "robust"
        losses = tau * (log_mean + self.rho) if robust else log_mean
        if self.temperature == "individual" and self.state.training:
            self._move_temperatures(tau, losses, samples, contrasted)
        total = (losses * contrasted).sum() / contrasted.sum().clamp_min(1)
        return LossValue(total, {"positive": positive.detach().mean()}, {"tau": tau.detach()})

    def _temperatures(self, embedding: Tensor, samples: Tensor) -> Tensor:
        """τ ``(2N,)`` of unit embeddings ``(2N, d)``, views of the images ``(2N,) int64``."""
        if self.temperature == "network":
            tau: Tensor = self.state(embedding.detach() if self.stop_gradient else embedding)
            return tau
        if self.temperature == "fixed":
            return embedding.new_full((len(embedding),), self.tau)
        own = self.per_sample.get("tau", embedding.new_empty(0)).to(embedding)
        self.per_sample["tau"] = own = room_for(samples, own, self.tau)
        return own[to_device(samples, own.device)].requires_grad_()

    def _move_temperatures(self, tau: Tensor, losses: Tensor, samples: Tensor, contrasted: Tensor) -> None:
        """One step of gradient descent on the temperatures ``(2N,)`` of the batch's images, from their losses."""
        (slope,) = torch.autograd.grad(losses.sum(), tau, retain_graph=True)
        count = len(tau) // 2
        slope = slope.clamp(-MAX_SLOPE, MAX_SLOPE).view(2, count).mean(dim=0)
        now = tau.detach()[:count]
        after = (now - self.tau_step * slope).clamp(self.tau_min, self.tau_max)
        own = self.per_sample["tau"]
        own[to_device(samples[:count], own.device)] = torch.where(contrasted[:count], after, now)

    def _averaged(self, log_mean: Tensor, samples: Tensor, contrasted: Tensor) -> Tensor:
        """Moving averages instead of the batch's denominators, ``(2N,)``, after moving them by a step.

        ``log_mean`` ``(2N,)`` are the batch's, all first views before all second views; ``contrasted`` ``(2N,)`` are
        the views that have anything to be contrasted with.
        """
        averages = self.per_sample.get("log_denominator", log_mean.new_empty(0)).to(log_mean)
        averages = room_for(samples, averages, UNSEEN)
        samples = to_device(samples, averages.device)
        log_u = moved(averages[samples], log_mean.detach(), self.denominator_rate)
        first, second = log_u.chunk(2)
        images = contrasted[: len(first)]
        rows = samples[: len(first)]
        averages[rows] = torch.where(images, torch.logaddexp(first, second) - math.log(2), averages[rows])
        self.per_sample["log_denominator"] = averages
        return with_gradient(log_u, log_mean)

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        if self.temperature != "network":
            return super().score(outputs)
        scored = self.scored(outputs)
        tau = self.state(scored["embedding"])
        return {**scored, "quality": -tau, "uncertainty": tau}

    def _check_rho(self, contrasted: int) -> None:
        if self.temperature == "fixed" or self.loss == "contrastive":
            return
        # A moving average has more than a batch to contrast with.
        limited = self.denominator_rate == 1 or not self.state.training
        if contrasted < 1 or (limited and self.rho >= math.log(contrasted)):
            batch = self.contrast == "batch"
            remedy = "a larger batch (optim.batch_size; post hoc train.batch_size)" if batch else "more identities"
            raise Error(
                f"tempnet: method.rho {self.rho:g} must be below log({max(contrasted, 0)}), the logarithm of "
                f"the number of {'views' if batch else 'centers'} an image is contrasted with, or every temperature "
                f"falls to method.tau_min; lower method.rho, or use {remedy}"
            )


def room_for(samples: Tensor, values: Tensor, initial: float) -> Tensor:
    """A value of each image ``(n,)``, lengthened if need be so that all samples ``(B,) int64`` have a place."""
    missing = int(samples.max()) + 1 - len(values)
    return F.pad(values, (0, missing), value=initial) if missing > 0 else values


def moved(log_averages: Tensor, log_estimates: Tensor, rate: float) -> Tensor:
    """log u_v from log u and log g_v, all of one shape; γ is the rate."""
    keep, add = torch.tensor([1.0 - rate, rate], dtype=torch.float64).log().tolist()
    log_u = torch.logaddexp(log_averages + keep, log_estimates + add)
    return torch.where(log_averages == UNSEEN, log_estimates, log_u)


def with_gradient(log_averages: Tensor, log_estimates: Tensor) -> Tensor:
    """log u_v with the gradient ∇g_v/u_v, from log u_v and from log g_v with its gradient."""
    constant = log_estimates.detach()
    return log_averages + (constant - log_averages).exp() * (log_estimates - constant)


def batch_contrast(embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Contrast each view with the views of other people; the other view of the same image is its positive.

    From unit vectors ``(2N, d)``, all first views before all second views, and identities ``(2N,)``: cosines
    ``(2N, 2N)``; cosines to the other view ``(2N,)``; and ``(2N, 2N) bool``, true for pairs of two people.
    """
    positive = (embedding * embedding.roll(len(embedding) // 2, dims=0)).sum(dim=1)
    return embedding @ embedding.T, positive, labels.unsqueeze(1) != labels
