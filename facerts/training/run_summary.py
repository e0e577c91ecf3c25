"""The summaries that a training run prints at its start and at its end."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from facerts.io.console import say
from facerts.io.progress import duration, shown_rate
from facerts.training import checkpoint, log
from facerts.training.device import has_bf16
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.nn.flops import count_parameters
from facerts.training.recipe import Recipe
from facerts.training.validation import Validator


@dataclass
class RunSummary:
    """The length of a run, and what is known of it so far.

    Attributes:
        holds_out: whether people are held out, to choose thresholds on.
        started_at: step that this start of the run begins with; 0 unless it is resumed.
        losses: means over the last steps, by name: losses, and values per image such as temperatures.
        validation: the last measurement on each validation set by the set's name.
    """

    recipe: Recipe
    folder: Path
    steps_per_epoch: int
    holds_out: bool
    started_at: int = 0
    losses: dict[str, float] = field(default_factory=dict)
    validation: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Steps of the whole run."""
        epochs = self.recipe.optim.epochs
        return max(1, round(epochs * self.steps_per_epoch)) if epochs else 0

    def epoch_of(self, step: int) -> str:
        """The epoch that a step belongs to, counted from 1: "epoch 3/8"."""
        epochs = math.ceil(self.total / self.steps_per_epoch)
        return f"epoch {step // self.steps_per_epoch + 1}/{epochs}"

    def print_start(self, learner: Learner, data: TrainingData, validator: Validator) -> None:
        """What is trained, on what, for how long and where."""
        recipe, backbone = self.recipe, self.recipe.backbone
        rows = {
            "images": f"{len(data):,} of {data.identities:,} identities ({recipe.data.name})",
            "method": learner.method.name,
            "backbone": f"{backbone.name}, width {backbone.width:g}, "
            + (f"embedding size {backbone.embedding_size}" if backbone.embedding else "no embedding")
            + f": {count_parameters(learner.network):,} parameters",
            "device": f"{_device(learner)}, {_precision(learner)}",
            "length": f"{recipe.optim.epochs:g} epochs of {self.steps_per_epoch:,} steps of "
            f"{recipe.optim.batch_size:,} images: {self.total:,} steps"
            if self.total
            else "no steps",
            **({"start": _start(recipe)} if backbone.weights is not None else {}),
            "validation": ", ".join(validator.names) or "none",
        }
        if validator.degraded is not None:
            rows["degraded"] = f"{len(validator.degraded):,} faces of {validator.degraded.name}"
        if data.left_out:
            rows["images"] += f", {data.left_out:,} left out"
        if data.mislabeled:
            rows["images"] += f", {data.mislabeled:,} with a wrong label"
        if data.unlabeled is not None:
            rows["images"] += f", {len(data.unlabeled):,} without identity"
        if self.started_at:
            rows["resumed"] = (
                f"{self.folder / checkpoint.FILE}, after step {self.started_at:,} of {self.total:,}"
            )
        say(f"training {recipe.name} in {self.folder}")
        for name, text in rows.items():
            say(f"  {name:<11}{text}")

    def print_end(self, step: int, seconds: float, verdicts: Sequence[str]) -> None:
        """What came out, where it is, and what to do with it.

        Seconds count from the first step of this start; verdicts say whether the network is better than its initial
        weights.
        """
        steps = step - self.started_at
        images = steps * self.recipe.optim.batch_size
        if self.total:
            say(
                f"trained {steps:,} steps, {images:,} images in {duration(seconds)}: "
                f"{shown_rate(images / max(seconds, 1e-9))} images/s, validation and checkpoints included"
            )
        if step < self.total:
            say(
                f"  the schedule was shortened to {step:,} of {self.total:,} steps, to keep within the budget"
            )
        if self.losses:
            say(f"  means of the last steps: {summarize(self.losses)}")
        for name, metrics in self.validation.items():
            say(f"  {name}: {summarize(metrics)}")
        for verdict in verdicts:
            say(f"  {verdict}")
        say(f"  {self.folder} has {checkpoint.FILE}, recipe.yaml, {log.FILE} and tensorboard/")
        self._print_next()

    def print_finished(self, step: int) -> None:
        """That there is nothing left to train."""
        steps = f"all of its {step:,}" if step == self.total else f"{step:,}"
        say(f"{self.folder}: this run is finished, after {steps} steps; nothing was changed")
        self._print_next()

    def _print_next(self) -> None:
        model = f"{self.recipe.name}.onnx"
        existing = [path for path in self.recipe.validation.benchmarks if Path(path).exists()]
        data = shlex.quote(existing[0]) if existing else "BENCHMARK"
        export = f"facerts export {shlex.quote(str(self.folder))} --out {model}"
        if not self.holds_out:
            export += " --data PEOPLE/   # people to choose thresholds on, as the run held nobody out"
        say("next:")
        say(f"  {export}")
        if self.recipe.backbone.embedding:
            say(f"  facerts evaluate verification --model {model} --data {data} --out results")
        else:
            say(f"  facerts score PHOTOS/ --quality {model}")


def summarize(metrics: Mapping[str, Any]) -> str:
    """The numbers among some metrics in one line: "accuracy 0.9798, eer 0.0210"."""
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items() if isinstance(value, float))


def _start(recipe: Recipe) -> str:
    adapted = "" if recipe.backbone.adapt is None else ", its embedding adapted to these people"
    return f"{recipe.backbone.weights}{adapted}"


def _device(learner: Learner) -> str:
    if learner.device.type == "cuda":
        name = torch.cuda.get_device_name(learner.device)
    else:
        threads = torch.get_num_threads()
        name = f"{learner.device.type}, {threads} thread{'s' if threads > 1 else ''}"
    count = learner.processes.count
    return name if count == 1 else f"{count} processes, this one on {name}"


def _precision(learner: Learner) -> str:
    if learner.precision == "bf16" and not has_bf16(learner.device):
        return "bf16, which this device only imitates: compute.precision=fp32 is faster"
    return learner.precision
