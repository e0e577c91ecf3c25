"""A training step, and the state that it changes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_

from facerts.datasets import Source
from facerts.errors import Error
from facerts.evaluation.while_training import NetworkEmbedder, to_network_input
from facerts.losses import ClassificationLoss, LossValue, PartialFC
from facerts.losses.collectives import Processes, average_gradients
from facerts.losses.face_heads import COVERED, NOT_A_FACE, face_losses
from facerts.losses.face_loss import ParameterGroups
from facerts.losses.partial_fc import RowUpdates
from facerts.nn import FaceNetwork, recompute_activations
from facerts.nn.device import AUTOCAST, choose_device, choose_precision, to_device
from facerts.nn.exported import refit_norms
from facerts.training.adapt import adapt_embedding
from facerts.training.checkpoint import LearnerState, OptimizerState, Origin
from facerts.training.distillation import Distillation
from facerts.training.init_weights import InitialWeights, init_weights
from facerts.training.loader import Batch, sample
from facerts.training.recipe import Optim, Recipe


def build_optimizer(groups: ParameterGroups, settings: Optim, *, fused: bool = True) -> torch.optim.Optimizer:
    """The optimizer of a recipe, over a method's parameter groups.

    The fused implementation updates everything in one pass without temporary tensors. It cannot be used with fp16:
    PyTorch 2.13 leaves the momentum buffers uninitialized if the very first step overflows.
    """
    rate, decay, momentum = settings.lr, settings.weight_decay, settings.momentum
    if settings.algorithm == "adamw":
        return torch.optim.AdamW(groups, rate, betas=(momentum, 0.999), weight_decay=decay, fused=fused)
    return torch.optim.SGD(groups, rate, momentum=momentum, weight_decay=decay, fused=fused)


class Learner:
    """Network, class centers and optimizer of a run.

    The initial weights are drawn from PyTorch's global generator, which is seeded with the recipe's seed.

    Args:
        processes: processes that train together; each holds the network and its share of the class centers.
        source: the labeled training images; needed if the recipe adapts the embedding to them, or trains the network of
            an exported file, which has no BatchNorm statistics.
    """

    def __init__(
        self,
        recipe: Recipe,
        identities: int,
        teacher: Distillation | None = None,
        processes: Processes | None = None,
        source: Source | None = None,
    ) -> None:
        torch.manual_seed(recipe.seed)
        self.recipe = recipe
        self.processes = processes or Processes()
        self.device = choose_device(recipe.compute.device)
        self.precision = choose_precision(recipe.compute.precision, self.device)
        self.autocast = AUTOCAST[self.precision]
        backbone = recipe.backbone
        self.teacher = None if teacher is None else teacher.to(self.device)
        self.loss = recipe.build_loss(
            PartialFC(
                identities,
                backbone.embedding_size,
                chunk=recipe.compute.class_chunk,
                sample=recipe.compute.class_sample,
                seed=recipe.seed,
                processes=self.processes,
            )
            if self.teacher is None
            else self.teacher.centers
        ).to(self.device)
        assert self.loss.centers is not None
        self.centers = self.loss.centers
        self.network = recipe.build_network(self.loss).to(self.device)
        if recipe.compute.channels_last:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if recipe.compute.recompute:
            recompute_activations(self.network)
        initial = InitialWeights()
        if backbone.weights is not None:
            learned_centers = self.centers if self.teacher is None else None
            initial = init_weights(backbone.weights, self.network, self.loss, learned_centers)
        self.frozen = backbone.frozen or recipe.trains_heads_only
        norms = list(initial.norms)
        if backbone.adapt is not None:
            assert source is not None
            norm = adapt_embedding(self.network, source, backbone.adapt)
            norms += [norm] if norm not in norms else []
        self.initial = initial.origin
        if self.frozen:
            self.network.trunk.requires_grad_(False)
            self.network.embedding.requires_grad_(False)
        # Frozen layers stay in evaluation mode, so only the heads' BatchNorms need statistics then.
        if recipe.optim.epochs and (trained_norms := [norm for norm in norms if norm.bias.requires_grad]):
            assert source is not None
            refit_norms(self.network, trained_norms, to_network_input(sample(source).to(self.device)))
        if recipe.trains_heads_only:
            self.centers.requires_grad_(False)
        self.optimizer = build_optimizer(
            self.loss.parameter_groups(self.network),
            recipe.optim,
            fused=self.precision != "fp16",
        )
        if isinstance(self.optimizer, torch.optim.SGD) and self._can_update_rows():
            self.centers.row_updates = RowUpdates(self.optimizer, self.centers.weight)
        self._single = self.processes.count == 1
        self._parallel: Any = self.network
        if not self._single:
            self._check_distributed()
            if recipe.compute.sync_batch_norm:
                self.network = nn.SyncBatchNorm.convert_sync_batchnorm(self.network)  # type: ignore[no-untyped-call]
            self._parallel = DistributedDataParallel(self.network)
            # The initial weights are the same in all processes; dropout differs from here on.
            torch.manual_seed(recipe.seed + self.processes.rank)
        # Only training steps are compiled: validation has other batch sizes, each of which would be compiled anew.
        self.forward = compiled(self._parallel) if recipe.compute.compile else self._parallel
        keep = recipe.optim.average
        self.average = None if keep is None else WeightAverage(self.network, keep)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision == "fp16")
        self._last_total: Tensor | None = None

    def step(self, batch: Batch, step: int, learning_rate: float, ramp: float = 1.0) -> LossValue:
        """Forward, backward and optimizer for this process's images; the loss stays on the device.

        The step counts from 0, and ``ramp`` is the share of the margin.
        """
        self.network.train()
        if self.frozen:
            # BatchNorm statistics of frozen layers must not change either.
            self.network.trunk.eval()
            self.network.embedding.eval()
        self.centers.begin(step)
        self.optimizer.zero_grad(set_to_none=True)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate * group.get("lr_scale", 1.0)
        parts = self.recipe.compute.accumulate
        losses = []
        for number, part in enumerate(batch.split(parts), 1):
            # Gradients are averaged over the processes only once, after the last part.
            with nullcontext() if number == parts or self._single else self._parallel.no_sync():
                losses.append(self._differentiate(part, step, parts, ramp))
        average_gradients(self.loss.state.parameters(), self.processes)
        loss = mean_of(losses)
        if self.recipe.optim.clip_norm is not None:
            norm = self._clip(self.recipe.optim.clip_norm)
            # With fp16, the scaler skips a step whose gradients overflow.
            if self.precision != "fp16" or norm.isfinite():
                loss = replace(loss, parts={**loss.parts, "gradient_norm": norm})
        self.scaler.step(self.optimizer)
        self.scaler.update()
        if self.average is not None:
            self.average.update(self.network)
        return loss

    def _clip(self, max_norm: float) -> Tensor:
        """Clip the gradients of the network and the method; returns their norm before."""
        self.scaler.unscale_(self.optimizer)
        return clip_grad_norm_([*self.network.parameters(), *self.loss.state.parameters()], max_norm)

    def _differentiate(self, batch: Batch, step: int, parts: int, ramp: float) -> LossValue:
        """Forward and backward pass of one part of a step; the loss is detached."""
        images = to_network_input(to_device(batch.crops, self.device), channels_last=self.recipe.compute.channels_last)
        with torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None):
            outputs = self.forward(images)
        loss = self._loss_with_face_heads(outputs, batch, step, ramp)
        self.scaler.scale(loss.total / parts).backward()  # type: ignore[no-untyped-call]
        # The graph of a step is freed during the next one. Freed at the end of its own, its memory goes back to the
        # system and must be fetched again: on a CPU, a small network then trained 3 to 10% fewer images per second.
        self._last_total = loss.total
        return replace(loss, total=loss.total.detach())

    def _loss_with_face_heads(self, outputs: dict[str, Tensor], batch: Batch, step: int, ramp: float) -> LossValue:
        """The loss of the faces, and, if there are non-faces at the end of the batch, that of the heads about both."""
        non_faces = self.recipe.non_face_size
        if not non_faces:
            return self._loss(outputs, batch, step, ramp)
        faces = len(batch.labels) - non_faces
        own = self._loss(
            {name: values[:faces] for name, values in outputs.items()}, batch.rows(slice(faces)), step, ramp
        )
        parts = face_losses(outputs, batch.labels, to_device(batch.covered, batch.labels.device))
        parts["non_face_quality"] = self.loss.non_face_loss({name: values[faces:] for name, values in outputs.items()})
        share = non_faces / len(batch.labels)
        total = own.total + parts[NOT_A_FACE] + parts[COVERED] + share * parts["non_face_quality"]
        return LossValue(total, {**own.parts, **{k: v.detach() for k, v in parts.items()}}, own.per_image)

    def _loss(self, outputs: dict[str, Tensor], batch: Batch, step: int, ramp: float) -> LossValue:
        if self.teacher is None:
            return self.loss.of_batch(outputs, batch.labels, samples=batch.samples, step=step, ramp=ramp)
        views = self.teacher.embed_views(batch)
        method_batch = self.teacher.method_batch(batch)
        method_outputs = {
            name: value[: len(method_batch.labels)]
            for name, value in self.teacher.method_outputs(outputs, batch, views).items()
        }
        method = self.loss.of_batch(
            method_outputs,
            method_batch.labels,
            samples=method_batch.samples,
            step=step,
            ramp=ramp,
            centers=self.teacher.centers_for(method_batch),
        )
        return self.teacher.loss(outputs["embedding"], batch, method, views)

    def embedder(self) -> NetworkEmbedder:
        """An embedder for validation: the current network, or the moving average of its weights if it is kept."""
        network: Any = self.network if self.average is None else self.average.module
        return NetworkEmbedder(
            network, self.loss.score, name=self.recipe.name, method=self.loss.name, autocast=self.autocast
        )

    def state_dict(self) -> LearnerState:
        """Everything that later steps depend on; the noise of the methods is keyed and has no state.

        The state does not depend on the number of processes: the class centers are gathered on the first process, and
        are None on the others. Only the states of the random generators are per process.
        """
        return {
            "network": self.network.state_dict(),
            "average": None if self.average is None else self.average.module.state_dict(),
            # Only the first process saves its state.
            "centers": {"weight": self._gather_rows(self.centers.weight.detach())},  # type: ignore[dict-item]
            "method": self.loss.state.state_dict(),
            "per_sample": dict(self.loss.per_sample),
            "optimizer": self._map_centers(self.optimizer.state_dict(), self._gather_rows),
            "scaler": self.scaler.state_dict(),
            "teacher": None if self.teacher is None else {"projection": self.teacher.projection},
            "initial": None if self.initial is None else asdict(self.initial),
            "generators": self.processes.all_gather_object(self._generators()),
        }

    def load_state_dict(self, state: LearnerState) -> None:
        """Continue from the ``state_dict()`` of a learner of the same recipe, with any number of processes.

        With a different number of processes, dropout draws differently than it would have.
        """
        self.network.load_state_dict(state["network"])
        if self.average is not None:
            self.average.load_state_dict(state["average"] or {})
        if self.teacher is not None:
            self.teacher.load_projection((state["teacher"] or {})["projection"])
        self.centers.load_state_dict({"weight": self._own_rows(state["centers"]["weight"])})
        self.loss.state.load_state_dict(state["method"])
        self.loss.per_sample = {name: value.to(self.device) for name, value in state["per_sample"].items()}
        optimizer = self._map_centers(state["optimizer"], self._own_rows)
        self._check_moments(optimizer["state"])
        # The settings are the recipe's.
        self.optimizer.load_state_dict({**optimizer, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.scaler.load_state_dict(state["scaler"])
        self.initial = None if state["initial"] is None else Origin(**state["initial"])
        generators = state["generators"]
        if len(generators) == self.processes.count:
            cpu_state, gpu_state = generators[self.processes.rank]
            torch.set_rng_state(cpu_state.cpu())
            if self.device.type == "cuda" and gpu_state is not None:
                torch.cuda.set_rng_state(gpu_state.cpu(), self.device)

    def _generators(self) -> tuple[Tensor, Tensor | None]:
        on_gpu = self.device.type == "cuda"
        return torch.get_rng_state(), torch.cuda.get_rng_state(self.device) if on_gpu else None

    def _gather_rows(self, rows: Tensor) -> Tensor | None:
        """The rows of all class centers on the first process, from those of each process; None on the others."""
        identities, processes = self.centers.num_classes, range(self.processes.count)
        lengths = [len(self.processes.own_classes(identities, rank)) for rank in processes]
        return self.processes.gather_on_first(rows, lengths)

    def _own_rows(self, rows: Tensor) -> Tensor:
        """This process's rows of those of all class centers."""
        return rows[self.centers.classes.start : self.centers.classes.stop]

    def _map_centers(self, optimizer: OptimizerState, change: Callable[[Tensor], Tensor | None]) -> OptimizerState:
        """An optimizer's state with ``change`` applied to the tensors that have one row per class center."""
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

    def _check_moments(self, states: dict[int, dict[str, Tensor]]) -> None:
        """Check each parameter's state in an optimizer: PyTorch does not, and its kernels would read past the end."""
        names = {"step", "exp_avg", "exp_avg_sq"} if self.recipe.optim.algorithm == "adamw" else {"momentum_buffer"}
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for number, state in states.items():
            shape = parameters[number].shape
            if state.keys() != names or any(
                not value.is_floating_point() or value.shape != (() if name == "step" else shape)
                for name, value in state.items()
            ):
                raise ValueError(f"the optimizer's state {number} does not fit its weight of shape {tuple(shape)}")

    def _can_update_rows(self) -> bool:
        """Whether the update of a class center depends only on its own gradient, which is computed once per step."""
        settings = self.recipe
        return (
            isinstance(self.loss, ClassificationLoss)
            and self.teacher is None
            and self.centers.weight.requires_grad
            and any(p is self.centers.weight for group in self.optimizer.param_groups for p in group["params"])
            and settings.compute.accumulate == 1
            and self.precision != "fp16"
        )

    def _check_distributed(self) -> None:
        if self.precision == "fp16":
            raise Error(
                "compute.precision fp16 trains in a single process only, because each process would choose its own "
                "loss scale; use bf16 or fp32, or start without torchrun"
            )
        if not isinstance(self.loss, ClassificationLoss) or self.teacher is not None:
            reason = "a recipe with a teacher" if self.teacher is not None else f"method {self.loss.name}"
            raise Error(
                f"{reason} trains in a single process only, because its loss needs all images of a batch or all class "
                "centers at once; start without torchrun, or use a classification method without a teacher"
            )


def mean_of(losses: list[LossValue]) -> LossValue:
    """The loss of a whole batch from those of its equal parts; counts are summed."""
    if len(losses) == 1:
        return losses[0]

    def together(values: list[Tensor]) -> Tensor:
        stacked = torch.stack(values)
        return stacked.mean() if stacked.is_floating_point() else stacked.sum()

    return LossValue(
        together([loss.total for loss in losses]),
        {name: together([loss.parts[name] for loss in losses]) for name in losses[0].parts},
        {name: torch.cat([loss.per_image[name] for loss in losses]) for name in losses[0].per_image},
    )


def compiled(network: FaceNetwork) -> Callable[[Tensor], dict[str, Tensor]]:
    """The network's forward pass, compiled on its first call for that input size and mode with torch.compile.

    The network itself and the names of its weights do not change; the compiled function uses the same weights.
    """
    # Imported here because the import takes seconds, and most runs do not compile.
    from torch._dynamo.exc import TorchDynamoException

    fused = torch.compile(network, dynamic=False)

    def forward(images: Tensor) -> dict[str, Tensor]:
        try:
            outputs: dict[str, Tensor] = fused(images)
        except TorchDynamoException as error:
            raise Error(
                f"compute.compile: PyTorch cannot compile the network here: {str(error).splitlines()[0]}. It needs a "
                "C++ compiler (g++, or the one that the environment variable CXX names) and, on a GPU, Triton; "
                "install what is missing, or train with compute.compile=false"
            ) from error
        return outputs

    return forward


class WeightAverage:
    """An exponential moving average of weights and buffers, which starts at those after the first step.

    Unlike ``torch.optim.swa_utils.AveragedModel``, an update waits for no device. ``keep`` is the weight of the old
    average in each update; ``module`` is a copy of the network with the averaged weights.
    """

    def __init__(self, network: nn.Module, keep: float) -> None:
        self.module = deepcopy(network).requires_grad_(False)
        self._keep = keep
        self._empty = True

    @torch.no_grad()
    def update(self, network: nn.Module) -> None:
        """Move the average towards the network's weights."""
        pairs = list(zip(_tensors(self.module), _tensors(network), strict=True))
        lerped = [pair for pair in pairs if pair[0].is_floating_point() and not self._empty]
        if lerped:
            averages, weights = map(list, zip(*lerped, strict=True))
            torch._foreach_lerp_(averages, weights, 1.0 - self._keep)
        for average, weight in pairs:
            # Counts are not averaged.
            if self._empty or not average.is_floating_point():
                average.copy_(weight)
        self._empty = False

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from the ``module.state_dict()`` of an average that was updated before."""
        self.module.load_state_dict(state)
        self._empty = False


def _tensors(network: nn.Module) -> list[Tensor]:
    return [tensor.detach() for tensor in (*network.parameters(), *network.buffers())]
