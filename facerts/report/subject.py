"""What a report is about: one or several folders with results, training logs or both."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from facerts.errors import DataError
from facerts.evaluation.measure import Evaluation
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import JSON_FILE, Arrays, load_result
from facerts.io.files import sha256_file
from facerts.io.json_file import parse_json
from facerts.io.redact import redacted_paths

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
        lines = [line for line in self.log if (line.kind, line.name) == (kind, name) and field in line.numbers]
        return [line.epoch for line in lines], [line.numbers[field] for line in lines]

    def names(self, kind: str, field: str) -> list[str | None]:
        """The benchmarks that a field was logged for; one None where it is not of a benchmark."""
        lines = [line for line in self.log if line.kind == kind and field in line.numbers]
        return list(dict.fromkeys(line.name for line in lines))


# Every method's label and runs.
LabeledRuns = Sequence[tuple[str, Sequence[Subject]]]


def load_subjects(folders: Sequence[str | Path]) -> list[Subject]:
    """Read the folders."""
    read = [_load(Path(folder)) for folder in folders]
    names = Counter(subject.label for subject in read)
    # Two models of one name are distinguished by their folders.
    return [
        subject if names[subject.label] == 1 else replace(subject, label=place)
        for place, subject in zip(redacted_paths(folders), read, strict=True)
    ]


def subject_of(folder: Path, label: str, result: Result | None, arrays: Arrays) -> Subject:
    """A result that is read already, with the training log and the recipe of its folder if there are any."""
    log = read_log(folder / LOG_FILE) if (folder / LOG_FILE).is_file() else []
    recipe = folder / RECIPE_FILE
    return Subject(label, result, arrays, log, sha256_file(recipe) if log and recipe.is_file() else "")


def _load(folder: Path) -> Subject:
    result, arrays = load_result(folder) if (folder / JSON_FILE).is_file() else (None, {})
    subject = subject_of(folder, folder.name if result is None else result.model.name, result, arrays)
    if result is None and not subject.log:
        raise DataError(
            f"{folder}: neither {JSON_FILE} nor {LOG_FILE} here; `facerts evaluate … --out` writes the one, "
            "`facerts train` the other"
        )
    return subject


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
