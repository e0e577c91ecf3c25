"""Checks of PyTorch files before PyTorch loads them.

Such a file is a zip archive with a pickle and the bytes of each storage, all with a CRC-32 that PyTorch does not check;
before PyTorch 1.6 it was a sequence of pickles followed by the bytes. PyTorch calls only what builds tensors, and
checks that their bytes are there. But a small pickle can crash its unpickler (nested keys), make it allocate gigabytes
(``bytearray``), or view one number as a tensor of any size.
"""

from __future__ import annotations

import math
import pickle
import struct
import zipfile
from pathlib import Path
from typing import IO, Any

from facerts.errors import ModelError
from facerts.io.files import regular
from facerts.io.pickles import Buildable, Names, load_plain

STORAGES = (
    *("Byte", "Char", "Bool", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double"),
    *("ComplexFloat", "ComplexDouble", "QInt8", "QUInt8", "QInt32", "Untyped"),
)
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
MAX_AXES, MAX_SIDE = 64, 1 << 62


def check_torch_file(path: Path) -> None:
    """Reject a file that is damaged, or contains more than names, numbers and tensors no larger than their data."""
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


class _Ordered(dict[Any, Any], Buildable):
    """Stands in for an ``OrderedDict``, which PyTorch pickles with further attributes."""

    def build(self, state: Any) -> None:
        if not isinstance(state, dict):
            raise pickle.UnpicklingError("a mapping with an invalid state")


def _no_data(*_: object) -> None:
    """Stands in for the type of a storage; pickles may name it but not call it."""
    raise pickle.UnpicklingError("creates a storage without data")


def _storage(persistent_id: Any) -> int:
    """The number of items of a storage that a pickle refers to."""
    if isinstance(persistent_id, tuple) and len(persistent_id) >= 5:
        tag, kind, key, _, items = persistent_id[:5]
        if tag == "storage" and kind is _no_data and isinstance(key, str) and _is_shape((items,)):
            return int(items)
    raise pickle.UnpicklingError("refers to something that is not a storage")


def _tensor(items: Any, offset: Any, shape: Any, strides: Any, *_: object) -> None:
    """Check that a tensor has no more items than its storage; nothing is built."""
    if not all(map(_is_shape, ((items, offset), shape, strides))):
        raise pickle.UnpicklingError("an invalid tensor")
    if (count := math.prod(shape)) > items:
        raise pickle.UnpicklingError(f"a tensor of {count:,} items exceeds its storage of {items:,} items")


def _is_shape(value: object) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MAX_AXES
        and all(isinstance(side, int) and 0 <= side <= MAX_SIDE for side in value)
    )


_NAMES: Names = {
    ("collections", "OrderedDict"): _Ordered,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor,
    ("torch._utils", "_rebuild_parameter"): lambda tensor, *_: tensor,
    ("torch", "Size"): lambda *sides: sides,
    ("torch.storage", "UntypedStorage"): _no_data,
    **{("torch", f"{kind}Storage"): _no_data for kind in STORAGES},
}


def _check_zip(file: IO[bytes]) -> None:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        size = file.seek(0, 2)
        if len({member.filename.lower() for member in members}) != len(members):
            raise ValueError("two members have the same name")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("a member is compressed, which PyTorch never does")
        if sum(member.file_size for member in members) > size:
            raise ValueError("members overlap")
        if broken := archive.testzip():
            raise ValueError(f"wrong checksum of {broken}")
        pickles = [member for member in members if member.filename.endswith("/data.pkl")]
        if len(pickles) != 1:
            raise ValueError(f"{len(pickles)} pickles instead of one")
        with archive.open(pickles[0]) as data:
            load_plain(data, pickles[0].file_size, _NAMES, _storage)


def _check_legacy(file: IO[bytes], size: int) -> None:
    items: dict[str, int] = {}

    def counted(persistent_id: Any) -> int:
        count = items[persistent_id[2]] = _storage(persistent_id)
        return count

    for number in range(5):
        # Magic number, version, information on the machine, the tensors, and the keys of the storages.
        value = load_plain(file, size - file.tell(), _NAMES, counted)
        if number == 0 and value != LEGACY_MAGIC:
            raise pickle.UnpicklingError("not a PyTorch file")
    # The bytes of each storage follow.
    if sum(items.values()) > size - file.tell():
        raise ValueError("the tensors claim more data than the file has")
