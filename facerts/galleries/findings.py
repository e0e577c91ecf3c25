"""What a check found, as rows of a report that people can edit before they remove anything."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO, Any, NamedTuple

from facerts.errors import DataError
from facerts.io.files import regular
from facerts.io.json_file import parse_json
from facerts.scoring.sinks import from_cell

# A report of this size has millions of rows.
MAX_BYTES = 1 << 30


class Reason(str, Enum):
    """What is wrong with an enrollment."""

    NOT_A_FACE = "no recognizable face"
    POOR = "poor image"
    ANOTHER_PERSON = "another person"
    SAME_PERSON = "same person under two names"
    SAME_IMAGE = "same image twice"


@dataclass(frozen=True)
class Finding:
    """A suspicious enrollment.

    Attributes:
        person: the person under whose name it is enrolled.
        path: the image; empty if the finding is about all of the person's images.
        false_alarms: estimated share of correct enrollments (for two names: of people) that look at least this
            suspicious, 0 to 1.
        own_cosine: cosine similarity to the template of the person's other images; None for an only image.
        other_person: the most similar other person, or the other name; None if there is nobody else.
        other_cosine: cosine similarity to that person's template; for the same image, to that image.
        other_path: the other image, if the same image is enrolled twice.
    """

    person: str
    path: str
    reason: Reason
    false_alarms: float
    own_cosine: float | None = None
    other_person: str | None = None
    other_cosine: float | None = None
    other_path: str | None = None
    quality: float | None = None
    percentile: float | None = None
    reasons: tuple[str, ...] = ()


class Listed(NamedTuple):
    """What a row of a report is about; the reason is empty if people made the report."""

    person: str
    path: str
    reason: str


def read_findings(path: Path) -> list[Listed]:
    """The people and images that a report of a check lists."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise DataError(
                f"{path}: larger than {MAX_BYTES:,} bytes; give a report of facerts gallery check"
            )
        with open(path, encoding="utf-8", newline="", opener=regular) as file:
            rows = _json_rows(file, path) if path.suffix == ".jsonl" else _csv_rows(file)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: not a table in UTF-8 ({error})") from error
    if not all(
        isinstance(row, dict) and isinstance(row.get("person"), str) and isinstance(row.get("path"), str)
        for row in rows
    ):
        raise DataError(
            f"{path}: not a report of facerts gallery check (.csv or .jsonl); it needs the columns person and path"
        )
    return [Listed(row["person"], row["path"], str(row.get("reason") or "")) for row in rows]


def _json_rows(file: IO[str], path: Path) -> list[Any]:
    return [parse_json(line, path) for line in file if line.strip()]


def _csv_rows(file: IO[str]) -> list[dict[str, str]]:
    rows = csv.reader(file)
    header = next(rows, [])
    columns = {name: header.index(name) for name in Listed._fields if name in header}
    return [
        {name: from_cell(row[column]) for name, column in columns.items() if column < len(row)}
        for row in rows
        if row
    ]
