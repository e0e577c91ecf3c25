"""The formats of a new data set: a record directory, one tar file, or tar shards; images are written unchanged."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from facerts.datasets.encoded_images import EncodedImage
from facerts.datasets.recordio import pack_labeled, write_record
from facerts.errors import Error
from facerts.images import CROP_SIZE
from facerts.io.files import atomic_write

RECORD_FILES = ("train.rec", "train.idx", "train.lst", "property")


@dataclass(frozen=True)
class OutputSpec:
    """The path and format of a new data set.

    Attributes:
        path: a folder that does not exist yet, or a ``.tar`` file.
        shards: number of tar shards in the folder; None for a record directory.
        dry_run: write only the report.
        report: the .json file for the report; None for a file beside the data set.
    """

    path: Path
    shards: int | None = None
    dry_run: bool = False
    report: Path | None = None

    def __post_init__(self) -> None:
        if self.in_one_file and self.shards not in (None, 1):
            raise Error(f"{self.path} is one tar file; for {self.shards} shards name a folder")

    @property
    def in_one_file(self) -> bool:
        """Whether it is a single tar file."""
        return self.path.suffix.lower() == ".tar"

    @property
    def form(self) -> str:
        """The format, in words."""
        if self.in_one_file:
            return "tar file"
        return "record directory" if self.shards is None else "tar shards"

    @property
    def report_file(self) -> Path:
        """The file for the report."""
        if self.report is None:
            name = self.path.stem if self.in_one_file else self.path.name
            return self.path.with_name(f"{name}.{'dry-run' if self.dry_run else 'report'}.json")
        if self.report.suffix.lower() != ".json":
            raise Error(f"{self.report}: a report is a .json file; choose a file with that suffix")
        return self.report

    def check(self, name: str, images: int, identities: int) -> None:
        """Refuse images that this format cannot hold, before they are read."""
        if not images:
            raise Error(
                f"{name}: no image is left to write; use --dry-run to write the report, which says why"
            )
        if self.form == "record directory" and not identities:
            raise Error(
                f"{name}: a record directory needs identities, and this source has none; use a .tar file or --shards"
            )
        if self.shards is not None and self.shards > images:
            raise Error(f"{name}: {images} images cannot fill {self.shards} shards; use fewer shards")

    def write(self, path: Path, images: Iterator[EncodedImage], count: int, *, shuffled: bool) -> None:
        """Write the data set.

        Args:
            path: the temporary path to write to instead of ``self.path``.
        """
        if self.in_one_file:
            write_shard(path, images)
        elif self.shards is not None:
            sizes = np.diff(np.linspace(0, count, self.shards + 1).astype(np.int64)).tolist()
            for number, size in enumerate(sizes):
                write_shard(path / shard_name(number), islice(images, size))
            # Exhausting the iterator completes its progress bar.
            next(images, None)
        elif shuffled:
            write_shuffled_records(path, images)
        else:
            write_records(path, images)


def shard_name(number: int) -> str:
    """The name of a tar shard."""
    return f"shard-{number:06d}.tar"


def write_records(folder: Path, images: Iterable[EncodedImage]) -> tuple[int, int]:
    """Write a record directory in the usual training format: the images, then a record for each identity.

    Identities are numbered from 0 in order of appearance.

    Args:
        folder: created if missing; existing files are replaced when the new ones are complete.

    Returns:
        The number of images and of identities.
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
    return key - 1, len(ranges)


def write_shuffled_records(folder: Path, images: Iterable[EncodedImage]) -> None:
    """Write a record directory with the images in any order.

    It has no header and no records of identities, because these hold ranges of images; each record has the identity
    of its image. Keys start at 0, by which readers recognize the format.

    Args:
        images: their identities are numbered from 0 without gaps.
    """
    identities = set[int]()
    with _record_files(folder) as (rec, idx, lst, prop):
        for key, image in enumerate(images):
            write_record(rec, idx, key, pack_labeled(float(image.identity), key, image.data))
            lst.write(f"{key}\t{image.identity}\t{_list_entry(image.name)}\n")
            identities.add(image.identity)
        prop.write(f"{len(identities)},{CROP_SIZE},{CROP_SIZE}\n")


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
