"""One training step, and the state that steps change."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from facerts.errors import NonFiniteLossError
from facerts.methods import Batch, Loss
from facerts.nn import build_network
from facerts.train.centres import ClassCentres
from facerts.train.checkpoint import start_from
from facerts.train.compiled import compiled
from facerts.train.embedder import NetworkEmbedder, to_network_input
from facerts.train.recipe import Optim, Recipe
from facerts.train.teacher import Teacher

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def build_optimizer(groups: list[dict[str, Any]], settings: Optim) -> torch.optim.Optimizer:
    """The optimiser that a recipe asks for, over a method's parameter groups."""
    if settings.algorithm == "adamw":
        return torch.optim.AdamW(
            groups, lr=settings.lr, betas=(settings.momentum, 0.999), weight_decay=settings.weight_decay
        )
    return torch.optim.SGD(
        groups, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )


class Learner:
    """Network, class centres and optimiser of a run.

    Args:
        recipe: what to build.
        identities: C.
        teacher: of the recipe, where it has one.

    Weights are drawn from PyTorch's generator, which the recipe's seed sets.
    """

    def __init__(self, recipe: Recipe, identities: int, teacher: Teacher | None = None) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.device = choose_device(recipe.compute.device)
        self.method = recipe.build_method()
        self.autocast = AUTOCAST[recipe.compute.precision]
        backbone = recipe.backbone
        self.network = build_network(
            backbone.name,
            embedding_size=backbone.embedding_size,
            heads=self.method.heads(),
            width=backbone.width,
            dropout=backbone.dropout,
        ).to(self.device)
        if recipe.compute.channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.teacher = None if teacher is None else teacher.to(self.device)
        self.centres = (
            ClassCentres(identities, backbone.embedding_size).to(self.device)
            if self.teacher is None
            else self.teacher.centres
        )
        self.method.state.to(self.device)
        if backbone.weights is not None:
            start_from(backbone.weights, self.network, self.centres if self.teacher is None else None)
        if self.method.trains == "heads":
            for part in (self.network.trunk, self.network.embedding, self.centres):
                part.requires_grad_(False)
        self.optimizer = build_optimizer(
            self.method.parameter_groups(self.network, self.centres), recipe.optim
        )
        # Only steps are compiled: validation has other batch sizes, and each would be compiled anew.
        self.forward = compiled(self.network) if recipe.compute.compile else self.network
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.compute.precision == "fp16")

    def step(self, crops: Tensor, batch: Batch, learning_rate: float) -> Loss:
        """Forward, backward and one step of the optimiser.

        Args:
            crops: ``(B, 112, 112, 3) uint8`` RGB.
            batch: labels and keys of the crops.
            learning_rate: of this step.

        Raises:
            NonFiniteLossError: the loss is not finite; nothing was changed by this step.
        """
        self.network.train()
        if self.method.trains == "heads":
            # Their statistics, too, stay as they were.
            self.network.trunk.eval()
            self.network.embedding.eval()
        images = to_network_input(
            crops.to(self.device, non_blocking=True), channels_last=self.recipe.compute.channels_last
        )
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            outputs = self.forward(images)
        loss = self._loss(outputs, batch)
        if not math.isfinite(loss.total.item()):
            raise NonFiniteLossError(_describe(loss, outputs, batch, learning_rate))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("lr_scale", 1.0)
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.scale(loss.total).backward()  # type: ignore[no-untyped-call]
        if self.recipe.optim.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.recipe.optim.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def _loss(self, outputs: dict[str, Tensor], batch: Batch) -> Loss:
        if self.teacher is None:
            return self.method.loss(outputs, batch, self.centres)
        method = self.method.loss(outputs, batch, self.teacher.centres_for(batch))
        return self.teacher.loss(outputs["embedding"], batch, method)

    def embedder(self) -> NetworkEmbedder:
        """The network as it is now, for validation."""
        return NetworkEmbedder(self.network, self.method, name=self.recipe.name, autocast=self.autocast)

    def state_dict(self) -> dict[str, Any]:
        """All that a later step depends on; the noise of the methods is keyed and has no state."""
        return {
            "network": self.network.state_dict(),
            "centres": self.centres.state_dict(),
            "method": self.method.state.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "generator": torch.get_rng_state(),
            "device_generator": torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an earlier learner of the same recipe."""
        self.network.load_state_dict(state["network"])
        self.centres.load_state_dict(state["centres"])
        self.method.state.load_state_dict(state["method"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])
        torch.set_rng_state(state["generator"].cpu())
        if self.device.type == "cuda" and state["device_generator"] is not None:
            torch.cuda.set_rng_state(state["device_generator"].cpu(), self.device)


def _describe(loss: Loss, outputs: dict[str, Tensor], batch: Batch, learning_rate: float) -> str:
    """Where a non-finite loss came from."""
    parts = ", ".join(f"{name} {value.item():.4g}" for name, value in loss.parts.items())
    broken = [name for name, value in outputs.items() if not torch.isfinite(value).all()]
    network = (
        f"the network's {' and '.join(broken)} not finite" if broken else "the network's outputs all finite"
    )
    return (
        f"the loss is {loss.total.item()} at step {batch.step}: {parts}; {network}; learning rate "
        f"{learning_rate:g}, margin ramp {batch.ramp:.2f}. Lower optim.lr, set optim.clip_norm, or use bf16 "
        "for fp16; --resume goes on from the last checkpoint"
    )
