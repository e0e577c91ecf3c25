"""RecordIO without MXNet: the format in which CASIA-WebFace, MS1M, Glint360K and DeepGlint are distributed.

A ``.rec`` file is a sequence of records. Each begins with a magic number and a word whose upper three bits are the
continuation flag and whose lower 29 bits are the length; the payload follows, padded to four bytes. Where the payload
itself contains the magic number at a multiple of four, the writer drops it and splits the record there (flags 1,
2 … 2, 3), so that a reader can resynchronize at the next record. The payload of an image is a header of 24 bytes (flag,
label, two numbers), followed by ``flag`` more float labels and the encoded image.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.file_reader import FileReader
from facerts.errors import DataError
from facerts.images import MAX_BYTES
from facerts.io.files import read_file, reading

MAGIC = 0xCED7230A
MAX_PART_BYTES = (1 << 29) - 1

_MAGIC_BYTES = struct.pack("<I", MAGIC)
_PREFIX = struct.Struct("<II")
_HEADER = struct.Struct("<IfQQ")
_COUNT = struct.Struct("<I")

WHOLE, FIRST, MIDDLE, LAST = range(4)


class RecordReader:
    """Random access to the records of a ``.rec`` file through its ``.idx`` file, by ascending keys.

    The index takes 24 bytes of memory per record.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        index = path.with_suffix(".idx")
        for needed in (path, index):
            if not needed.is_file():
                raise DataError(f"{needed}: no such file; a record set is a .rec and an .idx file")
        self._reader = FileReader(path)
        table = _read_index(index)
        table = table[np.argsort(table[:, 0], kind="stable")]
        self.keys: NDArray[np.int64] = np.ascontiguousarray(table[:, 0])
        self._offsets = np.ascontiguousarray(table[:, 1])
        beyond = np.flatnonzero((self._offsets < 0) | (self._offsets >= self._reader.size))
        if len(beyond):
            row = int(beyond[0])
            raise DataError(
                f"{index}: record {self.keys[row]} should begin at byte {self._offsets[row]}, but {path.name} "
                f"has {self._reader.size} bytes; it is truncated, or the index belongs to another file"
            )
        order = np.argsort(self._offsets, kind="stable")
        ends = np.append(self._offsets[order[1:]], self._reader.size)
        self._spans = np.empty_like(self._offsets)
        # Records that are not in the index may follow a record, so limit the span.
        self._spans[order] = np.minimum(ends - self._offsets[order], MAX_BYTES)
        self.read(int(order[-1]))

    def __len__(self) -> int:
        return len(self.keys)

    def read(self, row: int) -> bytes:
        """The payload of the record at a row of ``keys``."""
        offset = self._offsets.item(row)
        data = self._reader.read(offset, self._spans.item(row), "a record")
        magic, word = _PREFIX.unpack_from(data) if len(data) >= _PREFIX.size else (0, 0)
        # Without a flag the word is the length of a record in one part; with one it is far larger than the data.
        if magic == MAGIC and word <= len(data) - _PREFIX.size:
            return data[_PREFIX.size : _PREFIX.size + word]
        return decode_record(data, f"{self.path}: record {self.keys[row]} at byte {offset}")

    def read_start(self, row: int, size: int) -> bytes:
        """The first ``size`` bytes of a record's payload, or fewer if its first part is shorter."""
        offset = int(self._offsets[row])
        what = f"record {self.keys[row]}"
        data = self._reader.read(offset, min(int(self._spans[row]), _PREFIX.size + size), what)
        length = _part(data, 0, f"{self.path}: {what} at byte {offset}")[1]
        return data[_PREFIX.size : _PREFIX.size + length]


def decode_record(data: bytes, where: str) -> bytes:
    """The payload of the record at the beginning of ``data``, with its parts joined."""
    parts: list[bytes] = []
    position = 0
    while True:
        flag, length = _part(data, position, where)
        begin = position + _PREFIX.size
        if begin + length > len(data):
            raise DataError(
                f"{where}: needs {begin + length} bytes, but only {len(data)} are left; the file is truncated, "
                "copy it again"
            )
        parts.append(data[begin : begin + length])
        if flag != (WHOLE if len(parts) == 1 else LAST) and flag != (FIRST if len(parts) == 1 else MIDDLE):
            raise DataError(f"{where}: continuation flag {flag} in part {len(parts)}; the record is broken")
        if flag in (WHOLE, LAST):
            return _MAGIC_BYTES.join(parts)
        position = begin + length + _padding(length)


def encode_record(payload: bytes) -> bytes:
    """A record of a payload, with prefix, split and padded as the module describes."""
    parts, begin, position = [], 0, payload.find(_MAGIC_BYTES)
    while position >= 0:
        if position % 4 == 0:
            parts.append(payload[begin:position])
            begin = position + 4
            position = payload.find(_MAGIC_BYTES, begin)
        else:
            position = payload.find(_MAGIC_BYTES, position + 1)
    parts.append(payload[begin:])
    if max(map(len, parts)) > MAX_PART_BYTES:
        raise DataError(f"a record of {len(payload):,} bytes is too large for RecordIO")
    flags = [WHOLE] if len(parts) == 1 else [FIRST, *[MIDDLE] * (len(parts) - 2), LAST]
    return b"".join(
        _PREFIX.pack(MAGIC, flag << 29 | len(part)) + part + bytes(_padding(len(part)))
        for flag, part in zip(flags, parts, strict=True)
    )


def write_record(rec: IO[bytes], idx: IO[str], key: int, payload: bytes) -> None:
    """Append a record to open ``.rec`` and ``.idx`` files."""
    idx.write(f"{key}\t{rec.tell()}\n")
    rec.write(encode_record(payload))


def pack_labeled(labels: float | tuple[float, ...], key: int, image: bytes) -> bytes:
    """The payload of an image: one label in the header, or several after it, then the image."""
    if isinstance(labels, tuple):
        return _HEADER.pack(len(labels), 0.0, key, 0) + np.array(labels, dtype="<f4").tobytes() + image
    return _HEADER.pack(0, labels, key, 0) + image


def unpack_image(payload: bytes, where: Callable[[], str]) -> bytes:
    """The image in a payload; ``where`` names the record in an error, and is called only then as that takes time."""
    count = _label_count(payload, where)
    begin = _HEADER.size + 4 * count
    if begin > len(payload):
        raise DataError(f"{where()}: its header claims {count} labels, more than the record contains")
    return payload[begin:]


def unpack_labels(payload_start: bytes, where: Callable[[], str]) -> NDArray[np.float32]:
    """The first labels, at most two, from the first 32 bytes of a payload."""
    count = _label_count(payload_start, where)
    if count == 0:
        return np.array([_HEADER.unpack_from(payload_start)[1]], dtype=np.float32)
    available = min(count, (len(payload_start) - _HEADER.size) // 4, 2)
    if available == 0:
        raise DataError(f"{where()}: its header claims {count} labels, more than the record contains")
    return np.frombuffer(payload_start, "<f4", available, _HEADER.size).astype(np.float32)


def _label_count(payload: bytes, where: Callable[[], str]) -> int:
    """The number of labels after the header; 0 if the only label is in the header."""
    if len(payload) < _HEADER.size:
        raise DataError(f"{where()}: {len(payload)} bytes are too few for a header; not an image record")
    count: int = _COUNT.unpack_from(payload)[0]
    return count


LABELS_START = _HEADER.size + 8  # header and two labels


def _part(data: bytes, position: int, where: str) -> tuple[int, int]:
    """Continuation flag and length of the part at a position."""
    if position + _PREFIX.size > len(data):
        raise DataError(f"{where}: the record is incomplete; the file is truncated, copy it again")
    magic, word = _PREFIX.unpack_from(data, position)
    if magic != MAGIC:
        raise DataError(
            f"{where}: no record begins here (magic number {magic:#010x}); the index belongs to another file, "
            "or the file is broken"
        )
    return word >> 29, word & MAX_PART_BYTES


def _padding(length: int) -> int:
    return -length % 4


def _read_index(path: Path) -> NDArray[np.int64]:
    """``(R, 2)`` keys and offsets from lines of "KEY<tab>OFFSET"."""
    with reading(path):
        text = read_file(path).decode("ascii", "replace")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # depending on its version, NumPy warns or fails on invalid numbers
            numbers = np.fromstring(text, dtype=np.int64, sep=" ")
    except (ValueError, DeprecationWarning) as error:
        raise DataError(f"{path}: {_broken_line(text)}; an index must have a key and an offset on each line") from error
    if len(numbers) == 0:
        raise DataError(f"{path}: the index is empty")
    if len(numbers) % 2:
        raise DataError(f"{path}: {_broken_line(text)}; an index must have a key and an offset on each line")
    return numbers.reshape(-1, 2)


def _broken_line(text: str) -> str:
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split()
        if len(fields) != 2 or not all(field.isascii() and field.isdigit() for field in fields):
            return f"line {number} is {line[:60]!r}"
    return "the number of values is odd"
