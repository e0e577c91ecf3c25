"""What a training run prints at its start and at its end, and the log that it writes in between."""

from __future__ import annotations

import json
import math
import shlex
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from facerts.errors import NonFiniteLossError
from facerts.io.console import say
from facerts.io.files import atomic_write, refuse_link, writing
from facerts.io.progress import duration, shown_rate
from facerts.losses import LossValue
from facerts.losses.collectives import Processes
from facerts.nn.device import has_bf16
from facerts.nn.flops import count_parameters
from facerts.training import checkpoint
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.recipe import Recipe
from facerts.training.validation import Validator

FILE = "log.jsonl"


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

    @property
    def ramp_steps(self) -> int:
        """Steps over which the margin rises from 0; 0 if the method has none, or has it at once."""
        has_margin = any(value for setting, value in self.recipe.method.items() if setting.endswith("margin"))
        return math.ceil(self.recipe.optim.margin_ramp * self.total) if has_margin else 0

    def epoch_of(self, step: int) -> str:
        """The epoch that a step belongs to, counted from 1: "epoch 3/8"."""
        epochs = math.ceil(self.total / self.steps_per_epoch)
        return f"epoch {step // self.steps_per_epoch + 1}/{epochs}"

    def print_start(self, learner: Learner, data: TrainingData, validator: Validator) -> None:
        """What is trained, on what, for how long and where."""
        recipe, backbone = self.recipe, self.recipe.backbone
        rows = {
            "images": f"{len(data):,} of {data.identities:,} identities ({recipe.data.name})",
            "method": learner.loss.name,
            "backbone": f"{backbone.name}, width {backbone.width:g}, "
            + (f"embedding size {backbone.embedding_size}" if backbone.embedding else "no embedding")
            + f": {count_parameters(learner.network):,} parameters",
            "device": f"{_device(learner)}, {_precision(learner)}",
            "length": f"{recipe.optim.epochs:g} epochs of {self.steps_per_epoch:,} steps of "
            f"{recipe.optim.batch_size:,} images: {self.total:,} steps"
            if self.total
            else "no training steps",
        }
        if backbone.weights is not None:
            adapted = "" if backbone.adapt is None else ", its embedding adapted to these people"
            rows["start"] = f"{backbone.weights}{adapted}"
        rows["validation"] = ", ".join(validator.names) or "none"
        if self.ramp_steps:
            rows["margin"] = f"rises until step {self.ramp_steps:,}, and the loss with it"
        if data.unlabeled is not None:
            rows["images"] += f", {len(data.unlabeled):,} without identity"
        if self.started_at:
            rows["resumed"] = f"{self.folder / checkpoint.FILE}, after step {self.started_at:,} of {self.total:,}"
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
            say(f"  the schedule was shortened to {step:,} of {self.total:,} steps, to keep within the budget")
        if self.losses:
            say(f"  means of the last steps: {summarize(self.losses)}")
        # Without a step, the validation has just been printed.
        for name, metrics in self.validation.items() if self.total else ():
            say(f"  {name}: {summarize(metrics)}")
        for verdict in verdicts:
            say(f"  {verdict}")
        say(f"  {self.folder} has {checkpoint.FILE}, recipe.yaml, {FILE} and tensorboard/")
        if not any(verdict.startswith("worse") for verdict in verdicts):
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


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's event files in a run's folder.

    Args:
        resumed_at: step that the run starts from; 0 starts a new log. Lines of later steps, which an interrupted run
            wrote after its last checkpoint, are removed so that no step is logged twice.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        self._path = path = folder / FILE
        self._events = folder / "tensorboard"
        refuse_link(self._events)
        is_there = resumed_at and path.is_file()
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if is_there else []
        # Written anew in any case, so that a link is replaced and not appended to.
        with atomic_write(path, "w") as file:
            file.writelines(f"{line}\n" for line in lines if _before(line, resumed_at))
        with writing(path):
            self._file = path.open("a", encoding="utf-8")
        with writing(self._events):
            self._board = SummaryWriter(str(self._events), purge_step=resumed_at)

    def write(self, kind: str, step: int, **fields: Any) -> None:
        """Log one line; a name groups TensorBoard's curves."""
        with writing(self._path):
            self._file.write(json.dumps({"kind": kind, "step": step, **fields}) + "\n")
            self._file.flush()
        group = "/".join(filter(None, [kind, fields.get("name")]))
        with writing(self._events):
            for name, value in fields.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    self._board.add_scalar(f"{group}/{name}", value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with writing(self._events), closing(self._board), writing(self._path), self._file:
            pass


def _before(line: str, step: int) -> bool:
    """Whether a line is complete and its step is at most ``step``."""
    try:
        logged = json.loads(line).get("step", math.inf)
    except (ValueError, RecursionError, AttributeError):  # a line that a killed run did not finish
        return False
    return isinstance(logged, int | float) and logged <= step


@dataclass(frozen=True)
class TrainedStep:
    """A step, counted from 0, and its detached loss in this process."""

    step: int
    learning_rate: float
    ramp: float
    loss: LossValue

    def cause(self) -> str:
        """Where the loss stopped being finite, and what to do."""
        parts = ", ".join(f"{name} {value.item():.4g}" for name, value in self.loss.parts.items())
        return (
            f"the loss is {self.loss.item()} at step {self.step}: {parts}; learning rate {self.learning_rate:g}, "
            f"margin ramp {self.ramp:.2f}. Lower optim.lr, set optim.clip_norm, or use bf16 instead of fp16; resume to "
            "continue from the last checkpoint"
        )


class Meter:
    """The steps since the last log line. Their losses stay on the device until they are read.

    To read a number, the host must wait until the device has done all work that was queued before, and the device then
    has nothing to do until the host has queued more. All processes must check and read together.
    """

    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = processes or Processes()
        self._clear()

    def _clear(self) -> None:
        self._started = time.monotonic()
        self._pauses = 0.0
        self._images = 0
        self._steps: list[TrainedStep] = []

    @property
    def last(self) -> TrainedStep | None:
        """The last step since the last log line."""
        return self._steps[-1] if self._steps else None

    def add(self, step: TrainedStep, images: int) -> None:
        """Add a step with this many images."""
        self._steps.append(step)
        self._images += images

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in the block from the training time."""
        start = time.monotonic()
        yield
        self._pauses += time.monotonic() - start

    def check(self) -> None:
        """Check that all losses are finite, in all processes.

        Raises:
            NonFiniteLossError: names the first step whose loss is not.
        """
        totals = torch.stack([step.loss.total for step in self._steps]).cpu() if self._steps else torch.empty(0)
        broken = (~totals.isfinite()).nonzero().flatten().tolist()
        causes = self._processes.all_gather_object(self._steps[broken[0]].cause() if broken else None)
        several = len(causes) > 1
        if stated := [f"process {n}: {text}" if several else text for n, text in enumerate(causes) if text]:
            raise NonFiniteLossError("; ".join(stated))

    def read(self) -> dict[str, float]:
        """The values since the last call: means, sums of integer parts, and percentiles of values per image."""
        parts: dict[str, list[Tensor]] = defaultdict(list)
        per_image: dict[str, list[Tensor]] = defaultdict(list)
        for step in self._steps:
            for name, value in {"loss": step.loss.total, **step.loss.parts}.items():
                parts[name].append(value)
            for name, value in step.loss.per_image.items():
                per_image[name].append(value)
        aggregated: dict[str, float] = {}
        for name, values in parts.items():
            stacked = self._gathered(torch.stack(values))
            aggregated[name] = (stacked.mean() if stacked.is_floating_point() else stacked.sum()).item()
        for name, values in per_image.items():
            stacked = self._gathered(torch.cat(values).float())
            aggregated[f"{name}_mean"] = stacked.mean().item()
            for percent in (5, 50, 95):
                aggregated[f"{name}_p{percent}"] = stacked.quantile(percent / 100).item()
        seconds = time.monotonic() - self._started - self._pauses
        aggregated["images_per_second"] = round(self._processes.count * self._images / max(seconds, 1e-9), 2)
        aggregated["seconds"] = round(seconds, 3)
        self._clear()
        return aggregated

    def _gathered(self, values: Tensor) -> Tensor:
        """The values of all processes, on the host: NCCL sends no tensors of the host, but objects."""
        return torch.cat(self._processes.all_gather_object(values.cpu()))
