"""The training loop, from the recipe to the last checkpoint."""

from __future__ import annotations

import atexit
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from facerts.embedding.aligned import alignment_notes
from facerts.errors import Error, ModelError, first_line
from facerts.io.console import say, warn
from facerts.io.files import atomic_write, locked
from facerts.io.progress import duration, progress_bar
from facerts.losses.collectives import Processes, connected
from facerts.nn.device import to_device
from facerts.training import checkpoint
from facerts.training.checkpoint import RunState
from facerts.training.distillation import open_distillation
from facerts.training.learner import Learner
from facerts.training.loader import Batch, TrainingData, on_device
from facerts.training.recipe import Recipe, changed_fields, require_values
from facerts.training.run_summary import Meter, RunLog, RunSummary, TrainedStep, summarize
from facerts.training.schedule import AGREED_EVERY, MARGIN, Pace, learning_rate, margin_ramp
from facerts.training.validation import Validator, compare_with_start

# Training takes aligned crops; this makes them of photos, and keeps the folders of the people.
ALIGN = "align them first: facerts score PHOTOS/ --largest --save-crops PEOPLE/ --out crops.csv"

# Mean cross-entropy of a run that has diverged: chance is the logarithm of the number of identities, and a margin adds
# at most twice the logit scale.
DIVERGED = 1000.0
# A terminal or a queue signals all processes, and torchrun forwards the signal that it got itself. Within this time, a
# second signal counts as the same interrupt.
SAME_INTERRUPT_S = 2.0


def train(recipe: Recipe, folder: str | Path, *, resume: bool = False, budget_s: float | None = None) -> Path:
    """Train a recipe; recipe, log and checkpoints are written to the run's folder.

    Processes that ``torchrun`` has started train together: each takes its share of every batch and of the class
    centers; the first process writes the files and validates.

    Args:
        folder: folder of the run; must be new or empty unless ``resume``.
        resume: continue from the checkpoint in the folder, or start if there is none yet. The weights are the same as
            those of an uninterrupted run, on a CPU bit for bit.
        budget_s: seconds within which the run must end, the last validation and checkpoint included. The schedule is
            shortened as the measured speed demands, so that the run ends with it; never lengthened. None for all steps
            of the recipe.

    Returns:
        The path of the last checkpoint.

    Raises:
        RecipeError: a value is still to be given, or names an environment variable that is not set.
        NonFiniteLossError: the loss is infinite or NaN.
        KeyboardInterrupt: interrupted; the current step was saved, and ``resume`` continues from it.
    """
    require_values(recipe)
    deadline = None if budget_s is None else time.monotonic() + budget_s
    with connected(recipe.compute.device) as processes:
        file = Path(folder) / checkpoint.FILE
        # All processes exchange the result, because the first may be about to write to the folder.
        if any(processes.all_gather_object(_is_not_empty(file.parent))) and not resume:
            raise Error(f"{folder}: not empty; resume the run in it (--resume), or choose another folder (--out)")
        with locked(file) if processes.first else nullcontext():
            _Run(recipe, file, processes).train(deadline)
        return file


class _Run:
    """A run of a recipe in one of its processes, from the last checkpoint on."""

    def __init__(self, recipe: Recipe, file: Path, processes: Processes) -> None:
        if recipe.compute.threads is not None:
            torch.set_num_threads(recipe.compute.threads)
        # All batches have the same size, so it pays to let cuDNN benchmark its algorithms.
        torch.backends.cudnn.benchmark = True
        self._recipe, self._file, self._processes = recipe, file, processes
        self._data = TrainingData(recipe, processes)
        self._validator = Validator(recipe, self._data.heldout, warns=processes.first)
        steps_per_epoch = max(1, len(self._data) // recipe.labeled_size)
        self._summary = RunSummary(recipe, file.parent, steps_per_epoch, bool(self._validator.heldout))
        distillation = open_distillation(recipe, self._data.source, self._data.unlabeled, file.parent)
        self._learner = Learner(recipe, self._data.identities, distillation, processes, self._data.source)
        self._is_restored = os.path.lexists(file)
        self.step, position = _restore(self._learner, file) if self._is_restored else (0, 0.0)
        self.pace = Pace(
            self._summary.total,
            position,
            processes,
            # The host queues work on a GPU ahead of it.
            lead=0 if self._learner.device.type == "cpu" else AGREED_EVERY,
        )
        self._summary.started_at = self.step
        self._meter = Meter(processes)
        self._rows = recipe.optim.batch_size * self._learner.loss.views // processes.count
        self._has_diverged = False

    def train(self, deadline: float | None) -> None:
        """Train to the end of the schedule; by the deadline, if there is one."""
        recipe, summary, processes = self._recipe, self._summary, self._processes
        if self.pace.is_finished() and self._is_restored:
            if processes.first:
                summary.print_finished(self.step)
            return
        if processes.first:
            with atomic_write(self._file.parent / "recipe.yaml", "w") as text:
                text.write(recipe.to_yaml())
            for note in alignment_notes(self._data.source, ALIGN):
                warn(note)
            summary.print_start(self._learner, self._data, self._validator)
        with (
            RunLog(self._file.parent, self.step) if processes.first else nullcontext() as self._log,
            progress_bar(shown=processes.first) as self._bar,
            checkpoint.CheckpointWriter() as self._writer,
            interruptible() as interrupted,
        ):
            if deadline is not None:
                self._limit(deadline)
            started = time.monotonic()
            batch_size = recipe.optim.batch_size
            if self.pace.steps_left:
                self._task = self._bar.add_task(
                    recipe.name,
                    total=(self.step + self.pace.steps_left) * batch_size,
                    completed=self.step * batch_size,
                    unit="images",
                )
            if self.pace.is_finished():  # a recipe without steps
                self._finish_step(stops=False)
            with closing(self._data.batches(self.step, self.step + self.pace.steps_left)) as batches:
                # Teachers see the crops on the host.
                on_host = self._learner.teacher is not None
                for batch in batches if on_host else on_device(batches, self._learner.device):
                    self._train_step(batch)
                    asks = processes.count == 1 or self.step % AGREED_EVERY == 0
                    self._finish_step(stops=asks and processes.any(interrupted()))
                    if self.pace.is_finished():
                        break
            verdicts = self._compare_with_start() if processes.first else []
            weights = str(recipe.backbone.weights)
            for verdict in verdicts:
                # Reports are for others, too: not where the weights are.
                self._write("verdict", self.step, text=verdict.replace(weights, Path(weights).name))
        if processes.first:
            summary.print_end(self.step, time.monotonic() - started, verdicts)

    def _limit(self, deadline: float) -> None:
        """Reserve the time of the last validation and checkpoint, by measuring both now."""
        started = time.monotonic()
        if self._processes.first:
            for _ in self._validator.measure(self._learner.embedder()):
                pass
        self._save()
        self._writer.wait()
        reserve = (1 + MARGIN) * (time.monotonic() - started)
        left = deadline - time.monotonic()
        if any(self._processes.all_gather_object(left <= reserve)):
            raise Error(
                f"the budget leaves {duration(max(left, 0))}, and the last validation and checkpoint take about "
                f"{duration(reserve)}; allow more time"
            )
        self.pace.finish_by(deadline - reserve)
        if self._processes.first:
            say(
                f"  {'budget':<11}{duration(left - reserve)} for training, "
                f"{duration(reserve)} for the last validation and checkpoint"
            )

    def _train_step(self, batch: Batch) -> None:
        optim, position, per_epoch = self._recipe.optim, self.pace.position, self._summary.steps_per_epoch
        rate = learning_rate(
            position,
            base=optim.lr,
            total=self.pace.total,
            schedule=optim.schedule,
            milestones=[epoch * per_epoch for epoch in optim.milestones],
            decay=optim.decay,
            warmup=optim.warmup_epochs * per_epoch,
        )
        ramp = margin_ramp(position, self.pace.total, optim.margin_ramp)
        batch = batch._replace(labels=to_device(batch.labels, self._learner.device))
        loss = self._learner.step(batch, self.step, rate, ramp)
        self._meter.add(TrainedStep(self.step, rate, ramp, loss), self._rows)
        self.step += 1
        self.pace.advance(self.step)
        steps = self.step + self.pace.steps_at_this_speed(self.step - self._summary.started_at)
        batch_size = optim.batch_size
        self._bar.update(self._task, completed=self.step * batch_size, total=steps * batch_size)

    def _finish_step(self, *, stops: bool) -> None:
        """Log, validate and save, as far as it is due."""
        step, recipe, finished = self.step, self._recipe, self.pace.is_finished()
        validate_every = max(1, round(recipe.validation.every_epochs * self._summary.steps_per_epoch))
        validates = finished or step % validate_every == 0
        saves = finished or step % recipe.logging.checkpoint_steps == 0
        logs = finished or step % recipe.logging.every_steps == 0
        # What is written must come from steps whose losses are known to be finite.
        if logs or validates or saves or stops:
            self._meter.check()
        if logs and self._meter.last is not None:
            self._log_losses(self._meter.last)
        if validates:
            # Only the first process validates; the others wait for it in the next step.
            with self._meter.paused():
                self._validate()
        if saves:
            with self._meter.paused():
                self._save()
        elif stops:
            self._save()
            self._writer.wait()
            if self._processes.first:
                say(f"saved step {step} in {self._file}; resume to continue from it")
            raise KeyboardInterrupt

    def _log_losses(self, last: TrainedStep) -> None:
        summary, values = self._summary, self._meter.read()
        summary.losses = {name: values[name] for name in ("loss", *last.loss.parts)}
        summary.losses |= {name: values[f"{name}_mean"] for name in last.loss.per_image}
        description = f"{self._recipe.name} {summary.epoch_of(last.step)} loss {values['loss']:.3f}"
        self._bar.update(self._task, description=description)
        self._write("train", self.step, lr=last.learning_rate, ramp=last.ramp, **values)
        self._warn_if_diverged(self.step, values.get("cross_entropy", 0.0))

    def _warn_if_diverged(self, step: int, cross_entropy: float) -> None:
        """Warn once of a loss that is finite but beyond what a network can recover from."""
        if cross_entropy > DIVERGED and not self._has_diverged and self._processes.first:
            warn(
                f"step {step}: the cross-entropy is {cross_entropy:,.0f}, so the training has diverged; stop it and "
                "start again with a lower optim.lr or with optim.clip_norm, and for RTS with more method.degrees"
            )
            self._has_diverged = True

    def _validate(self) -> None:
        if self._processes.first:
            for name, metrics in self._validator.measure(self._learner.embedder()):
                self._write("validation", self.step, name=name, **metrics)
                say(f"step {self.step} {name}: {summarize(metrics)}")
                self._summary.validation[name] = metrics

    def _compare_with_start(self) -> list[str]:
        """Whether the network is better than the weights that it started from, if its embedding can differ."""
        recipe = self._recipe
        if recipe.backbone.weights is None or not recipe.backbone.embedding:
            return []
        if self._learner.frozen and recipe.backbone.adapt is None:
            return []
        embedder = self._learner.embedder()
        return [compare_with_start(recipe, source, embedder) for source in self._validator.heldout]

    def _write(self, kind: str, step: int, **fields: Any) -> None:
        if self._log is not None:
            images = step * self._recipe.optim.batch_size
            epoch = round(step / self._summary.steps_per_epoch, 4)
            self._log.write(kind, step, epoch=epoch, images=images, **fields)

    def _save(self) -> None:
        state = self._learner.state_dict()
        if self._processes.first:
            run: RunState = {"step": self.step, "position": self.pace.position, **state}
            self._writer.save(self._file, self._recipe, run)


def _is_not_empty(folder: Path) -> bool:
    return folder.exists() and any(folder.iterdir())


def _restore(learner: Learner, file: Path) -> tuple[int, float]:
    """Load the checkpoint into the learner and return its step and position."""
    recipe, state = checkpoint.load_checkpoint(file)
    changed = changed_fields(recipe, learner.recipe)
    if changed:
        raise Error(
            f"{file}: was written by a different recipe ({', '.join(changed)} changed); "
            "resume with the same recipe, or choose another folder"
        )
    try:
        learner.load_state_dict(state)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise ModelError(
            f"{file}: not the complete state of a run ({first_line(error)}); use an earlier checkpoint, or start again"
        ) from error
    return int(state["step"]), float(state["position"])


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Turn SIGINT and SIGTERM into a flag for the loop to check between steps; a second one raises immediately."""
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
