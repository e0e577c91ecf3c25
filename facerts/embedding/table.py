"""Embeddings that were computed elsewhere: a file with a row for each picture, in place of a model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError, MissingExtraError
from facerts.io.files import sha256_file
from facerts.io.npz import read_npz

Floats = NDArray[np.float32]
Columns = dict[str, NDArray[Any]]
Parts = tuple[str, ...]

# The plural is what `facerts embed` and results have, the singular what a column of a table is called.
NAMES = ("names", "paths", "name", "path")
EMBEDDINGS = ("embeddings", "embedding")
SCORES = ("quality", "uncertainty", "norm")
EXTRAS = ("det_score", "face_size")
VARIANCE = "variance"

# Lengths that differ from 1 by no more are rounding, as of embeddings kept in float16.
UNIT_TOLERANCE = 1e-3


class EmbeddingTable:
    """Rows of outputs by the names of their pictures; ``load_table`` reads one.

    Args:
        path: of the file.
        names: of the N rows; None where the table has none.
        rows: the N outputs.

    Attributes:
        name: the file's, without its ending.
        method: "unknown".
        sha256: of the file.

    Raises:
        DataError: two rows have the same name.
    """

    def __init__(self, path: Path, names: Sequence[str] | None, rows: FaceOutputs) -> None:
        self.name = path.stem
        self.method = "unknown"
        self.sha256 = sha256_file(path)
        self._path = path
        self._rows = rows
        self._names = None if names is None else [_parts(name) for name in names]
        self._row_of: dict[Parts, int] = {}
        for row, name in enumerate(self._names or ()):
            first = self._row_of.setdefault(name, row)
            if first != row:
                raise DataError(
                    f"{path}: rows {first} and {row} are both of {'/'.join(name)} (several faces in one photo?); "
                    "keep one row for each picture"
                )

    def __len__(self) -> int:
        return len(self._rows)

    def outputs(self, source: Source) -> FaceOutputs:
        """The rows of a source's pictures, in its order.

        A row is a picture's where its name is the picture's key, or else where it ends with the key, part by part:
        ``/data/lfw/Ann/Ann_0001.jpg`` is ``Ann/Ann_0001.jpg``. Rows without names are taken in order, for sources
        whose pictures have numbers for names.

        Args:
            source: the pictures, which are not read.

        Raises:
            DataError: a picture has no row or several, or rows without names cannot be told apart.
        """
        keys = [source.key(index) for index in range(len(source))]
        numbered = all(key.rsplit("/", 1)[-1].isdigit() for key in keys)
        if self._names is not None:
            rows = self._find(keys, self._names, source.name, numbered)
            return self._rows.take(np.array(rows, dtype=np.int64))
        if not numbered:
            raise DataError(
                f"{self._path}: its rows have no names, and the pictures of {source.name} go by theirs; "
                f"add names such as {keys[0]}"
            )
        if len(self) != len(keys):
            raise DataError(
                f"{self._path}: {len(self)} rows without names cannot be the {len(keys)} pictures of {source.name}; "
                "write a row for each picture in order, or add names"
            )
        return self._rows

    def _find(self, keys: Sequence[str], names: Sequence[Parts], source: str, numbered: bool) -> list[int]:
        """The row of each key."""
        wanted = [_parts(key) for key in keys]
        ending_with = _endings(names, wanted)
        rows: list[int] = []
        missing: list[str] = []
        for key, parts in zip(keys, wanted, strict=True):
            found = [self._row_of[parts]] if parts in self._row_of else ending_with.get(parts, [])
            if len(found) > 1:
                first, second = ("/".join(names[row]) for row in found[:2])
                raise DataError(
                    f"{self._path}: rows {found[0]} ({first}) and {found[1]} ({second}) both end with {key}, "
                    f"a picture of {source}; keep one of them"
                )
            rows += found
            missing += [] if found else [key]
        if missing:
            advice = "names must be the pictures' keys, or end with them"
            if numbered:
                advice = "names must be the pictures' keys; or leave names out and write the rows in order"
            raise DataError(
                f"{self._path}: {len(missing)} of {len(keys)} pictures of {source} have no row, "
                f"the first is {missing[0]}; {advice}"
            )
        return rows


def load_table(path: str | Path) -> EmbeddingTable:
    """Read a table of embeddings.

    A ``.npz`` file holds ``embeddings`` ``(N, d)`` and ``names`` or ``paths``, as `facerts embed` writes it; a
    ``.parquet`` file has a list column ``embedding`` and a column ``name`` or ``path``. Either may have
    ``quality`` (higher is better), ``uncertainty``, ``norm``, ``det_score`` and ``face_size``, one number a row;
    NaN throughout is as if it were not there. ``variance`` ``(N, d)``, a list column in Parquet, is that of the
    embedding's entries. Other columns of floats become extras.

    Embeddings are brought to unit length, and their variances with them, divided by the square of the length. Where
    embeddings did not have unit length and there is no ``norm``, their length is the norm; where there is quality and
    no uncertainty, uncertainty is minus quality.

    Args:
        path: the .npz or .parquet file; nothing in it is unpickled.

    Raises:
        DataError: no such file, not readable, of wrong shapes, or with a row that is no embedding.
        MissingExtraError: Parquet without pyarrow.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], Columns]] = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: a table of embeddings is a {' or '.join(readers)} file")
    if not path.is_file():
        raise DataError(f"{path}: no such table of embeddings")
    content = _Content(path, readers[path.suffix.lower()](path))
    embedding, names = content.embedding, content.names
    length = _to_float32(np.sqrt(np.einsum("nd,nd->n", embedding, embedding, dtype=np.float64)))
    useless = np.flatnonzero((length == 0) | np.isinf(length))
    if len(useless):
        row = int(useless[0])
        raise DataError(
            f"{path}: the embedding of {content.row(row)} has length {length[row]:g}, so it has no direction; "
            "leave such rows out or embed them anew"
        )
    quality, uncertainty, norm = (content.score(key) for key in SCORES)
    if norm is None and np.abs(length - 1).max() > UNIT_TOLERANCE:
        norm = length
    if uncertainty is None and quality is not None:
        uncertainty = -quality
    extras = content.extras()
    variance = content.variance()
    if variance is not None:
        extras[VARIANCE] = _to_float32(variance / np.square(length)[:, None])
    rows = FaceOutputs(embedding / length[:, None], norm, quality, uncertainty, extras)
    return EmbeddingTable(path, names, rows)


class _Content:
    """A file's columns, held against what a table is.

    Attributes:
        embedding: ``(N, d)``, finite.
        names: N, or None.

    Raises:
        DataError: no embeddings, of a wrong shape, or not finite; names that are no text.
    """

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._columns = columns
        key = next((key for key in EMBEDDINGS if key in columns), None)
        if key is None:
            raise DataError(
                f"{path}: neither {' nor '.join(EMBEDDINGS)} in it, only {', '.join(columns) or 'nothing'}"
            )
        self.embedding = self._numbers(key)
        if self.embedding.ndim != 2 or self.embedding.size == 0:
            raise DataError(
                f"{path}: {key} must be (N, d), a row for each picture, not {self.embedding.shape}"
            )
        self.names = self._read_names()
        self._check_finite(key, self.embedding)

    def row(self, row: int) -> str:
        """A row, for errors."""
        return f"row {row}" if self.names is None else f"row {row} ({self.names[row]})"

    def score(self, key: str) -> Floats | None:
        """A number for each row; None where there is none.

        Raises:
            DataError: of another shape, or missing for some rows alone.
        """
        if key not in self._columns:
            return None
        values = self._numbers(key)
        self._check_shape(key)
        if np.isnan(values).all():
            return None
        self._check_finite(key, values)
        return values

    def variance(self) -> Floats | None:
        """``(N, d)`` of the embeddings' entries, as the file has them; None where it has none.

        Raises:
            DataError: of another shape.
        """
        if self._columns.get(VARIANCE, np.empty(0)).ndim < 2:
            return None  # one number a row is an extra like any other
        values, wanted = self._numbers(VARIANCE), self.embedding.shape
        if values.shape != wanted:
            raise DataError(
                f"{self._path}: {VARIANCE} must be {wanted}, one for each entry of the embeddings, not {values.shape}"
            )
        return values

    def extras(self) -> dict[str, Floats]:
        """Numbers that are no part of ``FaceOutputs``; unknown ones as they are."""
        known = {key: self.score(key) for key in EXTRAS}
        unknown = {
            key: self._numbers(key)
            for key, values in self._columns.items()
            if key not in (*NAMES, *EMBEDDINGS, *SCORES, *EXTRAS)
            and values.dtype.kind == "f"
            and values.shape == (len(self.embedding),)
        }
        return unknown | {key: values for key, values in known.items() if values is not None}

    def _read_names(self) -> list[str] | None:
        key = next((key for key in NAMES if key in self._columns), None)
        if key is None:
            return None
        self._check_shape(key)
        names: list[str] = self._columns[key].tolist()
        for row, name in enumerate(names):
            if not isinstance(name, str):
                raise DataError(f"{self._path}: {key} must be text, and that of row {row} is {name!r}")
        return names

    def _numbers(self, key: str) -> Floats:
        values = self._columns[key]
        if values.dtype.kind not in "fiu":
            raise DataError(f"{self._path}: {key} must be numbers, not {values.dtype}")
        return _to_float32(values)

    def _check_shape(self, key: str) -> None:
        count, shape = len(self.embedding), self._columns[key].shape
        if shape != (count,):
            raise DataError(f"{self._path}: {key} must be ({count},), one for each embedding, not {shape}")

    def _check_finite(self, key: str, values: Floats) -> None:
        broken = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        if len(broken):
            raise DataError(
                f"{self._path}: {key} of {self.row(int(broken[0]))} is not a finite number; "
                "leave such rows out or embed them anew"
            )


def _read_npz(path: Path) -> Columns:
    if not is_zipfile(path):
        raise DataError(f"{path}: not an .npz file, or one that is cut short")
    return read_npz(path)


def _read_parquet(path: Path) -> Columns:
    """The columns of names, embeddings and numbers; others are not read."""
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("Parquet needs pyarrow: pip install 'facerts[parquet]'") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            wanted = [
                field.name
                for field in file.schema_arrow
                if field.name in (*NAMES, *EMBEDDINGS, *SCORES, *EXTRAS, VARIANCE)
                or pyarrow.types.is_floating(field.type)
            ]
            table = file.read(columns=wanted)
        return {
            name: _from_arrow(path, name, column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error


def _from_arrow(path: Path, name: str, column: Any) -> NDArray[Any]:
    from pyarrow import compute, types

    if name in NAMES:
        return np.array(column.to_pylist(), dtype=object)
    lists = any(kind(column.type) for kind in (types.is_list, types.is_large_list, types.is_fixed_size_list))
    if name not in EMBEDDINGS and not (lists and name == VARIANCE):
        return np.asarray(column.to_numpy())
    if not lists:
        raise DataError(f"{path}: {name} must be a list of numbers in each row, not {column.type}")
    sizes = compute.list_value_length(column).to_numpy()
    odd = np.flatnonzero(sizes != sizes[:1])  # a row without a list has size NaN
    if len(odd):
        raise DataError(f"{path}: {name} of row {odd[0]} is missing, or not as long as that of row 0")
    values = np.asarray(compute.list_flatten(column).to_numpy())
    return values.reshape(len(sizes), int(sizes[0]) if len(sizes) else 0)


def _to_float32(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # what float32 cannot hold is found as not finite
        return values.astype(np.float32, copy=False)


def _parts(name: str) -> Parts:
    """A path's parts, the same for Windows and others."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def _endings(names: Sequence[Parts], keys: Sequence[Parts]) -> dict[Parts, list[int]]:
    """Rows by the longest key that their names end with, so that no row is two pictures'."""
    wanted = set(keys)
    depths = sorted({len(key) for key in wanted}, reverse=True)
    rows = defaultdict(list)
    for row, name in enumerate(names):
        endings = (name[-depth:] for depth in depths if depth <= len(name))
        ending = next((ending for ending in endings if ending in wanted), None)
        if ending is not None:
            rows[ending].append(row)
    return rows
