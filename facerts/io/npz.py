"""Arrays from untrusted ``.npz`` files.

NumPy allocates the size that an array's header claims before it reads any data, and a few zipped bytes can expand a
thousandfold. This module checks the claimed sizes against each other and against the file's size before allocating, as
what is made of the arrays: numbers of eight bytes, and Python's strings.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.io.files import atomic_write, regular

# A file may unpack to MAX_BYTES plus MAX_RATIO times its own size. Results rarely compress to less than a tenth.
MAX_BYTES = 64 << 20
MAX_RATIO = 100
# The same of a file that is written without compression.
MAX_PLAIN_BYTES = 1 << 20
MAX_PLAIN_RATIO = 16
# Bytes of memory for each text besides its characters, and for each number at least.
TEXT_BYTES = 256
NUMBER_BYTES = 8
# Each array has objects of its own; results have a few hundred.
ARRAY_BYTES = 16384

_SUFFIX = ".npy"
_ALLOWED_KINDS = "biufUS"
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
_MAX_CODE_POINT = 0x10FFFF
# How the kinds of a type's numbers or texts are called in a file, whatever their size.
_KINDS = {np.str_: "U", np.int32: "iu", np.int64: "iu", np.float32: "f", np.float64: "f"}


# Of a file, by name, in their types; those without axes are Python's values.
Arrays = dict[str, Any]


class ArrayType(NamedTuple):
    """What an array of a file has to be.

    Attributes:
        dtype: what it is read as, if the file has text, integers or floats of any size.
        shape: the length of each axis, or a name for it: axes of one name have one length.
        low: the least number; None for that of ``dtype``.
        high: the greatest number, or the axis that has rows of these numbers; None for that of ``dtype``.
        nan: whether numbers may be unknown.
    """

    dtype: type[np.generic]
    shape: tuple[int | str, ...] = ()
    low: float | None = None
    high: float | str | None = None
    nan: bool = False


class ArrayFormat(NamedTuple):
    """A kind of file.

    Attributes:
        name: the text of its array ``format``, which tells it from others.
        what: the word for such a file in errors.
        writer: the command that writes one.
        remedy: what to do about a broken one.
        types: of the arrays, by name; the first array with an axis says how long it is.
        plain: whether its files are written without compression, so that a small one has little in it.
    """

    name: str
    what: str
    writer: str
    remedy: str
    types: Mapping[str, ArrayType]
    plain: bool = True

    @contextmanager
    def reading(self, path: Path) -> Iterator[Arrays]:
        """The arrays of a file, in their types; an ``Error`` of the body says what else is wrong with them."""
        arrays = read_npz(path, plain=self.plain, remedy=f"; {self.writer} writes a {self.what}")
        if str(arrays.get("format")) != self.name:
            raise DataError(f"{path}: not a {self.what} of format {self.name}; {self.writer} writes one")
        try:
            yield typed_arrays(arrays, self.types)
        except Error as error:
            raise DataError(f"{path}: a broken {self.what}: {error}; {self.remedy}") from error

    def write(self, path: Path, owner: object) -> None:
        """Write the attributes that are called as the arrays; the file appears only when it is complete."""
        arrays: Arrays = {name: np.asarray(getattr(owner, name), dtype=kind.dtype) for name, kind in self.types.items()}
        with atomic_write(path) as file:
            np.savez(file, format=np.array(self.name), **arrays)


def array_types(owner: type[Any]) -> dict[str, ArrayType]:
    """The types of the fields of a class that are annotated with one, by name."""
    hints = get_type_hints(owner, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if get_origin(hint) is Annotated}


def read_npz(path: str | Path, *, plain: bool = False, remedy: str = "") -> dict[str, NDArray[Any]]:
    """Read the arrays of a file, by name, without unpickling anything; for ``plain`` see ``ArrayFormat``."""
    path = Path(path)
    arrays: dict[str, NDArray[Any]] = {}
    what = ""
    try:
        with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
            limit, used = memory_limit(path, plain=plain), 0
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
        raise DataError(f"{path}: {what or 'the file'} cannot be read ({error.strerror or error})") from error
    except (ValueError, OverflowError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        if not what:
            raise DataError(f"{path}: not an .npz file, or a broken one ({error}){remedy}") from error
        raise DataError(
            f"{path}: {what} cannot be read ({error}); the file must contain only numbers and text, no Python objects"
        ) from error
    return arrays


def typed_arrays(arrays: Mapping[str, NDArray[Any]], types: Mapping[str, ArrayType]) -> Arrays:
    """The arrays of a file in the types that they have to be of, those without axes as Python's values."""
    lengths: dict[int | str, int] = {}
    typed: Arrays = {}
    for name, kind in types.items():
        if name not in arrays:
            raise Error(f"there is no array {name!r}")
        array = arrays[name]
        if array.dtype.kind not in _KINDS[kind.dtype] or array.ndim != len(kind.shape):
            raise Error(f"the array {name!r} is {array.ndim}-dimensional {array.dtype}")
        for axis, length in zip(kind.shape, array.shape, strict=True):
            lengths.setdefault(axis, length if isinstance(axis, str) else axis)
        if array.shape != (shape := tuple(lengths[axis] for axis in kind.shape)):
            raise Error(f"the array {name!r} has the shape {array.shape}, not {shape}")
        if array.size and kind.dtype is not np.str_:
            _check_numbers(name, array.ravel(), kind, lengths)
        typed[name] = array.astype(kind.dtype, copy=False) if kind.shape else array.item()
    return typed


def _check_numbers(name: str, numbers: NDArray[Any], kind: ArrayType, lengths: Mapping[int | str, int]) -> None:
    limits: Any = (np.iinfo if issubclass(kind.dtype, np.integer) else np.finfo)(kind.dtype)
    # Python's numbers, of which none is too large to be compared.
    low, high = np.asarray(limits.min).item(), np.asarray(limits.max).item()
    if kind.low is not None:
        low = kind.low
    if kind.high is not None:
        high = lengths[kind.high] - 1 if isinstance(kind.high, str) else kind.high
    if not kind.nan and np.isnan(numbers).any():
        raise Error(f"the array {name!r} has NaN, where a number is needed")
    for extreme in np.fmin.reduce(numbers).item(), np.fmax.reduce(numbers).item():
        if extreme < low or extreme > high:
            raise Error(f"the array {name!r} has {extreme:g}, and only {low:g} to {high:g} is possible")


def memory_limit(path: Path, *, plain: bool = False) -> int:
    """Bytes of memory that the arrays of a file may take."""
    if plain:
        return MAX_PLAIN_BYTES + MAX_PLAIN_RATIO * path.stat().st_size
    return MAX_BYTES + MAX_RATIO * path.stat().st_size


def _memory(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Bytes of memory that an array may take, by its header."""
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
    """The shape and type of an array."""
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
