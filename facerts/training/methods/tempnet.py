"""TempNet: a network that predicts the temperature of each image's robust contrastive loss.

Qiu, Guo, Xu, Zhao, Zhang, Yang: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via
DRO", ICML 2024. The loss f of an image at its temperature τ is that of ``robust_loss``; its logits are cosines. A small
network on the unit embedding ŷ, through which no gradient flows to it, imitates the temperature that makes f least:

    v = σ(W₁ ŷ + b₁) ∈ R^{d1}
    u = W̄₂ᵀ v ∈ R^{d2},   the columns of W̄₂ unit vectors
    s = (1/ρ) [Σ_k (softmax(u/φ)_k − 1/d2) w₃ₖ u_k − b]
    τ = τ_0 + (τ_max − τ_0) sigmoid(s)

so that u stands for the logits of d2 learned references and b for the fixed point's own b. Both networks are trained
together: L = mean_i f_i(τ(x_i)).

Not in the paper, and chosen here: σ is ReLU. The columns of W₂, for which the paper asks for first-layer features of
random images, start as those of random unit vectors: no image is at hand where the method is built. φ is learned as
its logarithm, so that no step takes it past 0. The paper uses AdamW, whose steps do not depend on the size of the loss;
with a recipe's SGD they do, and f is as small as its cosines. So f is multiplied by a constant γ: at τ = 1/γ, γ·f is
the cross-entropy of cosines scaled by γ, but for a constant.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.errors import Error
from facerts.training.methods.base import Batch, Centers, Loss, Method, MethodConfig, Outputs, unit_embedding
from facerts.training.methods.robust_loss import robust_loss

# Whether a high temperature means a good picture (+1) or a poor one (−1). The paper does not say; degraded faces get
# higher ones where the training views hold some, and no consistent ones where they hold none.
QUALITY_SIGN = -1.0

FIRST_SHARPNESS = 0.01
# Sharper, u/φ would lose what float32 tells apart.
SMALLEST_SHARPNESS = 1e-4
# The paper's, for the weights of the temperature network.
WEIGHT_DECAY = 0.02


class TempNetConfig(MethodConfig):
    """Settings of TempNet.

    Attributes:
        contrast: "batch" contrasts an image's two views with the pictures of other people in the batch, "centers" the
            own class center with all class centers.
        rho: ρ, the larger the lower the temperatures; below log |C|, or all of them fall to τ_0.
        lowest: τ_0.
        highest: τ_max.
        hidden: d1.
        references: d2.
        loss_scale: γ.
        temperature_lr: learning rate of the temperature network, as a multiple of the schedule's.
    """

    contrast: Literal["batch", "centers"] = "batch"
    rho: float = Field(3.0, gt=0)
    lowest: float = Field(0.001, gt=0)
    highest: float = Field(0.05, gt=0)
    hidden: int = Field(256, ge=1, le=4096)
    references: int = Field(256, ge=2, le=4096)
    loss_scale: float = Field(32.0, gt=0)
    temperature_lr: float = Field(1.0, ge=0)

    @field_validator("contrast", mode="before")
    @classmethod
    def american_spelling(cls, contrast: object) -> object:
        """Recipes of earlier versions have the British one."""
        return "centers" if contrast == "centres" else contrast

    @model_validator(mode="after")
    def in_order(self) -> TempNetConfig:
        if self.lowest >= self.highest:
            raise ValueError(f"lowest {self.lowest} must be below highest {self.highest}")
        return self


class TemperatureNetwork(nn.Module):
    """Unit embeddings ``(B, d)`` to temperatures ``(B,)`` in [τ_0, τ_max].

    Args:
        embedding_size: d.
        config: ρ, the range and the sizes.
    """

    def __init__(self, embedding_size: int, config: TempNetConfig) -> None:
        super().__init__()
        self.rho, self.lowest, self.highest = config.rho, config.lowest, config.highest
        self.features = nn.Linear(embedding_size, config.hidden)
        nn.init.kaiming_uniform_(self.features.weight, nonlinearity="relu")
        nn.init.zeros_(self.features.bias)
        with torch.no_grad():
            anywhere = F.normalize(torch.randn(config.references, embedding_size))
            references = F.relu(self.features(anywhere)).T.contiguous()
        self.references = nn.Parameter(references)
        self.log_sharpness = nn.Parameter(torch.tensor(math.log(FIRST_SHARPNESS)))
        self.weight = nn.Parameter(torch.ones(config.references))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, embedding: Tensor) -> Tensor:
        v = F.relu(self.features(embedding))
        u = v @ F.normalize(self.references, dim=0)
        sharpness = self.log_sharpness.exp().clamp_min(SMALLEST_SHARPNESS)
        p = (u / sharpness).softmax(dim=1)
        s = (((p - 1.0 / u.shape[1]) * self.weight * u).sum(dim=1) - self.bias) / self.rho
        return self.lowest + (self.highest - self.lowest) * s.sigmoid()


class TempNet(Method):
    """The robust loss at a predicted temperature; uncertainty is τ, quality ``QUALITY_SIGN``·τ."""

    name = "tempnet"
    Config = TempNetConfig
    views = 2

    def __init__(self, config: MethodConfig, embedding_size: int = 512) -> None:
        super().__init__(config, embedding_size)
        self.state = TemperatureNetwork(embedding_size, self.config)

    def parameter_groups(self, network: nn.Module, centers: nn.Module) -> list[dict[str, Any]]:
        """The temperature network apart: its own rate, and decay for its matrices only.

        Decay would take φ to 1 and w₃ to 0 within a run of SGD.
        """
        trained = [p for p in (*network.parameters(), *centers.parameters()) if p.requires_grad]
        own = list(self.state.parameters())
        rate = {"lr_scale": self.config.temperature_lr}
        return [
            {"params": trained},
            {"params": [p for p in own if p.ndim == 2], "weight_decay": WEIGHT_DECAY, **rate},
            {"params": [p for p in own if p.ndim < 2], "weight_decay": 0.0, **rate},
        ]

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        with torch.autocast(batch.labels.device.type, enabled=False):
            embedding = F.normalize(outputs["embedding"])
            tau = self.state(embedding.detach())
            if self.config.contrast == "batch":
                logits, positive, among = batch_contrast(embedding, batch.labels)
                # Both views of an image are of one person.
                self._check_rho(len(logits) - 2)
            else:
                logits, among = centers.cosines(embedding), None
                positive = logits.gather(1, batch.labels.unsqueeze(1)).squeeze(1)
                self._check_rho(logits.shape[1])
            robust = _mean_where_contrasted(logits, positive, tau, self.config.rho, among)
        parts = {"robust": robust.detach(), "positive": positive.detach().mean()}
        return Loss(self.config.loss_scale * robust, parts, {"tau": tau.detach()})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        scored = unit_embedding(outputs)
        tau = self.state(scored["embedding"])
        return {**scored, "quality": QUALITY_SIGN * tau, "uncertainty": tau}

    def _check_rho(self, contrasted: int) -> None:
        if contrasted < 1 or self.config.rho >= math.log(contrasted):
            where = (
                "a larger batch (optim.batch_size; post hoc --train-batch)"
                if self.config.contrast == "batch"
                else "more identities"
            )
            raise Error(
                f"tempnet: method.rho {self.config.rho:g} must be below the logarithm of the "
                f"{max(contrasted, 0)} that an image is contrasted with, or every temperature falls to "
                f"method.lowest; lower it, or give {where}"
            )


def batch_contrast(embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Each view against the other view of its image and the other people's views.

    Args:
        embedding: ``(2N, d)`` unit vectors, all first views first.
        labels: ``(2N,)``.

    Returns:
        ``(2N, 2N)`` cosines; ``(2N,)`` cosines to the other view; ``(2N, 2N) bool``, which are of other people.
    """
    positive = (embedding * embedding.roll(len(embedding) // 2, dims=0)).sum(dim=1)
    return embedding @ embedding.T, positive, labels.unsqueeze(1) != labels


def _mean_where_contrasted(
    logits: Tensor, positive: Tensor, tau: Tensor, rho: float, among: Tensor | None
) -> Tensor:
    """The mean f(τ) of the rows that are contrasted with anything; 0 where there are none."""
    if among is None:
        return robust_loss(logits, positive, tau, rho).mean()
    contrasted = among.any(dim=1)
    # A row with nothing to be contrasted with gets everything instead, for a finite number that is then left out.
    robust = robust_loss(logits, positive, tau, rho, among | ~contrasted.unsqueeze(1))
    return (robust * contrasted).sum() / contrasted.sum().clamp_min(1)
