"""Arrays from untrusted ``.npz`` files.

NumPy allocates the size that an array's header claims before it reads any data, and a few zipped bytes can expand a
thousandfold. This module checks the claimed sizes against each other and against the file's size before allocating, as
what is made of the arrays: numbers of eight bytes, and Python's strings.
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
from facerts.io.files import regular

# A file may unpack to MAX_BYTES plus MAX_RATIO times its own size. Results rarely compress to less than a tenth.
MAX_BYTES = 64 << 20
MAX_RATIO = 100
# Bytes of memory for each text besides its characters, and for each number at least.
TEXT_BYTES = 256
NUMBER_BYTES = 8
# Each array has objects of its own; results have a few hundred.
ARRAY_BYTES = 16384

_SUFFIX = ".npy"
_ALLOWED_KINDS = "biufUS"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_MAX_CODE_POINT = 0x10FFFF


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read the arrays of a file, by name, without unpickling anything.

    Raises:
        DataError: the file cannot be read or is broken, contains anything other than numbers, booleans and text, or
            claims more data than it has.
    """
    path = Path(path)
    arrays: dict[str, NDArray[Any]] = {}
    what = "the file"
    try:
        with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
            limit, used = memory_limit(path), 0
            for member in archive.infolist():
                if member.filename.endswith(_SUFFIX):
                    name = member.filename.removesuffix(_SUFFIX)
                    what = f"array {name!r}"
                    used += _memory(archive, member)
                    if used > limit:
                        raise DataError(
                            f"{path}: {what} takes more memory than the {limit:,} bytes that a file of its size may"
                        )
                    arrays[name] = _read(archive, member)
    except OSError as error:
        raise DataError(f"{path}: {what} cannot be read ({error.strerror or error})") from error
    except (ValueError, OverflowError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path}: {what} cannot be read ({error}); the file must contain only numbers and text, no Python objects"
        ) from error
    return arrays


def memory_limit(path: Path) -> int:
    """Bytes of memory that the arrays of a file may take."""
    return MAX_BYTES + MAX_RATIO * path.stat().st_size


def _memory(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes of memory that an array may take, by its header.

    Raises:
        ValueError: the header is broken, or does not fit the size of the member.
    """
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("it uses a compression method that NumPy does not write")
    with archive.open(member) as file:
        shape, kind = _read_header(file, member.file_size)
    entries = math.prod(shape)
    each = kind.itemsize + TEXT_BYTES if kind.kind in "US" else max(kind.itemsize, NUMBER_BYTES)
    return ARRAY_BYTES + entries * each


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    if array.dtype.kind == "U" and array.size:
        codes = array.ravel(order="K").view(f"{array.dtype.byteorder}u4")
        if codes.max() > _MAX_CODE_POINT:
            raise ValueError("its text contains invalid Unicode characters")
    return array


def _read_header(file: IO[bytes], size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """The shape and type of an array.

    Raises:
        ValueError: the header is broken, or does not match the number of bytes.
    """
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"its header has the unsupported version {version}")
    try:
        shape, _, kind = _HEADERS[version](file)
    except Exception as error:  # NumPy evaluates it as a Python literal, which can fail in any way
        raise ValueError("its header is broken") from error
    if kind.kind not in _ALLOWED_KINDS or not kind.itemsize:
        raise ValueError(f"its type {kind} is not allowed")
    claimed, available = kind.itemsize * math.prod(shape), size - file.tell()
    # An axis of length 0 must not hide another one of absurd length.
    nonempty = kind.itemsize * math.prod(max(side, 1) for side in shape)
    if claimed != available or nonempty > max(available, MAX_BYTES):
        raise ValueError(f"its shape {shape} of {kind} does not match its {available:,} bytes")
    return shape, kind
