"""Integrity checks of PyTorch files before PyTorch loads them.

Such a file is a zip archive with a pickle and the bytes of each storage, all with a CRC-32 that PyTorch does not check.
Before PyTorch 1.6 it was a sequence of pickles followed by the bytes. The sizes that the pickle claims decide how much
memory PyTorch allocates.
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
from facerts.io.files import regular
from facerts.io.pickles import Buildable, Names, load_plain

# Bytes per item of a storage, by its type.
ITEM_BYTES = {
    **dict.fromkeys(("Byte", "Char", "Bool", "QInt8", "QUInt8", "Untyped"), 1),
    **dict.fromkeys(("Short", "Half", "BFloat16"), 2),
    **dict.fromkeys(("Int", "Float", "QInt32"), 4),
    **dict.fromkeys(("Long", "Double", "ComplexFloat"), 8),
    "ComplexDouble": 16,
}
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MAX_AXES, MAX_SIDE = 64, 1 << 62


def check_torch_file(path: Path) -> None:
    """Reject a file that is damaged, claims more data than it has, or contains more than names, numbers and tensors."""
    with open(path, "rb", opener=regular) as file:
        try:
            is_zip = file.read(4) == b"PK\x03\x04"
            file.seek(0)
            _check_zip(file) if is_zip else _check_legacy(file, path.stat().st_size)
        except pickle.UnpicklingError as error:
            raise ModelError(f"{path}: not a readable checkpoint ({error})") from error
        except (zipfile.BadZipFile, EOFError, ValueError, OverflowError, RuntimeError, struct.error) as error:
            raise ModelError(
                f"{path}: not a readable checkpoint: damaged ({error}); copy it again, or use an earlier one"
            ) from error


class _Storage:
    """Stands in for a storage, the bytes of one or more tensors."""

    def __init__(self, key: str, items: int, size: int) -> None:
        self.key, self.items, self.size = key, items, size


class _Ordered(dict[Any, Any], Buildable):
    """Stands in for an ``OrderedDict``, which PyTorch pickles with further attributes."""

    def build(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("a mapping with an invalid state")


class _StorageType:
    """Stands in for the type of a storage; pickles may name it but not call it."""

    def __init__(self, item_bytes: int) -> None:
        self.item_bytes = item_bytes

    def __call__(self, *_: object) -> None:
        raise pickle.UnpicklingError("creates a storage without data")


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: object) -> None:
    """Check that a tensor fits into its storage without overlapping itself; nothing is built."""
    if not (
        isinstance(storage, _Storage) and _is_shape((offset,)) and _is_shape(shape) and _is_shape(strides)
    ):
        raise pickle.UnpicklingError("an invalid tensor")
    if len(shape) != len(strides):
        raise pickle.UnpicklingError(f"a tensor with {len(shape)} axes and {len(strides)} strides")
    count = math.prod(shape)
    last = offset + sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
    if count and (last >= storage.items or count > storage.items):
        raise pickle.UnpicklingError(
            f"a tensor of {count:,} items exceeds its storage of {storage.items:,} items"
        )


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MAX_AXES
        and all(isinstance(side, int) and 0 <= side <= MAX_SIDE for side in value)
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
    ("torch.storage", "UntypedStorage"): _StorageType(1),
    **{("torch", f"{name}Storage"): _StorageType(size) for name, size in ITEM_BYTES.items()},
}


def _persistent_load(storages: dict[str, _Storage]) -> Callable[[Any], _Storage]:
    """A function that resolves the persistent id of a storage, and records the storage by its key."""

    def load(persistent_id: Any) -> _Storage:
        if not (isinstance(persistent_id, tuple) and len(persistent_id) >= 5):
            raise pickle.UnpicklingError("refers to something that is not a storage")
        tag, storage_type, key, _, items = persistent_id[:5]
        if (
            tag != "storage"
            or not isinstance(storage_type, _StorageType)
            or not isinstance(key, str)
            or not _is_shape((items,))
        ):
            raise pickle.UnpicklingError("refers to something that is not a storage")
        size = items * storage_type.item_bytes
        storage = storages.setdefault(key, _Storage(key, items, size))
        if storage.size != size:
            raise pickle.UnpicklingError(f"storage {key} has two different sizes")
        return storage

    return load


def _check_zip(file: IO[bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {member.filename: member for member in archive.infolist()}
        size = file.seek(0, 2)
        if len({name.lower() for name in members}) != len(archive.infolist()):
            raise ValueError("two members have the same name")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
            raise ValueError("a member is compressed, which PyTorch never does")
        if sum(member.file_size for member in members.values()) > size:
            raise ValueError("members overlap")
        if broken := archive.testzip():
            raise ValueError(f"wrong checksum of {broken}")
        pickles = [name for name in members if name.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"{len(pickles)} pickles instead of one")
        storages: dict[str, _Storage] = {}
        with archive.open(pickles[0]) as data:
            load_plain(data, members[pickles[0]].file_size, _NAMES, _persistent_load(storages))
        folder = pickles[0].removesuffix("data.pkl")
        for key, storage in storages.items():
            member = members.get(f"{folder}data/{key}")
            if member is None or member.file_size != storage.size:
                raise ValueError(f"storage {key} is missing or does not have its {storage.size:,} bytes")


def _check_legacy(file: IO[bytes], size: int) -> None:
    storages: dict[str, _Storage] = {}
    for number in range(5):
        # Magic number, version, information on the machine, the tensors, and the keys of the storages.
        value = load_plain(file, size - file.tell(), _NAMES, _persistent_load(storages))
        if number == 0 and value != LEGACY_MAGIC:
            raise pickle.UnpicklingError("not a PyTorch file")
    # The bytes of each storage follow, preceded by their number in 8 bytes.
    if sum(storage.size + 8 for storage in storages.values()) > size - file.tell():
        raise ValueError("the tensors claim more data than the file has")
