"""Files of PyTorch's, held against themselves before PyTorch makes anything of them.

Such a file is a zip archive of a pickle and of the bytes of its tensors, each with a CRC-32 that PyTorch does not
look at; before version 1.6 it was a row of pickles with the bytes behind them. What the pickle says of its tensors
decides how much memory they take.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from facerts.errors import ModelError
from facerts.io.pickles import Buildable, Names, load_plain

# Items of a storage in bytes, by the kind of the storage.
ITEM = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Untyped"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MOST_AXES, LARGEST_SIDE = 64, 1 << 62


def check_torch_file(path: Path) -> None:
    """Refuse a file that is damaged, claims more than it has, or holds more than names, numbers and tensors.

    Raises:
        ModelError: it is such a file.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        try:
            zipped = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            _check_zip(file) if zipped else _check_legacy(file, path.stat().st_size)
        except pickle.UnpicklingError as error:
            raise ModelError(f"{path}: not a readable checkpoint ({error})") from error
        except (zipfile.BadZipFile, EOFError, ValueError, OverflowError, RuntimeError, struct.error) as error:
            raise ModelError(
                f"{path}: not a readable checkpoint, it is damaged ({error}); copy it again, or take an earlier one"
            ) from error


class _Storage:
    """Stands for the bytes of tensors.

    Attributes:
        key: it goes by.
        items: how many numbers.
        size: in bytes.
    """

    def __init__(self, key: str, items: int, size: int) -> None:
        self.key, self.items, self.size = key, items, size


class _Ordered(dict[Any, Any], Buildable):
    """Stands for an ``OrderedDict``, to which PyTorch gives further attributes."""

    def build(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("a mapping has a state of another form")


class _Kind:
    """Stands for a kind of storage, or a type of numbers; it is named and not called."""

    def __init__(self, item: int) -> None:
        self.item = item

    def __call__(self, *_: object) -> None:
        raise pickle.UnpicklingError("it makes tensors from nothing")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: object) -> None:
    """A tensor is looked at and forgotten: its numbers lie in its storage, each at a place of its own."""
    if not (
        isinstance(storage, _Storage) and _is_shape((offset,)) and _is_shape(shape) and _is_shape(strides)
    ):
        raise pickle.UnpicklingError("a tensor is of another form")
    if len(shape) != len(strides):
        raise pickle.UnpicklingError("a tensor has not as many strides as axes")
    count = math.prod(shape)
    last = offset + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
    if count and (last >= storage.items or count > storage.items):
        raise pickle.UnpicklingError(
            f"a tensor of {count:,} numbers claims more than the {storage.items:,} there are"
        )


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MOST_AXES
        and all(isinstance(side, int) and 0 <= side <= LARGEST_SIDE for side in value)
    )


def _parameter(tensor: object, *_: object) -> object:
    return tensor


def _size(*sides: object) -> tuple[object, ...]:
    return sides


_NAMES: Names = {
    ("collections", "OrderedDict"): _Ordered,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch", "Size"): _size,
    ("torch.storage", "UntypedStorage"): _Kind(1),
    **{("torch", f"{name}Storage"): _Kind(item) for name, item in ITEM.items()},
}


def _storages(found: dict[str, _Storage]) -> Callable[[Any], _Storage]:
    """What gives the storage that a pickle names, and notes it."""

    def fetch(said: Any) -> _Storage:
        if not (isinstance(said, tuple) and len(said) >= 5):
            raise pickle.UnpicklingError("it asks for something that is no storage")
        what, kind, key, _, items = said[:5]
        if (
            what != "storage"
            or not isinstance(kind, _Kind)
            or not isinstance(key, str)
            or not _is_shape((items,))
        ):
            raise pickle.UnpicklingError("it asks for something that is no storage")
        storage = found.setdefault(key, _Storage(key, items, items * kind.item))
        if storage.size != items * kind.item:
            raise pickle.UnpicklingError(f"storage {key} is said to have two sizes")
        return storage

    return fetch


def _check_zip(file: IO[bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        size = file.seek(0, 2)
        if len({name.lower() for name in members}) != len(archive.infolist()):
            raise ValueError("two members have one name")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise ValueError("a member is compressed, which PyTorch does not do")
        if sum(member.file_size for member in members.values()) > size:
            raise ValueError("its members overlap")
        if broken := archive.testzip():
            raise ValueError(f"the checksum of {broken} is another")
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError("there is no one pickle in it")
        found: dict[str, _Storage] = {}
        with archive.open(pickles[0]) as data:
            load_plain(data, members[pickles[0]].file_size, _NAMES, _storages(found))
        folder = pickles[0].removesuffix("data.pkl")
        for key, storage in found.items():
            here = members.get(f"{folder}data/{key}")
            if here is None or here.file_size != storage.size:
                raise ValueError(f"storage {key} is not there, or not of its {storage.size:,} bytes")


def _check_legacy(file: IO[bytes], size: int) -> None:
    found: dict[str, _Storage] = {}
    for number in range(5):
        # Magic number, version, the machine that wrote it, the tensors, and the keys of their storages.
        told = load_plain(file, size - file.tell(), _NAMES, _storages(found))
        if number == 0 and told != LEGACY_MAGIC:
            raise pickle.UnpicklingError("it is no file of PyTorch's")
    # Before the bytes of each storage stands their number.
    if sum(storage.size + 8 for storage in found.values()) > size - file.tell():
        raise ValueError("its tensors claim more than is there")
