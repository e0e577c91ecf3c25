"""The training loop, from the recipe to the last checkpoint."""

from __future__ import annotations

import atexit
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from facerts.errors import Error, ModelError, first_line
from facerts.io.console import say
from facerts.io.files import atomic_write, locked
from facerts.io.progress import progress_bar
from facerts.training import checkpoint
from facerts.training.distillation.losses import open_distillation
from facerts.training.distributed.collectives import Processes, connected
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.log import RunLog
from facerts.training.methods import Batch, Loss
from facerts.training.recipe import Recipe, changed_fields
from facerts.training.run_summary import RunSummary, summarize
from facerts.training.schedule import learning_rate, margin_ramp
from facerts.training.step_reports import GROUP, StepReport
from facerts.training.transfer import on_device, to_device
from facerts.training.validation import Validator

# A terminal or a queue signals all processes, and torchrun forwards the signal that it got itself. Within this time, a
# second signal counts as the same interrupt.
SAME_INTERRUPT_S = 2.0


def train(recipe: Recipe, folder: str | Path, *, resume: bool = False) -> Path:
    """Train a recipe; recipe, log and checkpoints are written to the run's folder.

    Processes that ``torchrun`` has started train together: each takes its share of every batch and of the class
    centers; the first process writes the files and validates.

    Args:
        recipe: recipe of the run.
        folder: folder of the run; must be new or empty unless ``resume``.
        resume: continue from the checkpoint in the folder, or start if there is none yet. The weights are the same as
            those of an uninterrupted run, on a CPU bit for bit.

    Returns:
        The path of the last checkpoint.

    Raises:
        NonFiniteLossError: the loss is infinite or NaN.
        Error: the data or the folder cannot be used, or another process is training in the folder.
        KeyboardInterrupt: interrupted; the current step was saved, and ``resume`` continues from it.
    """
    with connected(recipe.compute.device) as processes:
        file = Path(folder) / checkpoint.FILE
        # All processes exchange the result, because the first may be about to write to the folder.
        if any(processes.all_gather_object(_is_not_empty(file.parent))) and not resume:
            raise Error(
                f"{folder}: not empty; add --resume to continue the run in it, or choose another --out"
            )
        with locked(file) if processes.first else nullcontext():
            return _train(recipe, file, processes)


def _train(recipe: Recipe, file: Path, processes: Processes) -> Path:
    folder = file.parent
    if recipe.compute.threads is not None:
        torch.set_num_threads(recipe.compute.threads)
    # All batches have the same size, so it pays to let cuDNN benchmark its algorithms.
    torch.backends.cudnn.benchmark = True
    data = TrainingData(recipe, processes)
    summary = RunSummary(recipe, folder, len(data) // recipe.labeled_size)
    steps_per_epoch, total = summary.steps_per_epoch, summary.total
    validator = Validator(recipe, data.heldout, warns=processes.first)
    distillation = open_distillation(recipe, data.source, data.unlabeled, folder)
    learner = Learner(recipe, data.identities, distillation, processes)
    step = summary.started_at = _restore(learner, file) if file.exists() else 0
    if step >= total:
        if processes.first:
            summary.print_finished()
        return file
    if processes.first:
        with atomic_write(folder / "recipe.yaml", "w") as text:
            text.write(recipe.to_yaml())
        summary.print_start(learner, data, validator)

    validate_every = max(1, round(recipe.validation.every_epochs * steps_per_epoch))
    schedule: dict[str, Any] = {
        "base": recipe.optim.lr,
        "total": total,
        "schedule": recipe.optim.schedule,
        "milestones": [epoch * steps_per_epoch for epoch in recipe.optim.milestones],
        "decay": recipe.optim.decay,
        "warmup": recipe.optim.warmup_epochs * steps_per_epoch,
    }

    def save() -> None:
        state = learner.state_dict()
        if processes.first:
            writer.save(file, recipe, {"step": step, **state})

    def progress_of(step: int) -> dict[str, Any]:
        images = step * recipe.optim.batch_size
        return {"epoch": round(step / steps_per_epoch, 4), "images": images}

    def measure_degraded() -> None:
        if log is not None and validator.degraded is not None:
            for corruption, metrics in validator.degraded.measure(learner.embedder()):
                where = {"name": validator.degraded.name, "corruption": corruption}
                log.write("quality", step, **progress_of(step), **where, **metrics)

    images_of_step = recipe.optim.batch_size * learner.method.views // processes.count

    def note(report: StepReport) -> None:
        step, loss = report.step + 1, report.loss
        description = f"{recipe.name} {summary.epoch_of(report.step)} loss {loss.total.item():.3f}"
        bar.update(task, description=description)
        meter.add(loss, images_of_step)
        if step % recipe.logging.every_steps == 0 or step == total:
            values = meter.read()
            summary.losses = {name: values[name] for name in ("loss", *loss.parts)}
            summary.losses |= {name: values[f"{name}_mean"] for name in loss.per_image}
            if log is not None:
                fields = {"lr": report.learning_rate, "ramp": report.ramp, **values}
                log.write("train", step, **progress_of(step), **fields)

    meter = Meter(processes)
    started = time.monotonic()
    with (
        RunLog(folder, step) if processes.first else nullcontext() as log,
        progress_bar(shown=processes.first) as bar,
        checkpoint.CheckpointWriter() as writer,
        _interruptible() as interrupted,
    ):
        batch_size = recipe.optim.batch_size
        task = bar.add_task(recipe.name, total=total * batch_size, completed=step * batch_size, unit="images")
        if step == 0:
            with meter.paused():
                measure_degraded()
        batches = data.batches(step, total)
        if learner.teacher is None:
            batches = on_device(batches, learner.device)
        for crops, labels, samples in batches:
            ramp = margin_ramp(step, total, recipe.optim.margin_ramp)
            labels = to_device(labels, learner.device)
            batch = Batch(labels, samples, step, recipe.seed, ramp, processes)
            learner.step(crops, batch, learning_rate(step, **schedule))
            step += 1
            bar.update(task, advance=batch_size)
            validates = step % validate_every == 0 or step == total
            saves = step % recipe.logging.checkpoint_steps == 0 or step == total
            # A run with late reports also stops late: asking all processes is as much of a wait as reading a number.
            stops = (not learner.reports.late or step % GROUP == 0) and processes.any(interrupted())
            # What is written must come from steps whose losses are known to be finite.
            for report in learner.reports.take(wait=validates or saves or stops):
                note(report)
            if validates:
                # Only the first process validates; the others wait for it in the next step.
                with meter.paused():
                    if log is not None:
                        for name, metrics in validator.measure(learner.embedder()):
                            log.write("validation", step, **progress_of(step), name=name, **metrics)
                            say(f"step {step} {name}: {summarize(metrics)}")
                            summary.validation[name] = metrics
                    measure_degraded()
            if saves:
                with meter.paused():
                    save()
            elif stops:
                save()
                writer.wait()
                if processes.first:
                    say(f"saved step {step} in {file}; --resume continues from it")
                raise KeyboardInterrupt
    if processes.first:
        summary.print_end(time.monotonic() - started)
    return file


class Meter:
    """Aggregates the losses of the steps since the last log line, over all processes."""

    def __init__(self, processes: Processes | None = None) -> None:
        self._processes = processes or Processes()
        self._clear()

    def _clear(self) -> None:
        self._started = time.monotonic()
        self._pauses = 0.0
        self._images = 0
        self._parts: dict[str, list[torch.Tensor]] = defaultdict(list)
        self._per_image: dict[str, list[torch.Tensor]] = defaultdict(list)

    def add(self, loss: Loss, images: int) -> None:
        """Add the loss of a step with this many images; its tensors are on the host."""
        self._images += images
        for name, value in {"loss": loss.total, **loss.parts}.items():
            self._parts[name].append(value)
        for name, value in loss.per_image.items():
            self._per_image[name].append(value)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Exclude the time spent in the block from the training time."""
        start = time.monotonic()
        yield
        self._pauses += time.monotonic() - start

    def read(self) -> dict[str, float]:
        """The values since the last call: means, sums of integer parts, and percentiles of values per image.

        All processes must call it together.
        """
        seconds = time.monotonic() - self._started - self._pauses
        aggregated: dict[str, float] = {}
        for name, values in self._parts.items():
            stacked = self._gathered(torch.stack(values))
            aggregated[name] = (stacked.mean() if stacked.is_floating_point() else stacked.sum()).item()
        for name, values in self._per_image.items():
            stacked = self._gathered(torch.cat(values).float())
            aggregated[f"{name}_mean"] = stacked.mean().item()
            for percent in (5, 50, 95):
                aggregated[f"{name}_p{percent}"] = stacked.quantile(percent / 100).item()
        aggregated["images_per_second"] = round(self._processes.count * self._images / max(seconds, 1e-9), 2)
        aggregated["seconds"] = round(seconds, 3)
        self._clear()
        return aggregated

    def _gathered(self, values: torch.Tensor) -> torch.Tensor:
        """The values of all processes. As objects, because NCCL sends no tensors of the host."""
        return torch.cat(self._processes.all_gather_object(values))


def _is_not_empty(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _restore(learner: Learner, file: Path) -> int:
    """Load the checkpoint into the learner and return its step.

    Raises:
        ModelError: the checkpoint is not complete.
        Error: the checkpoint is of a recipe that trains something else.
    """
    recipe, state = checkpoint.load_checkpoint(file)
    changed = changed_fields(recipe, learner.recipe)
    if changed:
        raise Error(
            f"{file}: was written by a different recipe ({', '.join(changed)} changed); "
            "resume with the same recipe, or choose another --out"
        )
    try:
        learner.load_state_dict(state)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelError(
            f"{file}: not the complete state of a run ({first_line(error)}); use an earlier checkpoint, or start again"
        ) from error
    return int(state["step"])


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Turn SIGINT and SIGTERM into a flag that the loop checks between steps; a second one raises immediately.

    Yields:
        A function that returns whether a signal has arrived.
    """
    interrupted_at: float | None = None
    in_loop = True

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted_at
        interrupted_at = interrupted_at or time.monotonic()
        if time.monotonic() - interrupted_at <= SAME_INTERRUPT_S:
            return
        if in_loop:
            raise KeyboardInterrupt
        signal.signal(number, previous[signal.Signals(number)])
        signal.raise_signal(number)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: interrupted_at is not None
    finally:
        in_loop = False
        if interrupted_at is None:
            _handle_signals(previous)
        else:
            # Its repetition may come while the process ends, when Python restores the defaults, which kill.
            atexit.register(_handle_signals, dict.fromkeys(previous, signal.SIG_IGN))


def _handle_signals(handlers: Mapping[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)
