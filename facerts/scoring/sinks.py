"""Rows to a .csv, .jsonl or .parquet file, by suffix; the file appears only when it is complete."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from facerts.errors import Error, MissingExtraError
from facerts.io.files import atomic_write
from facerts.scoring.cells import to_cell
from facerts.scoring.row import COLUMNS, Row

Put = Callable[[Row], None]

# Rows per Parquet row group.
ROW_GROUP_SIZE = 10_000


@contextmanager
def open_sink(path: str | Path) -> Iterator[Put]:
    """A function that writes one row, valid until the ``with`` block ends.

    Raises:
        Error: the suffix is not .csv, .jsonl or .parquet, or the path is a folder.
        MissingExtraError: Parquet without pyarrow.
    """
    check_sink(path)
    path = Path(path)
    with SINKS[path.suffix](path) as put:
        yield put


def check_sink(path: str | Path) -> None:
    """Check before a long run that its rows can be written.

    Raises:
        Error, MissingExtraError: see ``open_sink``.
    """
    path = Path(path)
    if path.suffix not in SINKS:
        raise Error(
            f"{path}: rows are written as {', '.join(SINKS)}; choose a file with one of these suffixes"
        )
    if path.is_dir():
        raise Error(f"{path} is a folder; name a file to write")
    if path.suffix == ".parquet":
        _pyarrow()


@contextmanager
def _csv(path: Path) -> Iterator[Put]:
    with atomic_write(path, "w") as file:
        # Quoted text stays one cell, whatever it contains and whichever delimiter the reader expects.
        writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(COLUMNS)

        def put(row: Row) -> None:
            writer.writerow([_cell(value) for value in asdict(row).values()])

        yield put


@contextmanager
def _jsonl(path: Path) -> Iterator[Put]:
    with atomic_write(path, "w") as file:
        yield lambda row: _write_line(file, row)


def _write_line(file: IO[str], row: Row) -> None:
    file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")


@contextmanager
def _parquet(path: Path) -> Iterator[Put]:
    pyarrow = _pyarrow()
    numbers, text = pyarrow.list_(pyarrow.float64()), pyarrow.string()
    types = {
        "face": pyarrow.int32(),
        "box": numbers,
        "points": numbers,
        "det_score": pyarrow.float64(),
        "quality": pyarrow.float64(),
        "percentile": pyarrow.float64(),
        "uncertainty": pyarrow.float64(),
        "accepted": pyarrow.bool_(),
        "reasons": pyarrow.list_(text),
    }
    schema = pyarrow.schema([(name, types.get(name, text)) for name in COLUMNS])
    rows: list[dict[str, Any]] = []
    with atomic_write(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def put(row: Row) -> None:
            rows.append(asdict(row))
            if len(rows) >= ROW_GROUP_SIZE:
                flush()

        yield put
        flush()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'facerts[parquet]'") from error
    return pyarrow


def _cell(value: object) -> object:
    """Numbers separated by spaces, names by semicolons, booleans in lower case, text escaped, None as an empty cell."""
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, list):
        return " ".join(f"{number:g}" for number in value)
    if isinstance(value, tuple):
        return ";".join(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


SINKS: dict[str, Callable[[Path], Any]] = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}
