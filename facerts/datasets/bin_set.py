"""``.bin`` verification sets: a pickle of (encoded images, issame), read without trusting it, and written.

The field hands out lfw.bin, cfp_fp.bin, agedb_30.bin and others in this form: pair i is images 2i and 2i + 1.
A pickle can run any code while it loads, and one that changes NumPy's own types can corrupt memory, so nothing of
NumPy's is built from one: stand-ins take fixed codes of numbers and are read as numbers afterwards.
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
from facerts.io.files import atomic_write
from facerts.io.pickles import Buildable, Names, load_plain

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")
_BUILTINS = ("builtins", "__builtin__")

# Flags, and numbers of one to eight bytes.
_CODES = frozenset({"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"})
_ORDERS = frozenset("|=<>")
_MOST_AXES, _LARGEST_SIDE = 32, 1 << 62


class _Type(Buildable):
    """Stands for a ``numpy.dtype`` of numbers."""

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        text = _text(code)
        if text not in _CODES:
            raise pickle.UnpicklingError("it has an array of something other than numbers")
        self._code, self._order = text, "="

    def build(self, state: Any) -> None:
        # Version, byte order, and what only arrays of records have.
        if not (isinstance(state, tuple) and len(state) == 8 and state[2:5] == (None, None, None)):
            raise pickle.UnpicklingError("it changes a type of numbers into another type")
        order = _text(state[1])
        if order not in _ORDERS or state[5:] != (-1, -1, 0):
            raise pickle.UnpicklingError("it changes a type of numbers into another type")
        self._order = order

    @property
    def is_bytes(self) -> bool:
        return self._code == "u1"

    @property
    def size(self) -> int:
        return int(self._code[1:])

    def numbers(self, content: bytes) -> NDArray[Any]:
        # As NumPy has them, flags are bytes; that they are 0 or 1 nobody has promised.
        code = self._code.replace("b", "u")
        return np.frombuffer(content, np.dtype(f"{self._order}{code}"))


class _Array(Buildable):
    """Stands for a ``numpy.ndarray`` of numbers, which begins empty and is then given its content."""

    def __init__(self) -> None:
        self._type, self._content = _Type("u1"), b""

    def build(self, state: Any) -> None:
        if not (isinstance(state, tuple) and len(state) == 5):
            raise pickle.UnpicklingError("an array has a state of another form")
        _, shape, kind, by_columns, content = state
        self.fill(content, kind, shape, "F" if by_columns else "C")

    def fill(self, content: Any, kind: Any, shape: Any, order: Any) -> None:
        if not (isinstance(content, bytes) and isinstance(kind, _Type) and _is_shape(shape)):
            raise pickle.UnpicklingError("an array is not of numbers")
        if len(shape) > 1 and _text(order) != "C":
            raise pickle.UnpicklingError("an array has its numbers column by column")
        if math.prod(shape) * kind.size != len(content):
            raise pickle.UnpicklingError(
                f"an array has {len(content):,} bytes, another number than its shape says"
            )
        self._type, self._content = kind, content

    def bytes(self) -> bytes | None:
        """Its content where it is one of bytes."""
        return self._content if self._type.is_bytes else None

    def numbers(self) -> NDArray[Any]:
        return self._type.numbers(self._content)


def _ndarray(*_: object) -> None:
    """Stands for ``numpy.ndarray`` itself, which a pickle names but must not call."""
    raise pickle.UnpicklingError("it makes an array from nothing")


def _reconstruct(kind: object, shape: object, code: object) -> _Array:
    """An empty array, as NumPy's pickles begin one; its content follows."""
    if kind is not _ndarray or shape != (0,):
        raise pickle.UnpicklingError("it asks for an array that is not empty before it has content")
    return _Array()


def _frombuffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """An array from its bytes, as protocol 5 has it."""
    array = _Array()
    array.fill(content, kind, shape, order)
    return array


def _scalar(kind: Any, content: Any) -> Any:
    """One number of NumPy's."""
    if not (isinstance(kind, _Type) and isinstance(content, bytes) and len(content) == kind.size):
        raise pickle.UnpicklingError("it has a number of another size than its type")
    return kind.numbers(content).item()


def _latin1(text: Any, encoding: Any = "latin1") -> bytes:
    """What ``_codecs.encode`` does for bytes written by Python 3 in protocol 2."""
    if not isinstance(text, str) or _text(encoding) not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError("it encodes something other than bytes")
    return text.encode("latin1")


def _bytes(*content: Any) -> bytes:
    """Bytes of what is there; a number would ask for so much memory."""
    if not content:
        return b""
    if isinstance(content[0], str):
        return _latin1(*content)
    if len(content) > 1 or not isinstance(content[0], bytes):
        raise pickle.UnpicklingError("it makes bytes from something other than bytes")
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
    """The images of a .bin set, encoded as they are in the file, and which pairs are genuine.

    Attributes:
        same: ``(P,) bool``; the source has 2P images.

    Raises:
        DataError: no .bin set, truncated, or a pickle that asks for more than data.
    """

    def __init__(self, path: Path) -> None:
        self.name = path.stem
        self._path = path
        self.labels, self.identities = None, ()
        try:
            with path.open("rb") as file:
                content = load_plain(file, path.stat().st_size, _NAMES)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        except pickle.UnpicklingError as error:
            raise DataError(f"{path}: not a readable .bin set: {error}") from error
        if not (isinstance(content, tuple | list) and len(content) == 2):
            raise DataError(f"{path}: not a .bin set, which holds (images, issame)")
        images, same = content
        try:
            self._images = [_as_bytes(image) for image in _listed(images)]
            self.same: NDArray[np.bool_] = _as_flags(same)
        except TypeError as error:
            raise DataError(
                f"{path}: not a .bin set, which holds encoded images and flags ({error})"
            ) from error
        if len(self._images) != 2 * len(self.same):
            raise DataError(f"{path}: {len(self._images)} images do not make {len(self.same)} pairs")

    def __len__(self) -> int:
        return len(self._images)

    def key(self, index: int) -> str:
        return f"{index:06d}"

    def file_of(self, index: int) -> Path:
        return self._path

    def read(self, index: int) -> bytes:
        return self._images[index]


def write_bin(path: Path, images: Iterable[bytes], same: Sequence[bool]) -> None:
    """Write a .bin set in the field's layout; it appears when it is whole.

    Args:
        path: of the file.
        images: 2P encoded images, pair by pair.
        same: P flags.

    Raises:
        DataError: the numbers do not fit.
    """
    content = list(images)
    if len(content) != 2 * len(same):
        raise DataError(f"{path}: {len(content)} images do not make {len(same)} pairs")
    with atomic_write(path) as file:
        pickle.dump((content, [bool(flag) for flag in same]), file, protocol=4)


def _listed(values: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError("there is no list of them")
    return values


def _as_bytes(image: object) -> bytes:
    content = image.bytes() if isinstance(image, _Array) else image
    if not isinstance(content, bytes):
        raise TypeError("an image is not bytes")
    return content


def _as_flags(same: object) -> NDArray[np.bool_]:
    if isinstance(same, _Array):
        return np.asarray(same.numbers() != 0, dtype=bool)
    flags = _listed(same)
    if not all(isinstance(flag, int | float) for flag in flags):
        raise TypeError("a flag is neither true, false nor a number")
    return np.array([bool(flag) for flag in flags], dtype=bool)


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= _MOST_AXES
        and all(isinstance(side, int) and 0 <= side <= _LARGEST_SIDE for side in value)
    )


def _text(value: object) -> str:
    """Text, which Python 2 has written as bytes; nothing where it is something else."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value if isinstance(value, str) else ""
