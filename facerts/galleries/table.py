"""Rows of a search or a check as .csv or .json, by suffix."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from enum import Enum
from pathlib import Path
from typing import Any

from facerts.errors import Error
from facerts.io.files import atomic_write
from facerts.scoring.cells import to_cell

SUFFIXES = (".csv", ".json")


def check_table(path: Path) -> None:
    """Check before a long run that rows can be written.

    Raises:
        Error: the suffix is neither .csv nor .json.
    """
    if path.suffix not in SUFFIXES:
        raise Error(f"{path}: written as {' or '.join(SUFFIXES)}; choose a file with one of these suffixes")


def as_rows(entries: Sequence[Any]) -> list[dict[str, Any]]:
    """Dataclasses as JSON values, by column."""
    return [
        {name: value.value if isinstance(value, Enum) else value for name, value in asdict(entry).items()}
        for entry in entries
    ]


def write_table(path: Path, kind: type[Any], entries: Sequence[Any]) -> None:
    """Write dataclasses of one kind, one row each.

    Raises:
        Error: see ``check_table``.
        WriteError: the file cannot be written.
    """
    check_table(path)
    rows = as_rows(entries)
    with atomic_write(path, "w") as file:
        if path.suffix == ".json":
            json.dump(rows, file, ensure_ascii=False, indent=1)
            return
        writer = csv.DictWriter(
            file, [field.name for field in fields(kind)], lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC
        )
        writer.writeheader()
        writer.writerows([_cells(row) for row in rows])


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _cell(value) for name, value in row.items()}


def _cell(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return to_cell(
            ";".join(each if isinstance(each, str) else f"{each[0]} {each[1]:.4f}" for each in value)
        )
    return to_cell(value) if isinstance(value, str) else value
