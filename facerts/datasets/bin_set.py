"""``.bin`` verification sets: a pickle of (encoded images, issame), read as untrusted data, and written.

lfw.bin, cfp_fp.bin, agedb_30.bin and others are distributed in this format: pair i is images 2i and 2i + 1. Loading a
pickle can run arbitrary code, and one that tampers with NumPy's own types can corrupt memory, so no NumPy objects are
built while unpickling: stand-ins record a known type code and bytes, which are converted to arrays afterwards.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.errors import DataError
from facerts.io.files import atomic_write, reading, regular
from facerts.io.pickles import Buildable, Names, load_plain

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_BUILTINS = ("builtins", "__builtin__")

# Booleans, and numbers of one to eight bytes.
_CODES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_ORDERS = frozenset("|=<>")
_MAX_AXES, _MAX_SIDE = 32, 1 << 62


class _Type(Buildable):
    """Stand-in for a ``numpy.dtype`` of numbers."""

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        text = _text(code)
        if text not in _CODES:
            raise pickle.UnpicklingError("an array does not contain numbers")
        self._code, self._order = text, "="

    def build(self, state: Any) -> None:
        # Version, byte order, and fields that only structured types use.
        if not (isinstance(state, tuple) and len(state) == 8 and state[2:5] == (None, None, None)):
            raise pickle.UnpicklingError("it turns a numeric type into another type")
        order = _text(state[1])
        if order not in _ORDERS or state[5:] != (-1, -1, 0):
            raise pickle.UnpicklingError("it turns a numeric type into another type")
        self._order = order

    @property
    def is_bytes(self) -> bool:
        return self._code == "u1"

    @property
    def size(self) -> int:
        return int(self._code[1:])

    def numbers(self, content: bytes) -> NDArray[Any]:
        # NumPy stores booleans as bytes, which in an untrusted file need not be 0 or 1.
        code = self._code.replace("b", "u")
        return np.frombuffer(content, np.dtype(f"{self._order}{code}"))


class _Array(Buildable):
    """Stand-in for a ``numpy.ndarray`` of numbers; created empty, then filled."""

    def __init__(self) -> None:
        self._type, self._content = _Type("u1"), b""

    def build(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) == 5):
            raise pickle.UnpicklingError("an array has an invalid state")
        _, shape, kind, by_columns, content = state
        self.fill(content, kind, shape, "F" if by_columns else "C")

    def fill(self, content: Any, kind: Any, shape: Any, order: Any) -> None:
        if not (isinstance(content, bytes) and isinstance(kind, _Type) and _is_shape(shape)):
            raise pickle.UnpicklingError("an array does not contain numbers")
        if len(shape) > 1 and _text(order) != "C":
            raise pickle.UnpicklingError("an array is in column-major order")
        if math.prod(shape) * kind.size != len(content):
            raise pickle.UnpicklingError(f"an array has {len(content):,} bytes, which does not match its shape")
        self._type, self._content = kind, content

    def bytes(self) -> bytes | None:
        """The content if this is an array of bytes; otherwise None."""
        return self._content if self._type.is_bytes else None

    def numbers(self) -> NDArray[Any]:
        return self._type.numbers(self._content)


def _ndarray(*_: object) -> None:
    """Stand-in for ``numpy.ndarray`` itself, which a pickle names but must not call."""
    raise pickle.UnpicklingError("it creates an array without data")


def _reconstruct(kind: object, shape: object, code: object) -> _Array:
    """Create an empty array, whose content follows, as NumPy's pickles do."""
    if kind is not _ndarray or shape != (0,):
        raise pickle.UnpicklingError("it creates an array that is not empty before its content")
    return _Array()


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """Create an array from its bytes, as protocol 5 does."""
    array = _Array()
    array.fill(content, kind, shape, order)
    return array


def _scalar(kind: Any, content: Any) -> Any:
    """A NumPy scalar as a Python number."""
    if not (isinstance(kind, _Type) and isinstance(content, bytes) and len(content) == kind.size):
        raise pickle.UnpicklingError("a number does not have the size of its type")
    return kind.numbers(content).item()


def _latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """``_codecs.encode``, with which Python 3 writes bytes in protocol 2."""
    if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("it encodes something other than bytes")
    return text.encode("latin1")


def _bytes(*content: Any) -> bytes:
    """``bytes(...)`` of bytes or text; a number, which would allocate that many bytes, is refused."""
    if not content:
        return b""
    if isinstance(content[0], str):
        return _latin1(*content)
    if len(content) > 1 or not isinstance(content[0], bytes):
        raise pickle.UnpicklingError("it creates bytes from something other than bytes")
    return content[0]


_NAMES: Names = {
    ("_codecs", "encode"): _latin1,
    ("numpy", "dtype"): _Type,
    ("numpy", "ndarray"): _ndarray,
    **{(module, name): _bytes for module in _BUILTINS for name in ("bytes", "bytearray")},
    **{(module, "_reconstruct"): _reconstruct for module in _MULTIARRAY},
    **{(module, "scalar"): _scalar for module in _MULTIARRAY},
    **{(module, "_frombuffer"): _frombuffer for module in _NUMERIC},
}


class BinSet(Source):
    """The encoded 2P images of a .bin set, and which of its P pairs are genuine."""

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        self.labels, self.identities = None, ()
        try:
            with reading(path), open(path, "rb", opener=regular) as file:
                content = load_plain(file, path.stat().st_size, _NAMES)
        except pickle.UnpicklingError as error:
            raise DataError(f"{path}: not a readable .bin set: {error}") from error
        if not (isinstance(content, tuple | list) and len(content) == 2):
            raise DataError(f"{path}: not a .bin set, which contains (images, issame)")
        images, same = content
        try:
            self._images = [_as_bytes(image) for image in _as_list(images)]
            self.same: NDArray[np.bool_] = _as_flags(same)
        except TypeError as error:
            raise DataError(f"{path}: not a .bin set, which contains encoded images and flags ({error})") from error
        if len(self._images) != 2 * len(self.same):
            raise DataError(f"{path}: {len(self._images)} images are not two for each of {len(self.same)} pairs")

    def __len__(self) -> int:
        return len(self._images)

    def key(self, index: int) -> str:
        return f"{index:06d}"

    def file_of(self, index: int) -> Path:
        return self._path

    def read(self, index: int) -> bytes:
        return self._images[index]


def write_bin(path: Path, images: Iterable[bytes], same: Sequence[bool]) -> None:
    """Write a .bin set of 2P encoded images, pair by pair, in the usual layout, atomically."""
    content = list(images)
    if len(content) != 2 * len(same):
        raise DataError(f"{path}: {len(content)} images are not two for each of {len(same)} pairs")
    with atomic_write(path) as file:
        pickle.dump((content, [bool(flag) for flag in same]), file, protocol=4)


def _as_list(values: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError("one of them is not a list")
    return values


def _as_bytes(image: object) -> bytes:
    content = image.bytes() if isinstance(image, _Array) else image
    if not isinstance(content, bytes):
        raise TypeError("an image is not bytes")
    return content


def _as_flags(same: object) -> NDArray[np.bool_]:
    if isinstance(same, _Array):
        return np.asarray(same.numbers() != 0, dtype=bool)
    flags = _as_list(same)
    if not all(isinstance(flag, int | float) for flag in flags):
        raise TypeError("a flag is neither a boolean nor a number")
    return np.array([bool(flag) for flag in flags], dtype=bool)


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= _MAX_AXES
        and all(isinstance(side, int) and 0 <= side <= _MAX_SIDE for side in value)
    )


def _text(value: object) -> str:
    """A value as text, which Python 2 wrote as bytes; an empty string for other types."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else ""
