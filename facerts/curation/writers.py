"""Pictures to record directories and tar shards, one after the other; their bytes stay as they are."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from facerts.datasets.read_ahead import EncodedImage
from facerts.datasets.recordio import pack_labeled, write_record
from facerts.images import CROP_SIZE
from facerts.io.files import atomic_write

RECORD_FILES = ("train.rec", "train.idx", "train.lst", "property")


def shard_name(number: int) -> str:
    """The name of a tar shard."""
    return f"shard-{number:06d}.tar"


class Written(NamedTuple):
    """How much was written."""

    images: int
    identities: int


def write_records(folder: Path, pictures: Iterable[EncodedImage]) -> Written:
    """Write a record directory as the field trains from: pictures, then a record for each identity.

    Identities are numbered from 0 in the order in which they come.

    Args:
        folder: made where it does not exist; files in it are replaced when the new ones are whole.
        pictures: those of an identity one after the other.
    """
    ranges: list[tuple[int, int]] = []
    key, last = 1, -1
    rec_file, idx_file, lst_file, property_file = (folder / name for name in RECORD_FILES)
    with (
        atomic_write(rec_file) as rec,
        atomic_write(idx_file, "w") as idx,
        atomic_write(lst_file, "w") as lst,
        atomic_write(property_file, "w") as prop,
    ):
        # The header's two numbers are known at the end; a placeholder of the same length holds its place.
        write_record(rec, idx, 0, pack_labeled((0.0, 0.0), 0, b""))
        for picture in pictures:
            if picture.identity != last:
                ranges.append((key, key))
                last = picture.identity
            write_record(rec, idx, key, pack_labeled(float(len(ranges) - 1), key, picture.data))
            lst.write(f"{key}\t{len(ranges) - 1}\t{_listed(picture.name)}\n")
            key += 1
            ranges[-1] = (ranges[-1][0], key)
        for label, (begin, end) in enumerate(ranges):
            write_record(rec, idx, key + label, pack_labeled((float(begin), float(end)), key + label, b""))
        rec.seek(0)
        write_record(rec, io.StringIO(), 0, pack_labeled((float(key), float(key + len(ranges))), 0, b""))
        prop.write(f"{len(ranges)},{CROP_SIZE},{CROP_SIZE}\n")
    return Written(key - 1, len(ranges))


def write_mixed_records(folder: Path, pictures: Iterable[EncodedImage]) -> Written:
    """Write a record directory whose pictures are in any order.

    It has no header and no records of identities, as these tell ranges of pictures; each picture's own record tells
    its identity. Keys begin at 0, which is how readers know such a set.

    Args:
        folder: as in ``write_records``.
        pictures: their identities are numbered from 0 without gaps.
    """
    rec_file, idx_file, lst_file, property_file = (folder / name for name in RECORD_FILES)
    key, identities = 0, set[int]()
    with (
        atomic_write(rec_file) as rec,
        atomic_write(idx_file, "w") as idx,
        atomic_write(lst_file, "w") as lst,
        atomic_write(property_file, "w") as prop,
    ):
        for key, picture in enumerate(pictures, 1):
            write_record(rec, idx, key - 1, pack_labeled(float(picture.identity), key - 1, picture.data))
            lst.write(f"{key - 1}\t{picture.identity}\t{_listed(picture.name)}\n")
            identities.add(picture.identity)
        prop.write(f"{len(identities)},{CROP_SIZE},{CROP_SIZE}\n")
    return Written(key, len(identities))


def _listed(name: str) -> str:
    """A name as a line of a list can hold it: file systems and tar files allow any bytes in theirs."""
    return (
        "".join("_" if letter in "\t\r\n" else letter for letter in name).encode("utf-8", "replace").decode()
    )


def write_shard(path: Path, pictures: Iterable[EncodedImage]) -> int:
    """Write one tar file of ``IDENTITY/FILE`` members; gives their number."""
    images = 0
    with atomic_write(path) as file:
        for picture in pictures:
            member = tarfile.TarInfo(picture.name)
            member.size = len(picture.data)
            # As TarFile writes it, which would keep every member that it wrote in memory.
            file.write(member.tobuf(tarfile.PAX_FORMAT))
            file.write(picture.data)
            file.write(bytes(-len(picture.data) % tarfile.BLOCKSIZE))
            images += 1
        file.write(bytes(2 * tarfile.BLOCKSIZE))
        file.write(bytes(-file.tell() % tarfile.RECORDSIZE))
    return images
