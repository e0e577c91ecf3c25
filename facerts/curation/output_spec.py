"""Data sets that commands write: the frame of such a command, and the formats; images are written unchanged."""

from __future__ import annotations

import io
import json
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.encoded_images import EncodedImage, count_identities, encoded_images, order_by_identity
from facerts.datasets.recordio import pack_labeled, write_record
from facerts.datasets.source import Source
from facerts.errors import Error
from facerts.images import CROP_SIZE
from facerts.io.files import atomic_write
from facerts.io.job import staged
from facerts.io.redact import redacted_command, redacted_path
from facerts.io.versions import installed_versions

RECORD_FILES = ("train.rec", "train.idx", "train.lst", "property")
SCHEMA = "facerts.data/3"
# What a command says of its work, as JSON has it.
Report = dict[str, Any]


@dataclass(frozen=True)
class OutputSpec:
    """The path and format of a new data set.

    Attributes:
        path: a folder that does not exist yet, or a ``.tar`` file.
        shards: number of tar shards in the folder; None for a record directory.
        dry_run: write only the report.
    """

    path: Path
    shards: int | None = None
    dry_run: bool = False

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
        """The file for the report, beside the data set."""
        name = self.path.stem if self.in_one_file else self.path.name
        return self.path.with_name(f"{name}.{'dry-run' if self.dry_run else 'report'}.json")

    def check(self, name: str, images: int, identities: int) -> None:
        """Refuse images that this format cannot hold, before they are read."""
        if not images:
            raise Error(f"{name}: no image is left to write; use --dry-run to write the report, which says why")
        if self.form == "record directory" and not identities:
            raise Error(
                f"{name}: a record directory needs identities, and this source has none; use a .tar file or --shards"
            )
        if self.shards is not None and self.shards > images:
            raise Error(f"{name}: {images} images cannot fill {self.shards} shards; use fewer shards")

    def write(self, path: Path, images: Iterator[EncodedImage], count: int, *, shuffled: bool) -> None:
        """Write the data set to a temporary path instead of ``self.path``."""
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


def write_records(folder: Path, images: Iterable[EncodedImage]) -> None:
    """Write a record directory in the usual training format: the images, then a record for each identity.

    Identities are numbered from 0 in order of appearance. The folder is created if missing; existing files are replaced
    when the new ones are complete.
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


def write_shuffled_records(folder: Path, images: Iterable[EncodedImage]) -> None:
    """Write a record directory with the images in any order.

    It has no header and no records of identities, because these hold ranges of images; each record has the identity of
    its image, numbered from 0 without gaps. Keys start at 0, by which readers recognize the format.
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
    return "".join("_" if letter in "\t\r\n" else letter for letter in name).encode("utf-8", "replace").decode()


def write_shard(path: Path, images: Iterable[EncodedImage]) -> None:
    """Write one tar file of ``IDENTITY/FILE`` members."""
    with atomic_write(path) as file:
        for image in images:
            member = tarfile.TarInfo(image.name)
            member.size = len(image.data)
            # The same bytes as from TarFile, which would keep a record of every member in memory.
            file.write(member.tobuf(tarfile.PAX_FORMAT))
            file.write(image.data)
            file.write(bytes(-len(image.data) % tarfile.BLOCKSIZE))
        file.write(bytes(2 * tarfile.BLOCKSIZE))
        file.write(bytes(-file.tell() % tarfile.RECORDSIZE))


class CurationJob:
    """A command at work; ``open_job`` opens one.

    Attributes:
        kept: ``(N,) bool``, False for images that are dropped.
        scratch: a folder for temporary files, on the disk of the data set.
    """

    def __init__(self, source: Source, temporary: Mapping[Path, Path], report: Report) -> None:
        self.source = source
        self.kept: NDArray[np.bool_] = np.ones(len(source), dtype=bool)
        self.report = report
        self.scratch = next(iter(temporary.values())).parent
        self._temporary = temporary
        self._dropped: list[Report] = []

    def drop(self, index: int, reason: str, **details: object) -> None:
        """Drop an image and list it with the reason, by which images are counted, and further entries.

        An image that is already dropped keeps its first reason.
        """
        if not self.kept[index]:
            return
        self.kept[index] = False
        location, identity = self.source.location(index), identity_of(self.source, index)
        self._dropped.append({"image": location, "identity": identity, "reason": reason, **details})

    def drop_unreadable(self, problems: Mapping[int, str]) -> None:
        """Drop the images that could not be read, by their problems."""
        for index, problem in sorted(problems.items()):
            self.drop(index, "cannot be read", error=problem)

    def write(
        self,
        output: OutputSpec,
        source: Source,
        kept: NDArray[np.bool_],
        order: NDArray[np.integer] | None = None,
    ) -> None:
        """Add a data set to the report, and write it unless this is a dry run.

        ``kept`` ``(N,)`` masks the images to write; ``order`` ``(N,)`` is that of all images, None for by identity.
        """
        count = int(kept.sum())
        identities = count_identities(source, kept)
        dry_run = self.report["dry_run"]
        if count or not dry_run:
            output.check(source.name, count, identities)
        self.report["written"].append(
            {"path": str(output.path), "form": output.form, "images": count, "identities": identities}
        )
        if not dry_run:
            shuffled = order is not None
            order = order_by_identity(source, kept) if order is None else order[kept[order]]
            images = encoded_images(source, order, f"writing {output.path.name}")
            output.write(self._temporary[output.path], images, count, shuffled=shuffled)

    def finish(self, report_file: Path) -> None:
        """Write the report."""
        reasons = Counter(row["reason"] for row in self._dropped)
        self.report["dropped"] = {
            "images": len(self._dropped),
            "identities": len(self.source.identities) - count_identities(self.source, self.kept),
            "by_reason": dict(reasons.most_common()),
            "list": self._dropped,
        }
        with atomic_write(self._temporary[report_file], "w") as file:
            json.dump(_shown(self.report), file, allow_nan=False, indent=1)


@contextmanager
def open_job(source: Source, outputs: Sequence[OutputSpec], settings: Mapping[str, Any]) -> Iterator[CurationJob]:
    """Open a job; its data sets and last its report appear when the block ends without an error.

    Args:
        outputs: the data sets; the first says where the report is, and whether this is a dry run.
    """
    start = time.monotonic()
    report_file, dry_run = outputs[0].report_file, outputs[0].dry_run
    report: Report = {
        "schema": SCHEMA,
        "command": redacted_command(),
        "versions": installed_versions(),
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "dry_run": dry_run,
        "settings": dict(settings),
        "in": {
            "name": source.name,
            "images": len(source),
            "identities": None if source.labels is None else len(source.identities),
        },
        "written": [],
        "dropped": {},
    }
    data_sets = [] if dry_run else [output.path for output in outputs]
    with staged([*data_sets, report_file]) as temporary:
        job = CurationJob(source, temporary, report)
        yield job
        report["report"] = str(report_file)
        report["seconds"] = round(time.monotonic() - start, 1)
        job.finish(report_file)


def _shown(report: Report) -> Report:
    """The report without absolute paths of its data sets, which are beside it."""
    return {
        **report,
        "written": [{**data_set, "path": redacted_path(data_set["path"])} for data_set in report["written"]],
        "report": redacted_path(report["report"]),
    }


def identity_of(source: Source, index: int) -> str | None:
    """The name of the identity of an image; None if unknown."""
    return None if source.labels is None else source.identities[source.labels[index]]
