"""``.bin`` verification sets: a pickle of (encoded images, issame), read without trusting it, and written.

The field hands out lfw.bin, cfp_fp.bin, agedb_30.bin and others in this form: pair i is images 2i and 2i + 1.
A pickle can run any code while it loads, so the reader here knows lists, tuples, bytes, numbers and NumPy's
plain arrays, and refuses every other name.
"""

from __future__ import annotations

import codecs
import pickle
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from facerts.data.source import Source
from facerts.errors import DataError
from facerts.files import atomic_write

_MULTIARRAY = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMERIC = ("numpy.core.numeric", "numpy._core.numeric")


def _latin1(text: str, encoding: str = "latin1") -> bytes:
    """What ``_codecs.encode`` does for bytes written by Python 3 in protocol 2."""
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the encoding {encoding!r} has no place in a .bin set")
    return codecs.encode(text, encoding)


def _bytes(*content: Any) -> bytes:
    """``bytes`` of something that is there; a number would ask for so much memory."""
    if any(isinstance(part, int) for part in content):
        raise pickle.UnpicklingError("it asks for empty memory")
    return bytes(*content)


def _bytearray(*content: Any) -> bytearray:
    return bytearray(_latin1(*content) if content and isinstance(content[0], str) else _bytes(*content))


class _ArrayType:
    """Stands for ``numpy.ndarray``, which a pickle names but must not call."""


def _reconstruct(kind: object, shape: object, code: object) -> NDArray[Any]:
    """An empty array, as NumPy's pickles begin one; its content follows."""
    if kind is not _ArrayType or shape != (0,):
        raise pickle.UnpicklingError("it asks for an array that is not empty before it has content")
    return np.ndarray((0,), np.uint8)


def _frombuffer(content: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    """An array from its bytes, as protocol 5 has it."""
    return np.frombuffer(content, dtype=dtype).reshape(shape, order=order)


class _Restricted(pickle.Unpickler):
    """Builds plain values and NumPy arrays, and nothing else."""

    _ALLOWED: ClassVar[dict[tuple[str, str], Any]] = {
        ("_codecs", "encode"): _latin1,
        ("__builtin__", "bytes"): _bytes,
        ("builtins", "bytes"): _bytes,
        ("__builtin__", "bytearray"): _bytearray,
        ("builtins", "bytearray"): _bytearray,
        ("numpy", "dtype"): np.dtype,
        ("numpy", "ndarray"): _ArrayType,
        **{(module, "_reconstruct"): _reconstruct for module in _MULTIARRAY},
        **{(module, "_frombuffer"): _frombuffer for module in _NUMERIC},
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._ALLOWED:
            return self._ALLOWED[module, name]
        if module in _MULTIARRAY and name == "scalar":
            return import_module(_MULTIARRAY[hasattr(np, "_core")]).scalar
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which has no place in a .bin set")


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
            # Latin-1 turns the byte strings of Python 2's pickles into text of the same codes.
            with path.open("rb") as file:
                content = _Restricted(file, encoding="latin1").load()
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from error
        except Exception as error:  # a hostile or broken pickle can make the machine fail in any way
            raise DataError(f"{path}: not a readable .bin set: {error}") from error
        if not (isinstance(content, tuple | list) and len(content) == 2):
            raise DataError(f"{path}: not a .bin set, which holds (images, issame)")
        images, same = content
        try:
            self._images = [_as_bytes(image) for image in images]
            flags = [bool(flag) for flag in same]
        except (TypeError, ValueError, UnicodeEncodeError) as error:
            raise DataError(
                f"{path}: not a .bin set, which holds encoded images and flags ({error})"
            ) from error
        self.same: NDArray[np.bool_] = np.array(flags, dtype=bool)
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


def _as_bytes(image: object) -> bytes:
    if isinstance(image, np.ndarray) and image.dtype == np.uint8:
        return image.tobytes()
    if isinstance(image, str):
        return image.encode("latin1")
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    raise TypeError(f"an image is {type(image).__name__}, not bytes")
