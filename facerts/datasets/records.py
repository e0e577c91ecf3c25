"""A record directory as a source: ``train.rec``, ``train.idx``, ``property``, as face training sets are handed out.

Record 0 is an index header: its two labels are the key of the first identity record and the key after the last
one. Images have the keys from 1 up to there; each identity record's two labels are the first key of its images
and the key after the last. Sets without such a header are records of images throughout.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.file_reader import FileReader
from facerts.datasets.recordio import LABELS_START, RecordReader, image_bytes, unpack_labeled, unpack_labels
from facerts.datasets.source import Source
from facerts.errors import DataError

# float32 labels count exactly up to here; Glint360K has more images than that.
EXACT_IN_FLOAT32 = 1 << 24
LARGEST_LABEL = 1 << 62


class Records(Source):
    """The images of one record set.

    Args:
        path: the ``.rec`` file.

    Where a list file (``train.lst``: number, label and path on each line) lies beside it, keys and identities
    have the names in it; otherwise records are called by their numbers.

    Attributes:
        named: whether identities have names of their own.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.parent.name if path.stem == "train" else path.stem
        self._records = RecordReader(path)
        self._rows, labels = self._read_labels()
        if len(self._rows) == 0:
            raise DataError(f"{path}: there are no images in it")
        kept, numbered = np.unique(labels, return_inverse=True)
        self.labels = numbered.astype(np.int64)
        listing = path.with_suffix(".lst")
        self._list = _ListFile(listing, len(self._rows)) if listing.is_file() else None
        # Numbers mean nothing outside their set: joined with another, identity 7 must not become its 7.
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
        payload = self._records.read(row)
        picture = image_bytes(payload)
        return unpack_labeled(payload, self._where(row))[1] if picture is None else picture

    def _where(self, row: int) -> str:
        return f"{self._records.path}: record {self._records.keys[row]}"

    def _read_labels(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the images and their labels."""
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
                raise DataError(f"{self._where(row)}: an identity record with one label")
            begin, end = np.searchsorted(keys[1:first_identity], [int(bounds[0]), int(bounds[1])])
            labels[begin:end] = identity
        inexact = keys[rows] >= EXACT_IN_FLOAT32 - 1
        if (labels[~inexact] < 0).any() or not self._agrees(rows, labels):
            return rows, self._scan(rows)
        labels[inexact] = self._scan(rows[inexact])
        return rows, labels

    def _first_identity(self, said: int) -> int:
        """The row of the first identity record: where the header says, or near by where float32 rounded it."""
        keys = self._records.keys
        row = int(np.searchsorted(keys, said))
        if said < EXACT_IN_FLOAT32:
            return row
        row = min(row, len(keys) - 1)
        while row > 1 and self._is_identity(row - 1):
            row -= 1
        while row < len(keys) and not self._is_identity(row):
            row += 1
        return row

    def _is_identity(self, row: int) -> bool:
        return len(unpack_labeled(self._records.read(row), self._where(row))[1]) == 0

    def _agrees(self, rows: NDArray[np.int64], labels: NDArray[np.int64]) -> bool:
        """Whether images, a few throughout the file, carry the label that the identity records give them."""
        chosen = np.unique(np.linspace(0, len(rows) - 1, 64).astype(np.int64))
        return all(int(self._labels_of(int(rows[i]))[0]) == labels[i] for i in chosen if labels[i] >= 0)

    def _scan(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Labels from the images' own headers."""
        return np.array([int(self._labels_of(int(row))[0]) for row in rows], dtype=np.int64)

    def _labels_of(self, row: int) -> NDArray[np.float32]:
        labels = unpack_labels(self._records.read_start(row, LABELS_START), self._where(row))
        # Which none that is not a number is, either.
        if not (np.abs(labels) < LARGEST_LABEL).all():
            raise DataError(f"{self._where(row)}: the label is not a number that counts anything")
        return labels


class _ListFile:
    """The paths of a ``.lst`` file by position, without holding them in memory."""

    def __init__(self, path: Path, expected: int) -> None:
        self._reader = FileReader(path)
        ends = np.empty(0, dtype=np.int64)
        if self._reader.size:  # what is empty cannot be mapped
            ends = np.flatnonzero(np.memmap(path, dtype=np.uint8, mode="r") == ord("\n"))
        if len(ends) != expected:
            raise DataError(f"{path}: {len(ends)} lines for {expected} images; remove it, or write it anew")
        self._begins = np.concatenate([[0], ends[:-1] + 1])
        self._ends = ends

    def __getitem__(self, index: int) -> str:
        begin, end = int(self._begins[index]), int(self._ends[index])
        line = self._reader.read(begin, end - begin, f"line {index + 1}").decode("utf-8", "replace")
        return line.rsplit("\t", 1)[-1]


def open_records(path: Path) -> Records:
    """A record directory (``train.rec`` in it, or one other ``.rec`` file), or a ``.rec`` file.

    Raises:
        DataError: none or several record files, or broken ones.
    """
    if path.is_file():
        return Records(path)
    found = sorted(path.glob("*.rec"))
    train = path / "train.rec"
    if len(found) != 1 and train not in found:
        names = ", ".join(file.name for file in found)
        raise DataError(f"{path}: which of {names} is meant? Name one of them")
    return Records(train if train in found else found[0])
