"""Progress with rate and remaining time, on standard error: a bar on a terminal, lines in a file or pipe."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sized
from datetime import timedelta
from typing import Any, TypeVar

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from facerts.io.console import is_live, printable, say, stderr

Item = TypeVar("Item")

# Rates before this time say more about the start than about the work.
MINIMUM_SECONDS = 2.0
# Lines in a log: the first after some seconds, later ones after a share of the time so far.
FIRST_LINE_S, LINE_SHARE, MAXIMUM_GAP_S = 10.0, 0.1, 600.0


class StateColumn(ProgressColumn):
    """How far a task is, as ``state_of`` has it."""

    def render(self, task: Task) -> Text:
        return Text(state_of(task))


class ProgressBar(Progress):
    """rich's progress bar; where standard error is no terminal, it prints lines at growing intervals instead.

    A task may have been partly completed before, in a run that is continued: ``add_task(…, completed=N)``. The rate and
    the remaining time do not count that part.
    """

    def __init__(self, *columns: ProgressColumn, lines: bool, **options: Any) -> None:
        super().__init__(*columns, **options)
        self._lines = lines
        # Of each task: when its next line is due, and what its last one said.
        self._due: dict[TaskID, float] = {}
        self._said: dict[TaskID, str] = {}

    def add_task(self, description: str, *arguments: Any, **fields: Any) -> TaskID:
        fields = {"unit": "items", "restored": fields.get("completed", 0), **fields}
        task = super().add_task(printable(description), *arguments, **fields)
        self._due[task] = self.get_time() + FIRST_LINE_S
        return task

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._print_if_due(task_id)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._print_if_due(task_id)

    def stop(self) -> None:
        super().stop()
        if self._lines:
            for task in self.tasks:
                self._print(task)

    def _print_if_due(self, task_id: TaskID) -> None:
        if not self._lines:
            return
        with self._lock:
            now, task = self.get_time(), self._tasks[task_id]
            if now < self._due[task_id]:
                return
            self._due[task_id] = now + min(max(FIRST_LINE_S, LINE_SHARE * (task.elapsed or 0)), MAXIMUM_GAP_S)
            self._print(task)

    def _print(self, task: Task) -> None:
        text = f"{task.description}: {state_of(task)}"
        if self._said.get(task.id) != text:
            self._said[task.id] = text
            say(text)


def progress_bar(*, shown: bool = True) -> ProgressBar:
    """Progress of one or more tasks; add tasks with ``add_task(text, total=N, unit="images")``."""
    live = is_live()
    return ProgressBar(
        TextColumn("{task.description}", markup=False),
        BarColumn(20),
        StateColumn(),
        lines=shown and not live,
        console=stderr,
        speed_estimate_period=60,
        disable=not (shown and live),
    )


def track(items: Iterable[Item], text: str, total: int | None = None, unit: str = "images") -> Iterator[Item]:
    """Yield ``items`` with progress on standard error, or without if the text is empty."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar(shown=bool(text)) as bar:
        task = bar.add_task(text, total=total, unit=unit)
        for item in items:
            yield item
            bar.advance(task)


def state_of(task: Task) -> str:
    """How far a task is: "300/1,200 images, 60 images/s, 0:00:05 elapsed, 0:00:15 left"."""
    unit = task.fields["unit"]
    count = f"{task.completed:,.0f}" + ("" if task.total is None else f"/{task.total:,.0f}")
    elapsed = (task.finished_time if task.finished else task.elapsed) or 0.0
    parts = [f"{count} {unit}"]
    rate = _rate(task, elapsed)
    if rate:
        parts.append(f"{shown_rate(rate)} {unit}/s")
    parts.append(f"{duration(elapsed)} elapsed")
    if rate and task.remaining and not task.finished:
        parts.append(f"{duration(task.remaining / rate)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """A time in hours, minutes and seconds: "0:02:05", "1 day, 3:00:00"."""
    return str(timedelta(seconds=round(seconds)))


def parse_duration(text: str) -> float:
    """The seconds of a time such as "90s", "20m", "1.5h" or "1h30m"; a ValueError if it is none, or 0."""
    number = r"(\d+(?:\.\d+)?)"
    parts = re.fullmatch(rf"(?:{number}h)?(?:{number}m)?(?:{number}s)?", text.strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in parts.groups()) if parts else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total < math.inf:
        raise ValueError(f"{text!r} is not a time such as 90s, 20m, 1.5h or 1h30m")
    return total


def shown_rate(rate: float) -> str:
    """A rate with at least two digits: "1,234", "0.37"."""
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _rate(task: Task, elapsed: float) -> float | None:
    """Items per second: over the last minute, and of a finished task over all its time; None if too early to say."""
    done = task.completed - task.fields["restored"]
    average = done / elapsed if elapsed > 0 else None
    if task.finished:
        return average
    return None if elapsed < MINIMUM_SECONDS else task.speed or average
