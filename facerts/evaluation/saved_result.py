"""Folders with results, training logs or both, as reports and comparisons read them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.measure import Evaluation
from facerts.evaluation.result import ModelIdentity, Result
from facerts.evaluation.result_folder import JSON_FILE, Arrays, load_result
from facerts.io.console import printable
from facerts.io.files import sha256_file
from facerts.io.json_file import parse_json
from facerts.io.redact import redacted_path, redacted_paths

LOG_FILE, RECIPE_FILE = "log.jsonl", "recipe.yaml"


@dataclass(frozen=True)
class LogLine:
    """A line of a training log: the name of its benchmark if it has one, and numbers by the method's own names."""

    kind: str
    epoch: float
    name: str | None
    text: str
    numbers: dict[str, float]


@dataclass(frozen=True)
class SavedResult:
    """One folder: ``result.json`` and ``arrays.npz``, and the lines of ``log.jsonl``; reports need only one of these.

    Attributes:
        label: as tables call it; ``labeled`` is whether it was given, otherwise it is the model's or the folder's name.
        recipe_sha256: of the recipe beside the log; empty where there is none.
    """

    label: str
    folder: Path
    result: Result | None
    arrays: Arrays
    log: Sequence[LogLine] = ()
    recipe_sha256: str = ""
    labeled: bool = False

    @property
    def place(self) -> str:
        """The folder as others may see it."""
        return redacted_path(self.folder)

    @property
    def model(self) -> ModelIdentity:
        """What was evaluated, of a folder with a result."""
        assert self.result is not None
        return self.result.model

    def sections(self) -> Iterator[tuple[str, str, Evaluation]]:
        """The kind, the name and the content of each evaluation; none where there is no result."""
        return iter(()) if self.result is None else self.result.each()

    def of_kind(self, kind: str) -> dict[str, Evaluation]:
        """The sections of a kind, by benchmark or source."""
        return {} if self.result is None else self.result.of_kind(kind)

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

    def arrays_of(self, prefix: str) -> Arrays:
        """The arrays whose names begin so, by the rest of their names."""
        return {key.removeprefix(prefix): one for key, one in self.arrays.items() if key.startswith(prefix)}

    def series(self, kind: str, field: str, name: str | None = None) -> tuple[list[float], list[float]]:
        """Epochs and values of a logged field."""
        lines = [line for line in self.log if (line.kind, line.name) == (kind, name) and field in line.numbers]
        return [line.epoch for line in lines], [line.numbers[field] for line in lines]

    def names(self, kind: str, field: str) -> list[str | None]:
        """The benchmarks that a field was logged for; one None where it is not of a benchmark."""
        lines = [line for line in self.log if line.kind == kind and field in line.numbers]
        return list(dict.fromkeys(line.name for line in lines))


def split_label(text: str) -> tuple[str, str]:
    """Split ``LABEL=VALUE``; without a label it is empty. A label may itself contain "=", but no control characters."""
    label, _, value = ("", "", text) if Path(text).exists() else text.rpartition("=")
    return printable(label), value


def load_labeled(texts: Sequence[str | Path]) -> list[SavedResult]:
    """Read result folders given as ``FOLDER`` or ``LABEL=FOLDER`` (a label may hold "=" itself)."""
    each = [split_label(str(text)) for text in texts]
    return _told_apart([_saved(Path(path), load_result(path), label) for label, path in each])


def load_saved(folders: Sequence[str | Path]) -> list[SavedResult]:
    """Read folders with results, training logs or both."""
    return _told_apart(
        [
            _saved(folder, load_result(folder) if (folder / JSON_FILE).is_file() else (None, {}))
            for folder in map(Path, folders)
        ]
    )


def _saved(folder: Path, content: tuple[Result | None, Arrays], label: str = "") -> SavedResult:
    result, arrays = content
    log = read_log(folder) if (folder / LOG_FILE).is_file() else []
    if result is None and not log:
        raise DataError(
            f"{folder}: neither {JSON_FILE} nor {LOG_FILE} here; `facerts evaluate … --out` writes the one, "
            "`facerts train` the other"
        )
    recipe = folder / RECIPE_FILE
    recipe_sha256 = sha256_file(recipe) if log and recipe.is_file() else ""
    name = folder.name if result is None else result.model.name
    return SavedResult(label or name, folder, result, arrays, log, recipe_sha256, labeled=bool(label))


def _told_apart(results: Sequence[SavedResult]) -> list[SavedResult]:
    """The same, by their folders where the names of models are not enough."""
    times = Counter(one.label for one in results)
    places = redacted_paths([one.folder for one in results])
    return [
        one if one.labeled or times[one.label] == 1 else replace(one, label=place)
        for place, one in zip(places, results, strict=True)
    ]


def read_log(path: Path) -> list[LogLine]:
    """Lines of a training log, given as its file or its run."""
    path = path / LOG_FILE if path.is_dir() else path
    if not path.is_file():
        raise DataError(f"{path}: no such training log; `facerts train` writes {LOG_FILE} into its run")
    try:
        content = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    lines = []
    for number, line in enumerate(content.splitlines(), 1):
        parsed = parse_json(line, f"{path}, line {number}")
        numbers = {
            str(name): float(value)
            for name, value in (parsed.items() if isinstance(parsed, dict) else ())
            if isinstance(value, int | float) and abs(value) <= sys.float_info.max
        }
        if not isinstance(parsed, dict) or "kind" not in parsed or "epoch" not in numbers:
            raise DataError(f"{path}, line {number}: not a line of a training log")
        kind, name, text = (parsed.get(key) for key in ("kind", "name", "text"))
        lines.append(LogLine(str(kind), numbers["epoch"], name and str(name), str(text or ""), numbers))
    return lines
