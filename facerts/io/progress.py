"""Progress bars with rate and remaining time, on standard error (standard output is for results)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

Item = TypeVar("Item")

stderr = Console(stderr=True)


class RateColumn(ProgressColumn):
    """Items per second, named by the task's ``unit`` field."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f} {task.fields.get('unit', 'items')}/s")


def progress_bar(*, shown: bool = True) -> Progress:
    """A progress bar for one or more tasks; add tasks with ``add_task(text, total=N, unit="images")``."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=stderr,
        speed_estimate_period=60,
        disable=not shown,
    )


def track(items: Iterable[Item], text: str, total: int | None = None, unit: str = "images") -> Iterator[Item]:
    """Yield ``items`` with a progress bar on standard error."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with progress_bar() as bar:
        task = bar.add_task(text, total=total, unit=unit)
        for item in items:
            yield item
            bar.advance(task)
