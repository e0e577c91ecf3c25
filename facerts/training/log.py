"""The log of a run: one JSON object per line, and the same values for TensorBoard."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import TracebackType
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from facerts.io.files import atomic_write, writing

FILE = "log.jsonl"


class RunLog:
    """Appends to ``log.jsonl`` and to TensorBoard's event files in a run's folder.

    Args:
        folder: folder of the run.
        resumed_at: step that the run starts from; 0 starts a new log. Lines of later steps, which an interrupted run
            wrote after its last checkpoint, are removed so that no step is logged twice.

    Raises:
        WriteError: the log cannot be written.
    """

    def __init__(self, folder: Path, resumed_at: int) -> None:
        path = folder / FILE
        if path.exists():
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if resumed_at else []
            kept = [line for line in lines if _before(line, resumed_at)]
            with atomic_write(path, "w") as file:
                file.writelines(f"{line}\n" for line in kept)
        self._path = path
        with writing(path):
            self._file = path.open("a", encoding="utf-8")
        with writing(folder / "tensorboard"):
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=resumed_at)

    def write(self, kind: str, step: int, **fields: Any) -> None:
        """Log one line.

        Args:
            kind: kind of the line, "train", "validation" or "quality".
            step: training step.
            fields: values; those that are text group TensorBoard's curves.

        Raises:
            WriteError: the line cannot be written.
        """
        with writing(self._path):
            self._file.write(json.dumps({"kind": kind, "step": step, **fields}) + "\n")
            self._file.flush()
        group = "/".join([kind, *(value for value in fields.values() if isinstance(value, str))])
        for name, value in fields.items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                self._board.add_scalar(f"{group}/{name}", value, step)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._board.close()


def _before(line: str, step: int) -> bool:
    """Whether a line is complete and its step is at most ``step``."""
    try:
        logged = json.loads(line).get("step", math.inf)
    except (ValueError, RecursionError, AttributeError):  # a line that a killed run did not finish
        return False
    return isinstance(logged, int | float) and logged <= step
