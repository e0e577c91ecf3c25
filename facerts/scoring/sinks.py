"""Rows to .csv, .jsonl or .parquet files or an open stream, embeddings to .npz; a file appears when it is complete."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from facerts.errors import Error, importing
from facerts.io.files import atomic_write, check_writable
from facerts.io.json_file import json_text
from facerts.scoring.face import Face
from facerts.scoring.prepare import storable
from facerts.scoring.row import Row

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

Put = Callable[[Any], None]

# Rows per Parquet row group.
ROW_GROUP_SIZE = 10_000
# A cell that begins with one of these, some also in full width, is a formula to a spreadsheet, and a file name may; it
# gets a leading quote (OWASP, "CSV Injection").
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
QUOTE = "'"


@contextmanager
def open_sink(path: str | Path, row_type: type[Any] = Row) -> Iterator[Put]:
    """A function that writes one row, valid until the ``with`` block ends.

    Args:
        row_type: the type of all rows, a dataclass whose fields are the columns.
    """
    check_sink(path)
    with SINKS[Path(path).suffix](Path(path), row_type) as put:
        yield put


def check_sink(path: str | Path) -> None:
    """Check before a long run that its rows can be written, with the errors of ``open_sink``."""
    path = Path(path)
    if path.suffix not in SINKS:
        raise Error(f"{path}: rows are written as {', '.join(SINKS)}; choose one of these suffixes")
    check_writable(path)
    if path.suffix == ".parquet":
        _pyarrow()


def put_csv(file: SupportsWrite[str], row_type: type[Any] = Row) -> Put:
    """A function that writes one row as CSV; the header is written now."""
    # Quoted text stays one cell, whatever it contains and whichever delimiter the reader expects.
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([field.name for field in fields(row_type)])

    def put(row: Any) -> None:
        writer.writerow([_cell(value) for value in _values(row).values()])

    return put


def put_json_lines(file: SupportsWrite[str]) -> Put:
    """A function that writes one row as a line of JSON."""

    def put(row: Any) -> None:
        file.write(json_text(_values(row)) + "\n")

    return put


@contextmanager
def _text(path: Path, row_type: type[Any]) -> Iterator[Put]:
    with atomic_write(path, "w") as file:
        yield put_csv(file, row_type) if path.suffix == ".csv" else put_json_lines(file)


@contextmanager
def _parquet(path: Path, row_type: type[Any]) -> Iterator[Put]:
    pyarrow = _pyarrow()
    # Text is any other type: a decision or a reason.
    types = {
        "int": pyarrow.int32(),
        "float": pyarrow.float64(),
        "bool": pyarrow.bool_(),
        "list[float]": pyarrow.list_(pyarrow.float64()),
        "tuple[str, ...]": pyarrow.list_(pyarrow.string()),
        "tuple[tuple[str, float], ...]": pyarrow.list_(
            pyarrow.struct({"name": pyarrow.string(), "value": pyarrow.float64()})
        ),
    }
    schema = pyarrow.schema(
        (field.name, types.get(str(field.type).removesuffix(" | None"), pyarrow.string())) for field in fields(row_type)
    )
    rows: list[dict[str, object]] = []
    with atomic_write(path) as file, pyarrow.parquet.ParquetWriter(file, schema) as writer:

        def flush() -> None:
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))
            rows.clear()

        def put(row: Any) -> None:
            rows.append(_values(row))
            if len(rows) >= ROW_GROUP_SIZE:
                flush()

        yield put
        flush()


def _pyarrow() -> Any:
    with importing("Parquet needs pyarrow", "use"):
        import pyarrow
        import pyarrow.parquet
    return pyarrow


def _values(row: Any) -> dict[str, object]:
    """The fields of a row by name, with text that every format can store."""
    return {name: _storable(value) for name, value in vars(row).items()}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return storable(value)
    return tuple(map(_storable, value)) if isinstance(value, tuple) else value


def _cell(value: object) -> object:
    """Numbers separated by spaces, names by semicolons, booleans in lower case, text escaped, None as an empty cell.

    Names may have a number each.
    """
    if isinstance(value, str):
        return to_cell(value)
    if isinstance(value, list):
        return " ".join(f"{number:g}" for number in value)
    if isinstance(value, tuple):
        names = (each if isinstance(each, str) else f"{each[0]} {each[1]:.4f}" for each in value)
        return to_cell(";".join(names))
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def to_cell(text: str) -> str:
    """Text as a cell that is not a formula; ``from_cell`` reverses it."""
    return QUOTE + text if text.startswith((QUOTE, *FORMULA_PREFIXES)) else text


def from_cell(cell: str) -> str:
    """The text of a cell written by ``to_cell``."""
    return cell.removeprefix(QUOTE)


SINKS: dict[str, Callable[[Path, type[Any]], AbstractContextManager[Put]]] = {
    ".csv": _text,
    ".jsonl": _text,
    ".parquet": _parquet,
}


def check_embeddings_file(path: str | Path) -> None:
    """Check before a long run that its embeddings can be written."""
    if Path(path).suffix != ".npz":
        raise Error(f"{path}: embeddings are written as .npz; choose a file with that suffix")
    check_writable(path)


def write_embeddings(path: str | Path, scored: Sequence[Face]) -> None:
    """Write embeddings and scores as arrays.

    The arrays are ``paths``, ``faces``, ``embeddings (N, d) float32``, ``quality``, ``uncertainty`` and ``norm``, and
    ``failed_paths`` with ``errors`` for the images that could not be read. A quality that the model does not have is
    NaN. Where a detector found faces there are also ``det_score`` and ``face_size``, the pixels between the eyes; they
    are NaN for images that were aligned crops.
    """
    check_embeddings_file(path)
    faces = [entry for entry in scored if entry.vector is not None]
    failed = [entry.row for entry in scored if entry.row.error is not None]
    if not faces:
        cause = f" ({len(failed)} could not be read, the first: {failed[0].error})" if failed else ""
        raise Error(f"no face was found in any of the {len(scored)} images{cause}; nothing is written")
    arrays = {
        "paths": np.array([entry.row.path for entry in faces]),
        "faces": np.array([entry.row.face for entry in faces], dtype=np.int32),
        "embeddings": np.stack([entry.vector for entry in faces if entry.vector is not None]),
        "quality": _floats([entry.row.quality for entry in faces]),
        "uncertainty": _floats([entry.row.uncertainty for entry in faces]),
        "norm": _floats([entry.norm for entry in faces]),
        "failed_paths": np.array([row.path for row in failed], dtype=str),
        "errors": np.array([row.error for row in failed], dtype=str),
    }
    if any(entry.row.points is not None for entry in faces):
        arrays["det_score"] = _floats([entry.row.det_score for entry in faces])
        arrays["face_size"] = _floats([_eye_distance(entry.row.points) for entry in faces])
    with atomic_write(path) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def _eye_distance(points: Sequence[float] | None) -> float | None:
    return None if points is None else float(np.hypot(points[2] - points[0], points[3] - points[1]))


def _floats(values: Sequence[float | None]) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float32)
