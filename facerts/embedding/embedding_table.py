"""Embeddings that were computed elsewhere: a file with a row for each image, in place of a model."""

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
from facerts.errors import DataError, importing
from facerts.io.files import sha256_file
from facerts.io.npz import NUMBER_BYTES, TEXT_BYTES, memory_limit, read_npz

Floats = NDArray[np.float32]
Columns = dict[str, NDArray[Any]]
# The components of a path.
Parts = tuple[str, ...]

# Plural in the files of `facerts embed` and results, singular as the name of a column.
NAMES = ("names", "paths", "name", "path")
EMBEDDINGS = ("embeddings", "embedding")
SCORES = ("quality", "uncertainty", "norm")
EXTRAS = ("det_score", "face_size")
VARIANCE = "variance"

# Smaller differences of a length from 1 are rounding errors, as in embeddings stored as float16.
UNIT_TOLERANCE = 1e-3


def name_parts(name: str) -> Parts:
    """The components of a path, with slashes or backslashes."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def rows_of_images(names: Sequence[Parts], keys: Sequence[str]) -> list[list[int]]:
    """The rows of each image: those named by its key, or else those whose names end with it.

    Endings are compared path component by path component: ``/data/lfw/Ann/Ann_0001.jpg`` is ``Ann/Ann_0001.jpg``. A row
    that ends with several keys belongs to the longest of them. Names are in components, see ``name_parts``.

    Examples:
        >>> rows_of_images([name_parts(name) for name in ("/lfw/Ann/1.jpg", "2.jpg")], ["2.jpg", "Ann/1.jpg", "3.jpg"])
        [[1], [0], []]
    """
    key_parts = [name_parts(key) for key in keys]
    named = defaultdict(list)
    for row, name in enumerate(names):
        named[name].append(row)
    ending = _rows_by_ending(names, key_parts)
    return [named.get(parts) or ending.get(parts, []) for parts in key_parts]


def _rows_by_ending(names: Sequence[Parts], keys: Sequence[Parts]) -> dict[Parts, list[int]]:
    wanted = set(keys)
    depths = sorted({len(key) for key in wanted}, reverse=True)
    rows = defaultdict(list)
    for row, name in enumerate(names):
        endings = (name[-depth:] for depth in depths if depth <= len(name))
        ending = next((ending for ending in endings if ending in wanted), None)
        if ending is not None:
            rows[ending].append(row)
    return rows


class EmbeddingTable:
    """Outputs by the names of their images; ``load_table`` reads a table from a file."""

    def __init__(self, path: Path, names: Sequence[str] | None, rows: FaceOutputs) -> None:
        self.name = path.stem
        self.method = "unknown"
        self.sha256 = sha256_file(path)
        self._path = path
        self._rows = rows
        self._names = None if names is None else [name_parts(name) for name in names]
        row_of: dict[Parts, int] = {}
        for row, name in enumerate(self._names or ()):
            first = row_of.setdefault(name, row)
            if first != row:
                raise DataError(
                    f"{path}: rows {first} and {row} are both named {'/'.join(name)} (several faces in one photo?); "
                    "keep one row for each image"
                )

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> list[str]:
        """Names of the scores that are higher for better images and do not belong to the embedding, as norms do."""
        quality = [] if self._rows.quality is None else ["quality"]
        return [*quality, *(name for name, values in self._rows.extras.items() if values.ndim == 1)]

    def has_any(self, source: Source) -> bool:
        """Whether any of a source's images has a row; rows without names may be those of any source."""
        if self._names is None:
            return True
        keys = [source.key(index) for index in range(len(source))]
        return any(rows_of_images(self._names, keys))

    def outputs(self, source: Source) -> FaceOutputs:
        """The rows of a source's images, in the source's order.

        A row belongs to an image if its name is the image's key, or else ends with the key, path component by path
        component: ``/data/lfw/Ann/Ann_0001.jpg`` is ``Ann/Ann_0001.jpg``. Rows without names are taken in order, for
        sources whose images are named by number.
        """
        keys = [source.key(index) for index in range(len(source))]
        numbered = all(key.rsplit("/", 1)[-1].isdigit() for key in keys)
        if self._names is not None:
            rows = self._find(keys, self._names, source.name, numbered)
            return self._rows.take(np.array(rows, dtype=np.int64))
        if not numbered:
            raise DataError(
                f"{self._path}: its rows have no names, but the images of {source.name} are found by name; "
                f"add names such as {keys[0]}"
            )
        if len(self) != len(keys):
            raise DataError(
                f"{self._path}: {len(self)} rows without names cannot be the {len(keys)} images of {source.name}; "
                "write a row for each image in order, or add names"
            )
        return self._rows

    def _find(self, keys: Sequence[str], names: Sequence[Parts], source: str, numbered: bool) -> list[int]:
        rows: list[int] = []
        missing: list[str] = []
        for key, matches in zip(keys, rows_of_images(names, keys), strict=True):
            if len(matches) > 1:
                first, second = ("/".join(names[row]) for row in matches[:2])
                raise DataError(
                    f"{self._path}: rows {matches[0]} ({first}) and {matches[1]} ({second}) both end with {key}, "
                    f"an image of {source}; keep one of them"
                )
            rows += matches
            missing += [] if matches else [key]
        if missing:
            advice = "names must be the images' keys, or end with them"
            if numbered:
                advice = "names must be the images' keys; or leave names out and write the rows in order"
            raise DataError(
                f"{self._path}: {len(missing)} of {len(keys)} images of {source} have no row, "
                f"the first is {missing[0]}; {advice}"
            )
        return rows


def load_table(path: str | Path) -> EmbeddingTable:
    """Read a table of embeddings.

    An ``.npz`` file contains ``embeddings`` ``(N, d)`` and ``names`` or ``paths``, as `facerts embed` writes it; a
    ``.parquet`` file has a list column ``embedding`` and a column ``name`` or ``path``. Either may have ``quality``
    (higher is better), ``uncertainty``, ``norm``, ``det_score`` and ``face_size``, one number per row; a column of NaN
    alone is ignored. ``variance`` ``(N, d)``, a list column in Parquet, is the variance of the embeddings' entries.
    Other columns of floats become extras.

    Embeddings are normalized to unit length, and their variances divided by the squared length. If embeddings did not
    have unit length and there is no ``norm``, their length is the norm; if there is quality but no uncertainty,
    uncertainty is minus quality.

    Args:
        path: the .npz or .parquet file; nothing in it is unpickled.
    """
    path = Path(path)
    readers: dict[str, Callable[[Path], Columns]] = {".npz": _read_npz, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path}: a table of embeddings must be a {' or '.join(readers)} file")
    if not path.is_file():
        raise DataError(f"{path}: no such table of embeddings")
    content = _Content(path, readers[path.suffix.lower()](path))
    embedding, names = content.embedding, content.names
    length = _to_float32(np.sqrt(np.einsum("nd,nd->n", embedding, embedding, dtype=np.float64)))
    useless = np.flatnonzero((length == 0) | np.isinf(length))
    if len(useless):
        row = int(useless[0])
        raise DataError(
            f"{path}: the embedding of {content.row(row)} has length {length[row]:g} and so no direction; "
            "remove such rows or compute them again"
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
    """The columns of a file, validated as a table; ``embedding`` is ``(N, d)``, finite."""

    def __init__(self, path: Path, columns: Columns) -> None:
        self._path = path
        self._columns = columns
        key = next((key for key in EMBEDDINGS if key in columns), None)
        if key is None:
            raise DataError(
                f"{path}: it has neither {' nor '.join(EMBEDDINGS)}, only {', '.join(columns) or 'nothing'}"
            )
        self.embedding = self._numbers(key)
        if self.embedding.ndim != 2 or self.embedding.size == 0:
            raise DataError(f"{path}: {key} must be (N, d), a row for each image, not {self.embedding.shape}")
        self.names = self._read_names()
        self._check_finite(key, self.embedding)

    def row(self, row: int) -> str:
        """The name of a row for errors."""
        return f"row {row}" if self.names is None else f"row {row} ({self.names[row]})"

    def score(self, key: str) -> Floats | None:
        """A column of one number per row; None if there is none."""
        if key not in self._columns:
            return None
        values = self._numbers(key)
        self._check_shape(key)
        if np.isnan(values).all():
            return None
        self._check_finite(key, values)
        return values

    def variance(self) -> Floats | None:
        """Variances ``(N, d)`` of the embeddings' entries, as in the file; None if it has none."""
        if self._columns.get(VARIANCE, np.empty(0)).ndim < 2:
            return None  # one number per row is an extra like any other
        values, expected = self._numbers(VARIANCE), self.embedding.shape
        if values.shape != expected:
            raise DataError(
                f"{self._path}: {VARIANCE} must be {expected}, one per entry of the embeddings, not {values.shape}"
            )
        return values

    def extras(self) -> dict[str, Floats]:
        """Columns that are not part of ``FaceOutputs``; unknown ones are not validated."""
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
                raise DataError(f"{self._path}: {key} must be text, but that of row {row} is {name!r}")
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
                "remove such rows or compute them again"
            )


def _read_npz(path: Path) -> Columns:
    if not is_zipfile(path):
        raise DataError(f"{path}: not an .npz file, or truncated")
    return read_npz(path)


def _read_parquet(path: Path) -> Columns:
    """The columns of names, embeddings and floats; others are not read."""
    with importing("Parquet needs pyarrow", "use"):
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    try:
        columns = [
            field.name
            for field in pyarrow.parquet.read_schema(path)
            if field.name in (*NAMES, *EMBEDDINGS, *SCORES, *EXTRAS, VARIANCE) or pyarrow.types.is_floating(field.type)
        ]
        # Names that repeat are read once, and repeated when it is known how long they are.
        names = [name for name in NAMES if name in columns]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=names) as file:
            # PyArrow aborts at metadata that contradict each other, but not in a scan, which goes before.
            file.scan_contents(columns=columns)
            limit, memory = memory_limit(path), _parquet_memory(file, columns)
            if memory <= limit:
                table = file.read(columns=columns)
                memory += sum(_text_bytes(table[name]) for name in names)
        if memory > limit:
            raise DataError(f"{path}: it takes more memory than the {limit:,} bytes that a file of its size may")
        return {
            name: _from_arrow(path, name, column)
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    except (OSError, pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({error})") from error


def _parquet_memory(file: Any, columns: Sequence[str]) -> int:
    """Bytes of memory that columns may take, besides the characters of texts."""
    roots = [file.schema.column(number).path.split(".")[0] for number in range(len(file.schema))]
    memory = 0
    for group in range(file.metadata.num_row_groups):
        for number, name in enumerate(roots):
            if name in columns:
                chunk = file.metadata.row_group(group).column(number)
                each = TEXT_BYTES if name in NAMES else NUMBER_BYTES
                memory += chunk.total_uncompressed_size + chunk.num_values * each
    return memory


def _text_bytes(column: Any) -> int:
    """The number of characters, in bytes of UTF-8, of a column of texts; 0 for another."""
    from pyarrow import compute, types

    return sum(
        compute.sum(compute.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
        for chunk in column.chunks
        if types.is_dictionary(chunk.type)
    )


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
        raise DataError(f"{path}: {name} of row {odd[0]} is missing, or its length differs from that of row 0")
    values = np.asarray(compute.list_flatten(column).to_numpy())
    return values.reshape(len(sizes), int(sizes[0]) if len(sizes) else 0)


def _to_float32(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, which is refused later
        return values.astype(np.float32, copy=False)
