"""Arrays from ``.npz`` files that anybody may have written.

An array's header says how large it is, and NumPy makes room for that before it reads; a few bytes of zip can be a
thousand times as many. Here both are held against each other and against the file's size before anything is made.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError

# What a file may hold unpacked, beside so many times its own size. Results are seldom packed to less than a tenth.
MOST_BYTES = 256 << 20
MOST_TIMES = 100

_SUFFIX = ".npy"
_PLAIN = "biufUS"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_LAST_CHARACTER = 0x10FFFF


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file by their names; nothing in it is unpickled.

    Raises:
        DataError: the file cannot be read or is broken, holds anything but numbers, flags and text, or claims more
            than it has.
    """
    path = Path(path)
    arrays: dict[str, NDArray[Any]] = {}
    what = "the file"
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            _check_size(path, members)
            for member in members:
                if member.filename.endswith(_SUFFIX):
                    name = member.filename.removesuffix(_SUFFIX)
                    what = f"array {name!r}"
                    arrays[name] = _read(archive, member)
    except OSError as error:
        raise DataError(f"{path}: {what} cannot be read ({error.strerror or error})") from error
    except (ValueError, OverflowError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: {what} cannot be read ({error}); such a file holds plain numbers and text, no Python objects"
        ) from error
    return arrays


def _check_size(path: Path, members: list[zipfile.ZipInfo]) -> None:
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise ValueError("it is packed in a way that NumPy does not pack")
    claimed, most = sum(member.file_size for member in members), MOST_BYTES + MOST_TIMES * path.stat().st_size
    if claimed > most:
        raise ValueError(f"it claims {claimed:,} bytes, and a file of its size has at most {most:,}")


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        _check_header(file, member.file_size)
    with archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.size:
        codes = array.ravel(order="K").view(f"{array.dtype.byteorder}u4")
        if codes.max() > _LAST_CHARACTER:
            raise ValueError("its text has characters that do not exist")
    return array


def _check_header(file: IO[bytes], size: int) -> None:
    """Refuse an array that is not as large as the bytes that are there for it."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"a header of version {version}")
    try:
        shape, _, kind = _HEADERS[version](file)
    except Exception as error:  # NumPy reads it as an expression of Python's, which can be broken in any way
        raise ValueError("its header is broken") from error
    if kind.kind not in _PLAIN or not kind.itemsize:
        raise ValueError(f"it is of {kind}")
    claimed, here = kind.itemsize * math.prod(shape), size - file.tell()
    # An axis of length 0 must not hide one without end.
    if claimed != here or kind.itemsize * math.prod(max(side, 1) for side in shape) > max(here, MOST_BYTES):
        raise ValueError(f"its shape {shape} of {kind} is not that of its {here:,} bytes")
