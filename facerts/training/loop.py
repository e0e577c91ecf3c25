"""The training loop: one visible loop from the recipe to the last checkpoint."""

from __future__ import annotations

import signal
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from facerts.errors import Error, ModelError, first_line
from facerts.io.files import atomic_write, locked
from facerts.io.progress import progress_bar, stderr
from facerts.training import checkpoint
from facerts.training.distillation.teacher import open_teacher
from facerts.training.distributed.collectives import Processes, connected
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.log import RunLog
from facerts.training.methods import Batch, Loss
from facerts.training.recipe import Recipe, changed_fields
from facerts.training.schedule import learning_rate, margin_ramp
from facerts.training.validation import Validator

# A terminal or a queue sends a signal to all processes, and torchrun passes on the one that it got: so long it is the
# same wish.
ECHO_SECONDS = 2.0


def train(recipe: Recipe, folder: str | Path, *, resume: bool = False) -> Path:
    """Train as the recipe says; the run's folder gets recipe, log and checkpoints.

    Where ``torchrun`` has started several processes they train together: each takes its share of every batch and of the
    class centers, and the first writes and validates.

    Args:
        recipe: the run.
        folder: of the run; must be new unless ``resume``.
        resume: go on from the folder's checkpoint, or start where it has none yet. An uninterrupted run
            gives the same weights, on a CPU bit for bit.

    Returns:
        The path of the last checkpoint.

    Raises:
        NonFiniteLossError: the loss is no longer a number.
        Error: the data or the folder cannot be used, or another process trains into it.
        KeyboardInterrupt: interrupted; the step reached was saved and ``resume`` goes on from it.
    """
    with connected(recipe.compute.device) as processes:
        file = Path(folder) / checkpoint.FILE
        # The first may be about to write there.
        if any(processes.tell(_has_something(file.parent))) and not resume:
            raise Error(
                f"{folder} is not empty; add --resume to go on with the run in it, or choose another --out"
            )
        with locked(file) if processes.first else nullcontext():
            return _train(recipe, file, processes)


def _train(recipe: Recipe, file: Path, processes: Processes) -> Path:
    folder = file.parent
    if recipe.compute.threads is not None:
        torch.set_num_threads(recipe.compute.threads)
    # Batches are of one size, so cuDNN may try which algorithm is fastest for it.
    torch.backends.cudnn.benchmark = True
    data = TrainingData(recipe, processes)
    validator = Validator(recipe, data.heldout)
    teacher = open_teacher(recipe, data.source, data.unlabeled, folder)
    learner = Learner(recipe, data.identities, teacher, processes)
    step = _restore(learner, file) if file.exists() else 0
    if processes.first:
        with atomic_write(folder / "recipe.yaml", "w") as text:
            text.write(recipe.to_yaml())

    steps_per_epoch = len(data) // recipe.labeled_size
    total = max(1, round(recipe.optim.epochs * steps_per_epoch))
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
            saver.save(file, recipe, {"step": step, **state})

    def progress_of(step: int) -> dict[str, Any]:
        images = step * recipe.optim.batch_size
        return {"epoch": round(step / steps_per_epoch, 4), "images": images}

    meter = Meter(processes)
    with (
        RunLog(folder, step) if processes.first else nullcontext() as log,
        progress_bar(shown=processes.first) as bar,
        checkpoint.Saver() as saver,
        _interruptible() as interrupted,
    ):
        task = bar.add_task(recipe.name, total=total * recipe.optim.batch_size, unit="images")
        bar.update(task, completed=step * recipe.optim.batch_size)
        for crops, labels, samples in data.batches(step, total):
            ramp = margin_ramp(step, total, recipe.optim.margin_ramp)
            rate = learning_rate(step, **schedule)
            batch = Batch(labels.to(learner.device), samples, step, recipe.seed, ramp, processes)
            loss = learner.step(crops, batch, rate)
            step += 1
            meter.add(loss, len(samples))
            bar.update(
                task,
                advance=recipe.optim.batch_size,
                description=f"{recipe.name} loss {loss.total.item():.3f}",
            )
            if step % recipe.logging.every_steps == 0 or step == total:
                numbers = meter.read()
                if log is not None:
                    log.write("train", step, **progress_of(step), lr=rate, ramp=ramp, **numbers)
            if step % validate_every == 0 or step == total:
                # The others wait for the first in the next step.
                with meter.paused():
                    if log is not None:
                        for name, measured in validator.measure(learner.embedder()):
                            log.write("validation", step, **progress_of(step), name=name, **measured)
                            bar.console.print(f"step {step} {name}: {_summary(measured)}", highlight=False)
            if step % recipe.logging.checkpoint_steps == 0 or step == total:
                with meter.paused():
                    save()
            elif processes.any(interrupted()):
                save()
                saver.wait()
                if processes.first:
                    stderr.print(f"saved step {step} in {file}; --resume goes on from it")
                raise KeyboardInterrupt
    return file


class Meter:
    """Means, counts and percentiles of what the steps since the last log line gave, in all processes."""

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
        self._images += images
        for name, value in {"loss": loss.total.detach(), **loss.parts}.items():
            self._parts[name].append(value)
        for name, value in loss.per_image.items():
            self._per_image[name].append(value)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time in here is not training time."""
        began = time.monotonic()
        yield
        self._pauses += time.monotonic() - began

    def read(self) -> dict[str, float]:
        """The numbers since the last call: whole numbers are summed, others averaged. All processes call it."""
        seconds = time.monotonic() - self._started - self._pauses
        numbers: dict[str, float] = {}
        for name, values in self._parts.items():
            stacked = self._processes.gather(torch.stack(values))
            numbers[name] = (stacked.mean() if stacked.is_floating_point() else stacked.sum()).item()
        for name, values in self._per_image.items():
            stacked = self._processes.gather(torch.cat(values).float())
            numbers[f"{name}_mean"] = stacked.mean().item()
            for percent in (5, 50, 95):
                numbers[f"{name}_p{percent}"] = stacked.quantile(percent / 100).item()
        numbers["images_per_second"] = round(self._processes.count * self._images / max(seconds, 1e-9), 2)
        numbers["seconds"] = round(seconds, 3)
        self._clear()
        return numbers


def _has_something(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _restore(learner: Learner, file: Path) -> int:
    """Load the checkpoint; a recipe that would train something else is refused."""
    recipe, state = checkpoint.load_checkpoint(file)
    changed = changed_fields(recipe, learner.recipe)
    if changed:
        raise Error(
            f"{file} was written by a different recipe ({', '.join(changed)} changed); "
            "resume with the same recipe or choose another --out"
        )
    try:
        learner.load_state_dict(state)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelError(
            f"{file}: not the whole state of a run ({first_line(error)}); take an earlier checkpoint, or begin anew"
        ) from error
    return int(state["step"])


def _summary(measured: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in measured.items() if isinstance(value, float))


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Turn an interrupt into a wish that the loop reads between steps; another one, later, ends at once."""
    wished: float | None = None

    def wish(number: int, frame: FrameType | None) -> None:
        nonlocal wished
        now = time.monotonic()
        if wished is not None and now - wished > ECHO_SECONDS:
            raise KeyboardInterrupt
        wished = wished or now

    before = {number: signal.signal(number, wish) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: wished is not None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
