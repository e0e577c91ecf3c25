"""One training step, and the state that steps change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from facerts.errors import Error, NonFiniteLossError
from facerts.training.class_head.centers import ClassCenters
from facerts.training.class_head.row_updates import RowSteps
from facerts.training.compiled import compiled
from facerts.training.distillation.teacher import Teacher
from facerts.training.distributed import gradients
from facerts.training.distributed.collectives import Processes
from facerts.training.init_weights import start_from
from facerts.training.methods import Batch, ClassificationMethod, Loss
from facerts.training.network_embedder import NetworkEmbedder, to_network_input
from facerts.training.nn import build_network, recompute_units
from facerts.training.recipe import Optim, Recipe

AUTOCAST = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def choose_device(name: str) -> torch.device:
    """ "auto" is a GPU where there is one."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def build_optimizer(
    groups: list[dict[str, Any]], settings: Optim, *, fused: bool = True
) -> torch.optim.Optimizer:
    """The optimizer that a recipe asks for, over a method's parameter groups.

    Fused, it goes through weights, gradients and momenta once, with nothing of their size in between. With fp16 it
    must not be: PyTorch 2.13 leaves the momenta undefined where the first step of all overflows.
    """
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay, "fused": fused}
    if settings.algorithm == "adamw":
        return torch.optim.AdamW(groups, betas=(settings.momentum, 0.999), **common)
    return torch.optim.SGD(groups, momentum=settings.momentum, **common)


class Learner:
    """Network, class centers and optimizer of a run.

    Args:
        recipe: what to build.
        identities: C.
        teacher: of the recipe, where it has one.
        processes: that train together; each holds the network and its share of the class centers.

    Weights are drawn from PyTorch's generator, which the recipe's seed sets.
    """

    def __init__(
        self,
        recipe: Recipe,
        identities: int,
        teacher: Teacher | None = None,
        processes: Processes | None = None,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.processes = processes or Processes()
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
        if recipe.compute.recompute:
            recompute_units(self.network)
        self.teacher = None if teacher is None else teacher.to(self.device)
        self.centers = (
            ClassCenters(
                identities,
                backbone.embedding_size,
                chunk=recipe.compute.class_chunk,
                sample=recipe.compute.class_sample,
                seed=recipe.seed,
                processes=self.processes,
            ).to(self.device)
            if self.teacher is None
            else self.teacher.centers
        )
        self.method.state.to(self.device)
        if backbone.weights is not None:
            learning = self.centers if self.teacher is None else None
            start_from(backbone.weights, self.network, self.method, learning)
        self.frozen = backbone.frozen or self.method.trains == "heads"
        if self.frozen:
            self.network.trunk.requires_grad_(False)
            self.network.embedding.requires_grad_(False)
        if self.method.trains == "heads":
            self.centers.requires_grad_(False)
        self.optimizer = build_optimizer(
            self.method.parameter_groups(self.network, self.centers),
            recipe.optim,
            fused=recipe.compute.precision != "fp16",
        )
        if isinstance(self.optimizer, torch.optim.SGD) and self._centers_step_by_themselves():
            self.centers.row_steps = RowSteps(self.optimizer, self.centers.weight)
        self._alone = self.processes.count == 1
        self._whole: Any = self.network
        if not self._alone:
            self._check_recipe()
            if recipe.compute.sync_batch_norm:
                self.network = nn.SyncBatchNorm.convert_sync_batchnorm(self.network)  # type: ignore[no-untyped-call]
            self._whole = DistributedDataParallel(self.network)
            # All began with the same weights; what is random in the network differs from here on.
            torch.manual_seed(recipe.seed + self.processes.rank)
        # Only steps are compiled: validation has other batch sizes, and each would be compiled anew.
        self.forward = compiled(self._whole) if recipe.compute.compile else self._whole
        self.average: AveragedModel | None = None
        if recipe.optim.average is not None:
            self.average = AveragedModel(
                self.network,
                multi_avg_fn=get_ema_multi_avg_fn(recipe.optim.average),  # type: ignore[no-untyped-call]
                use_buffers=True,
            )
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=recipe.compute.precision == "fp16")

    def step(self, crops: Tensor, batch: Batch, learning_rate: float) -> Loss:
        """Forward, backward and one step of the optimizer.

        Args:
            crops: ``(B, 112, 112, 3) uint8`` RGB, this process's.
            batch: labels and keys of the crops.
            learning_rate: of this step.

        Raises:
            NonFiniteLossError: the loss of this or another process is not finite; no weights were changed by this step.
        """
        self.network.train()
        if self.frozen:
            # Their statistics, too, stay as they were.
            self.network.trunk.eval()
            self.network.embedding.eval()
        self.centers.begin(batch.step)
        self.optimizer.zero_grad(set_to_none=True)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("lr_scale", 1.0)
        parts = self.recipe.compute.accumulate
        losses = []
        for number, (images, part) in enumerate(zip(crops.chunk(parts), split(batch, parts), strict=True), 1):
            # Gradients are averaged over the processes once, after the last part.
            with nullcontext() if number == parts or self._alone else self._whole.no_sync():
                losses.append(self._differentiate(images, part, parts, learning_rate))
        gradients.average(self.method.state.parameters(), self.processes)
        if self.recipe.optim.clip_norm is not None:
            self.scaler.unscale_(self.optimizer)
            whole = [*self.network.parameters(), *self.method.state.parameters()]
            gradients.clip(whole, self.centers.parameters(), self.recipe.optim.clip_norm, self.processes)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update_parameters(self.network)
        return joined(losses)

    def _differentiate(self, crops: Tensor, batch: Batch, parts: int, learning_rate: float) -> Loss:
        """Forward and backward for one of a step's parts."""
        images = to_network_input(
            crops.to(self.device, non_blocking=True), channels_last=self.recipe.compute.channels_last
        )
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            outputs = self.forward(images)
        loss = self._loss(outputs, batch, crops)
        self._check_finite(loss, outputs, batch, learning_rate)
        self.scaler.scale(loss.total / parts).backward()  # type: ignore[no-untyped-call]
        return loss

    def _check_finite(
        self, loss: Loss, outputs: dict[str, Tensor], batch: Batch, learning_rate: float
    ) -> None:
        """All processes end where the loss of one is not finite, and say why."""
        finite = loss.total.detach().isfinite()
        if self.processes.sum((~finite).int()).item() == 0:
            return
        causes = self.processes.tell(None if finite else _describe(loss, outputs, batch, learning_rate))
        raise NonFiniteLossError(
            "; ".join(
                cause if self._alone else f"process {rank}: {cause}"
                for rank, cause in enumerate(causes)
                if cause is not None
            )
        )

    def _loss(self, outputs: dict[str, Tensor], batch: Batch, crops: Tensor) -> Loss:
        if self.teacher is None:
            return self.method.loss(outputs, batch, self.centers)
        views = self.teacher.of_views(crops)
        # The last images of a batch may have no identity; the method has nothing to say of them.
        labeled = slice(len(batch.labels) - self.recipe.unlabeled_size)
        known = replace(batch, labels=batch.labels[labeled], samples=batch.samples[labeled])
        seen = {name: value[labeled] for name, value in self.teacher.method_outputs(outputs, views).items()}
        method = self.method.loss(seen, known, self.teacher.centers_for(known))
        return self.teacher.loss(outputs["embedding"], batch, method, views)

    def embedder(self) -> NetworkEmbedder:
        """The network as it is now, or the average of its weights where that is kept, for validation."""
        network: Any = self.network if self.average is None else self.average.module
        return NetworkEmbedder(network, self.method, name=self.recipe.name, autocast=self.autocast)

    def state_dict(self) -> dict[str, Any]:
        """All that a later step depends on; the noise of the methods is keyed and has no state.

        It is that of one process, whatever their number: class centers are put together again on the first, and the
        others have nothing of them. Generators are of each process.
        """
        return {
            "network": self.network.state_dict(),
            "average": None if self.average is None else self.average.module.state_dict(),
            "centers": {"weight": self._collect(self.centers.weight.detach())},
            "method": self.method.state.state_dict(),
            "optimizer": self._map_centers(self.optimizer.state_dict(), self._collect),
            "scaler": self.scaler.state_dict(),
            "teacher": None if self.teacher is None else {"projection": self.teacher.projection},
            "generators": self.processes.tell(self._generators()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from ``state_dict()`` of an earlier learner of the same recipe, in any number of processes.

        With another number of them, what is random in the network (dropout) goes another way than it would have.
        """
        self.network.load_state_dict(state["network"])
        if self.average is not None:
            self.average.module.load_state_dict(state["average"])
            # At 0 it would take the network's weights for the average at the next step.
            self.average.n_averaged.fill_(1)
        if self.teacher is not None and state.get("teacher") is not None:
            self.teacher.take_projection(state["teacher"]["projection"])
        self.centers.load_state_dict({"weight": self._own(state["centers"]["weight"])})
        self.method.state.load_state_dict(state["method"])
        self.optimizer.load_state_dict(self._map_centers(state["optimizer"], self._own))
        self.scaler.load_state_dict(state["scaler"])
        generators = state.get("generators", [])
        if len(generators) == self.processes.count:
            own, of_device = generators[self.processes.rank]
            torch.set_rng_state(own.cpu())
            if self.device.type == "cuda" and of_device is not None:
                torch.cuda.set_rng_state(of_device.cpu(), self.device)

    def _generators(self) -> tuple[Tensor, Tensor | None]:
        on_gpu = self.device.type == "cuda"
        return torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if on_gpu else None

    def _collect(self, rows: Tensor) -> Tensor | None:
        """This process's rows of something about the centers to those of all, on the first."""
        lengths = [
            len(self.processes.classes(self.centers.identities, rank)) for rank in range(self.processes.count)
        ]
        return self.processes.collect(rows, lengths)

    def _own(self, rows: Tensor) -> Tensor:
        return rows[self.centers.classes.start : self.centers.classes.stop]

    def _map_centers(
        self, optimizer: dict[str, Any], change: Callable[[Tensor], Tensor | None]
    ) -> dict[str, Any]:
        """An optimizer's state with something done to what has a row for each center."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        states = {
            number: {
                name: change(value)
                if parameters[number] is self.centers.weight and isinstance(value, Tensor) and value.ndim == 2
                else value
                for name, value in state.items()
            }
            for number, state in optimizer["state"].items()
        }
        return {**optimizer, "state": states}

    def _centers_step_by_themselves(self) -> bool:
        """Whether the step of a center needs nothing but its own gradient, once."""
        settings = self.recipe
        return (
            isinstance(self.method, ClassificationMethod)
            and self.teacher is None
            and self.centers.weight.requires_grad
            and any(
                p is self.centers.weight for group in self.optimizer.param_groups for p in group["params"]
            )
            and settings.optim.clip_norm is None
            and settings.compute.accumulate == 1
            and settings.compute.precision != "fp16"
        )

    def _check_recipe(self) -> None:
        if self.recipe.compute.precision == "fp16":
            raise Error(
                "compute.precision fp16 finds the scale of its loss in each process by itself, and they would drift "
                "apart; train in several processes with bf16 or fp32"
            )
        if not isinstance(self.method, ClassificationMethod) or self.teacher is not None:
            what = "a teacher" if self.teacher is not None else self.method.name
            raise Error(
                f"{what} looks at all images of a batch, or at all centers, at once, and trains in one process; "
                "methods that classify by class centers train in several"
            )


def split(batch: Batch, parts: int) -> list[Batch]:
    """A batch in equal parts, image by image."""
    return [
        replace(batch, labels=labels, samples=samples)
        for labels, samples in zip(batch.labels.chunk(parts), batch.samples.chunk(parts), strict=True)
    ]


def joined(losses: list[Loss]) -> Loss:
    """The loss of a whole batch from those of its equal parts."""
    if len(losses) == 1:
        return losses[0]

    def together(values: list[Tensor]) -> Tensor:
        stacked = torch.stack(values)
        return stacked.mean() if stacked.is_floating_point() else stacked.sum()

    first = losses[0]
    return Loss(
        together([loss.total.detach() for loss in losses]),
        {name: together([loss.parts[name] for loss in losses]) for name in first.parts},
        {name: torch.cat([loss.per_image[name] for loss in losses]) for name in first.per_image},
    )


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
