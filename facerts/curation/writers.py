"""Write encoded images, unchanged, to record directories and tar shards."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from facerts.datasets.encoded_images import EncodedImage
from facerts.datasets.recordio import pack_labeled, write_record
from facerts.images import CROP_SIZE
from facerts.io.files import atomic_write

RECORD_FILES = ("train.rec", "train.idx", "train.lst", "property")


def shard_name(number: int) -> str:
    """The name of a tar shard."""
    return f"shard-{number:06d}.tar"


class Written(NamedTuple):
    """The number of images and identities written."""

    images: int
    identities: int


def write_records(folder: Path, images: Iterable[EncodedImage]) -> Written:
    """Write a record directory in the usual training format: the images, then a record for each identity.

    Identities are numbered from 0 in order of appearance.

    Args:
        folder: created if missing; existing files are replaced when the new ones are complete.
    """
    ranges: list[tuple[int, int]] = []
    key, last = 1, -1
    with _record_files(folder) as (rec, idx, lst, prop):
        # The two numbers of the header are known only at the end; this is a placeholder of the same length.
        write_record(rec, idx, 0, pack_labeled((0.0, 0.0), 0, b""))
        for image in images:
            if image.identity != last:
                ranges.append((key, key))
                last = image.identity
            write_record(rec, idx, key, pack_labeled(float(len(ranges) - 1), key, image.data))
            lst.write(f"{key}\t{len(ranges) - 1}\t{_list_entry(image.name)}\n")
            key += 1
            ranges[-1] = (ranges[-1][0], key)
        for label, (begin, end) in enumerate(ranges):
            write_record(rec, idx, key + label, pack_labeled((float(begin), float(end)), key + label, b""))
        rec.seek(0)
        write_record(rec, io.StringIO(), 0, pack_labeled((float(key), float(key + len(ranges))), 0, b""))
        prop.write(f"{len(ranges)},{CROP_SIZE},{CROP_SIZE}\n")
    return Written(key - 1, len(ranges))


def write_shuffled_records(folder: Path, images: Iterable[EncodedImage]) -> Written:
    """Write a record directory with the images in any order.

    It has no header and no records of identities, because these hold ranges of images; each record has the identity
    of its image. Keys start at 0, by which readers recognize the format.

    Args:
        images: their identities are numbered from 0 without gaps.
    """
    key, identities = 0, set[int]()
    with _record_files(folder) as (rec, idx, lst, prop):
        for key, image in enumerate(images, 1):
            write_record(rec, idx, key - 1, pack_labeled(float(image.identity), key - 1, image.data))
            lst.write(f"{key - 1}\t{image.identity}\t{_list_entry(image.name)}\n")
            identities.add(image.identity)
        prop.write(f"{len(identities)},{CROP_SIZE},{CROP_SIZE}\n")
    return Written(key, len(identities))


@contextmanager
def _record_files(folder: Path) -> Iterator[list[IO[Any]]]:
    """The files of ``RECORD_FILES``, open to write; they appear when the block ends without an error."""
    with ExitStack() as files:
        yield [
            files.enter_context(atomic_write(folder / name, "wb" if name.endswith(".rec") else "w"))
            for name in RECORD_FILES
        ]


def _list_entry(name: str) -> str:
    """A name without tabs, line breaks and invalid text, all of which file systems and tar files allow."""
    return (
        "".join("_" if letter in "\t\r\n" else letter for letter in name).encode("utf-8", "replace").decode()
    )


def write_shard(path: Path, images: Iterable[EncodedImage]) -> int:
    """Write one tar file of ``IDENTITY/FILE`` members; returns their number."""
    count = 0
    with atomic_write(path) as file:
        for image in images:
            member = tarfile.TarInfo(image.name)
            member.size = len(image.data)
            # The same bytes as from TarFile, which would keep a record of every member in memory.
            file.write(member.tobuf(tarfile.PAX_FORMAT))
            file.write(image.data)
            file.write(bytes(-len(image.data) % tarfile.BLOCKSIZE))
            count += 1
        file.write(bytes(2 * tarfile.BLOCKSIZE))
        file.write(bytes(-file.tell() % tarfile.RECORDSIZE))
    return count
