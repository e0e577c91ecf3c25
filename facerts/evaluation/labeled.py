"""Result folders with labels, for comparisons and reports of several of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import Arrays, load_result
from facerts.io.console import printable
from facerts.io.redact import redacted_path


@dataclass(frozen=True)
class SavedResult:
    """The result folder of one model; ``labeled`` is whether its label was given, otherwise it is the model's name."""

    label: str
    folder: Path
    content: Result
    arrays: Arrays
    labeled: bool = True

    @property
    def place(self) -> str:
        """The folder as others may see it."""
        return redacted_path(self.folder)

    def array(self, key: str) -> NDArray[Any]:
        """An array by its whole key."""
        if key not in self.arrays:
            room = key.rpartition("/")[0]
            near = sorted(name for name in self.arrays if name.rpartition("/")[0] == room)
            raise DataError(
                f"{self.folder}: no array {key!r}, only {', '.join(near) or 'none of that kind'}; "
                "evaluate again, or ask for another score"
            )
        return self.arrays[key]


def split_label(text: str) -> tuple[str, str]:
    """Split ``LABEL=VALUE``; without a label it is empty. A label may itself contain "=", but no control characters."""
    label, _, value = ("", "", text) if Path(text).exists() else text.rpartition("=")
    return printable(label), value


def load_labeled(texts: Sequence[str | Path]) -> list[SavedResult]:
    """Read folders given as ``FOLDER`` or ``LABEL=FOLDER`` (a label may hold "=" itself)."""
    results = []
    for text in map(str, texts):
        label, path = split_label(text)
        content, arrays = load_result(path)
        results.append(SavedResult(label or content.model.name, Path(path), content, arrays, labeled=bool(label)))
    return results


def quality_of(saved: SavedResult, first: SavedResult, name: str, score: str) -> NDArray[Any]:
    """A result's quality of another result's images of a benchmark, ``(N,)``, by their names, in the other's order."""
    wanted, own = (one.array(f"verification/{name}/names").tolist() for one in (first, saved))
    for one, other, missing in (
        (saved, first, set(wanted) - set(own)),
        (first, saved, set(own) - set(wanted)),
    ):
        if missing:
            raise DataError(
                f"{one.folder}: {name} has no image {min(missing)!r}, which {other.folder} has; evaluate both on the "
                "same benchmark"
            )
    row = {key: number for number, key in enumerate(own)}
    return saved.array(f"verification/{name}/{score}")[[row[key] for key in wanted]]
