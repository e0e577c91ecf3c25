"""Rows to a .csv, .jsonl or .parquet file, by suffix, which appears only when it is complete; or to an open stream."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import IO, Any

from facerts.errors import Error, MissingExtraError
from facerts.io.files import atomic_write
from facerts.scoring.cells import to_cell
from facerts.scoring.row import Row

Put = Callable[[Any], None]

# Rows per Parquet row group.
ROW_GROUP_SIZE = 10_000


@contextmanager
def open_sink(path: str | Path, row_type: type[Any] = Row) -> Iterator[Put]:
    """A function that writes one row, valid until the ``with`` block ends.

    Args:
        path: the file; its suffix chooses the format.
        row_type: the type of all rows, a dataclass whose fields are the columns.

    Raises:
        Error: the suffix is not .csv, .jsonl or .parquet, or the path is a folder.
        MissingExtraError: Parquet without pyarrow.
    """
    check_sink(path)
    path = Path(path)
    with SINKS[path.suffix](path, row_type) as put:
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


def put_csv(file: IO[str], row_type: type[Any] = Row) -> Put:
    """A function that writes one row as CSV; the header is written now."""
    # Quoted text stays one cell, whatever it contains and whichever delimiter the reader expects.
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([field.name for field in fields(row_type)])

    def put(row: Any) -> None:
        writer.writerow([_cell(value) for value in asdict(row).values()])

    return put


def put_json_lines(file: IO[str]) -> Put:
    """A function that writes one row as a line of JSON."""

    def put(row: Any) -> None:
        file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")

    return put


@contextmanager
def _csv(path: Path, row_type: type[Any]) -> Iterator[Put]:
    with atomic_write(path, "w") as file:
        yield put_csv(file, row_type)


@contextmanager
def _jsonl(path: Path, row_type: type[Any]) -> Iterator[Put]:
    with atomic_write(path, "w") as file:
        yield put_json_lines(file)


@contextmanager
def _parquet(path: Path, row_type: type[Any]) -> Iterator[Put]:
    pyarrow = _pyarrow()
    types = {
        "int | None": pyarrow.int32(),
        "list[float] | None": pyarrow.list_(pyarrow.float64()),
        "float | None": pyarrow.float64(),
        "bool | None": pyarrow.bool_(),
        "tuple[str, ...]": pyarrow.list_(pyarrow.string()),
        "tuple[tuple[str, float], ...]": pyarrow.list_(
            pyarrow.struct({"name": pyarrow.string(), "value": pyarrow.float64()})
        ),
    }
    columns = [(field.name, types.get(str(field.type), pyarrow.string())) for field in fields(row_type)]
    schema = pyarrow.schema(columns)
    rows: list[dict[str, Any]] = []
    with atomic_write(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def put(row: Any) -> None:
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
    """Numbers separated by spaces, names by semicolons, booleans in lower case, text escaped, None as an empty cell.

    Names may have a number each.
    """
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, list):
        return " ".join(f"{number:g}" for number in value)
    if isinstance(value, tuple):
        return to_cell(
            ";".join(each if isinstance(each, str) else f"{each[0]} {each[1]:.4f}" for each in value)
        )
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


SINKS: dict[str, Callable[[Path, type[Any]], AbstractContextManager[Put]]] = {
    ".csv": _csv,
    ".jsonl": _jsonl,
    ".parquet": _parquet,
}
