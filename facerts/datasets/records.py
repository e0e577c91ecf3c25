"""Record directories (``train.rec``, ``train.idx``, ``property``), the usual distribution format of face training sets.

Record 0 is an index header: its two labels are the key of the first identity record and the key after the last one.
Images have the keys from 1 up to the first identity record. The two labels of an identity record are the first key of
its images and the key after the last. In sets without such a header every record is an image.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.file_reader import FileReader
from facerts.datasets.recordio import LABELS_START, RecordReader, unpack_image, unpack_labels
from facerts.datasets.source import Source
from facerts.errors import DataError

# float32 labels count exactly up to here; Glint360K has more images than that.
EXACT_IN_FLOAT32 = 1 << 24
MAX_LABEL = 1 << 62


class Records(Source):
    """The images of a record set.

    If a list file (``train.lst``: number, label and path on each line) lies beside it, keys and identities have the
    names in it; otherwise they are numbers.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.parent.name if path.stem == "train" else path.stem
        self._records = RecordReader(path)
        self._rows, labels = self._read_labels()
        if len(self._rows) == 0:
            raise DataError(f"{path}: no images in this record set")
        kept, numbered = np.unique(labels, return_inverse=True)
        self.labels = numbered.astype(np.int64)
        listing = path.with_suffix(".lst")
        self._list = _ListFile(listing, len(self._rows)) if listing.is_file() else None
        # Numbers are only meaningful within a set: when sets are joined, identity 7 of each must stay separate.
        self.identities = [f"{self.name}_{label:07d}" for label in kept]
        self.named = False
        if self._list is not None:
            first_of = np.unique(self.labels, return_index=True)[1]
            folders = [PurePosixPath(self._list[int(index)]).parent.name for index in first_of]
            if all(folders) and len(set(folders)) == len(folders):
                self.identities = folders
                self.named = True

    def __len__(self) -> int:
        return len(self._rows)

    def key(self, index: int) -> str:
        if self._list is not None:
            return self._list[range(len(self))[index]]
        return str(self._records.keys[self._rows[index]])

    def file_of(self, index: int) -> Path:
        return self._records.path

    def read(self, index: int) -> bytes:
        row = self._rows.item(index)
        return unpack_image(self._records.read(row), lambda: self._where(row))

    def _where(self, row: int) -> str:
        return f"{self._records.path}: record {self._records.keys[row]}"

    def _read_labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the images, and their labels."""
        keys = self._records.keys
        header = self._labels_of(0)
        if keys[0] != 0 or len(header) < 2:
            rows = np.arange(len(keys))
            return rows, self._scan(rows)
        first_identity = self._first_identity(int(header[0]))
        rows = np.arange(1, first_identity)
        if len(rows) == 0:
            return rows, rows
        labels = np.full(len(rows), -1, dtype=np.int64)
        identity_rows = range(first_identity, len(keys))
        for identity, row in enumerate(identity_rows):
            bounds = self._labels_of(row)
            if len(bounds) < 2:
                raise DataError(f"{self._where(row)}: an identity record with only one label")
            begin, end = np.searchsorted(keys[1:first_identity], [int(bounds[0]), int(bounds[1])])
            labels[begin:end] = identity
        inexact = keys[rows] >= EXACT_IN_FLOAT32 - 1
        if (labels[~inexact] < 0).any() or not self._agrees(rows, labels):
            return rows, self._scan(rows)
        labels[inexact] = self._scan(rows[inexact])
        return rows, labels

    def _first_identity(self, key: int) -> int:
        """The row of the first identity record, searched near the header's key if float32 may have rounded that."""
        keys = self._records.keys
        row = int(np.searchsorted(keys, key))
        if key < EXACT_IN_FLOAT32:
            return row
        row = min(row, len(keys) - 1)
        while row > 1 and self._is_identity(row - 1):
            row -= 1
        while row < len(keys) and not self._is_identity(row):
            row += 1
        return row

    def _is_identity(self, row: int) -> bool:
        return not unpack_image(self._records.read(row), lambda: self._where(row))

    def _agrees(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> bool:
        """Whether a sample of the images carries the labels that the identity records give them."""
        chosen = np.unique(np.linspace(0, len(rows) - 1, 64).astype(np.int64))
        return all(int(self._labels_of(int(rows[i]))[0]) == labels[i] for i in chosen if labels[i] >= 0)

    def _scan(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels from the headers of the images themselves."""
        return np.array([int(self._labels_of(int(row))[0]) for row in rows], dtype=np.int64)

    def _labels_of(self, row: int) -> NDArray[np.float32]:
        labels = unpack_labels(self._records.read_start(row, LABELS_START), lambda: self._where(row))
        # Also false for NaN.
        if not (np.abs(labels) < MAX_LABEL).all():
            raise DataError(f"{self._where(row)}: the label is not a valid number")
        return labels


class _ListFile:
    """The paths in a ``.lst`` file by line, read on demand to save memory."""

    def __init__(self, path: Path, expected: int) -> None:
        self._reader = FileReader(path)
        ends = np.empty(0, dtype=np.int64)
        if self._reader.size:  # an empty file cannot be mapped
            ends = np.flatnonzero(np.memmap(path, dtype=np.uint8, mode="r") == ord("\n"))
        if len(ends) != expected:
            raise DataError(f"{path}: {len(ends)} lines for {expected} images; remove the list or create it again")
        self._begins = np.concatenate([[0], ends[:-1] + 1])
        self._ends = ends

    def __getitem__(self, index: int) -> str:
        begin, end = int(self._begins[index]), int(self._ends[index])
        line = self._reader.read(begin, end - begin, f"line {index + 1}").decode("utf-8", "replace")
        return line.rsplit("\t", 1)[-1]


def open_records(path: Path) -> Records:
    """Open a record directory, with ``train.rec`` or a single other ``.rec`` file in it, or a ``.rec`` file."""
    if path.is_file():
        return Records(path)
    files = sorted(path.glob("*.rec"))
    train = path / "train.rec"
    if len(files) != 1 and train not in files:
        names = ", ".join(file.name for file in files)
        raise DataError(f"{path}: several record files ({names}); give one of them")
    return Records(train if train in files else files[0])
