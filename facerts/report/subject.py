"""What a report is about: one or several folders with results, training logs or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from facerts.errors import DataError
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.measure import Evaluation
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import JSON_FILE, Arrays, load_result
from facerts.io.files import sha256_file
from facerts.io.json_file import parse_json
from facerts.io.redact import redacted_paths

LOG_FILE, RECIPE_FILE = "log.jsonl", "recipe.yaml"

# A line of a training log: "kind", "epoch", "name" of a benchmark, and numbers under names of the method's own.
LogLine = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """One folder, as the report calls it: ``result.json`` and ``arrays.npz``, and the lines of ``log.jsonl``, if any.

    ``recipe_sha256`` is that of the recipe beside the log; empty where there is none.
    """

    label: str
    result: Result | None
    arrays: Arrays
    log: list[LogLine]
    recipe_sha256: str = ""

    def sections(self) -> Iterator[tuple[str, str, Evaluation]]:
        """The kind, the name and the content of each evaluation; none where there is no result."""
        return iter(()) if self.result is None else self.result.each()

    def arrays_of(self, prefix: str) -> Arrays:
        """The arrays whose names begin so, by the rest of their names."""
        return {key.removeprefix(prefix): one for key, one in self.arrays.items() if key.startswith(prefix)}

    def series(self, kind: str, field: str, name: str | None = None) -> tuple[list[float], list[float]]:
        """Epochs and values of a logged field."""
        lines = [line for line in self.log if line["kind"] == kind and field in line]
        if name is not None:
            lines = [line for line in lines if line["name"] == name]
        return [line["epoch"] for line in lines], [line[field] for line in lines]

    def names(self, kind: str, field: str) -> list[Any]:
        """The benchmarks that a field was logged for; one None where it is not of a benchmark."""
        lines = [line for line in self.log if line["kind"] == kind and field in line]
        return list(dict.fromkeys(line.get("name") for line in lines))

    def with_log(self, log: list[LogLine]) -> Subject:
        """The same with another training log."""
        return replace(self, log=log)


def load_subjects(folders: Sequence[str | Path]) -> list[Subject]:
    """Read the folders."""
    read = [_load(Path(folder)) for folder in folders]
    names = Counter(subject.label for subject in read)
    # Two models of one name are distinguished by their folders.
    return [
        subject if names[subject.label] == 1 else replace(subject, label=place)
        for place, subject in zip(redacted_paths(folders), read, strict=True)
    ]


def subject_of(saved: SavedResult, label: str) -> Subject:
    """A result that is read already, with the training log of its folder if there is one."""
    path = saved.folder / LOG_FILE
    return Subject(label, saved.content, saved.arrays, read_log(path) if path.is_file() else [])


def _load(folder: Path) -> Subject:
    result, arrays = load_result(folder) if (folder / JSON_FILE).is_file() else (None, {})
    log = read_log(folder / LOG_FILE) if (folder / LOG_FILE).is_file() else []
    if result is None and not log:
        raise DataError(
            f"{folder}: neither {JSON_FILE} nor {LOG_FILE} here; `facerts evaluate … --out` writes the one, "
            "`facerts train` the other"
        )
    recipe = folder / RECIPE_FILE
    label = folder.name if result is None else result.model.name
    return Subject(label, result, arrays, log, sha256_file(recipe) if log and recipe.is_file() else "")


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
        if not isinstance(parsed, dict) or "kind" not in parsed:
            raise DataError(f"{path}, line {number}: not a line of a training log")
        lines.append(parsed)
    return lines
