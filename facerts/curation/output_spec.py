"""The forms of a new data set: a record directory, one tar file, or tar shards in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facerts.curation.writers import shard_name, write_mixed_records, write_records, write_shard
from facerts.datasets.read_ahead import EncodedImage, runs
from facerts.errors import Error


@dataclass(frozen=True)
class Target:
    """A data set that is to be.

    Attributes:
        path: a folder that does not exist yet, or a ``.tar`` file.
        shards: as many tar shards in the folder; None for a record directory.

    Raises:
        Error: several shards are asked for, and one file.
    """

    path: Path
    shards: int | None = None

    def __post_init__(self) -> None:
        if self.in_one_file and self.shards not in (None, 1):
            raise Error(f"{self.path} is one tar file; for {self.shards} shards name a folder")

    @property
    def in_one_file(self) -> bool:
        """Whether it is a single tar file."""
        return self.path.suffix.lower() == ".tar"

    @property
    def form(self) -> str:
        """What it is, in words."""
        if self.in_one_file:
            return "tar file"
        return "record directory" if self.shards is None else "tar shards"

    def check(self, name: str, images: int, identities: int) -> None:
        """Refuse what this form cannot hold, before any of it is read.

        Args:
            name: of the pictures' source, for the errors.
            images: how many there are.
            identities: how many there are; 0 where they are unknown.

        Raises:
            Error: there are no pictures, fewer than shards, or none with identities for a record directory.
        """
        if not images:
            raise Error(f"{name}: no picture is left to write; --dry-run writes the report, which says why")
        if self.form == "record directory" and not identities:
            raise Error(
                f"{name}: a record set needs identities, and this source has none; name a .tar file or ask for shards"
            )
        if self.shards is not None and self.shards > images:
            raise Error(f"{name}: {images} pictures cannot fill {self.shards} shards; ask for fewer")

    def write(self, place: Path, pictures: Iterator[EncodedImage], images: int, *, mixed: bool) -> None:
        """Write it.

        Args:
            place: the path to write to in place of ``path``.
            pictures: those of an identity one after the other, or mixed.
            images: how many come.
            mixed: they do so in any order.
        """
        if self.in_one_file:
            write_shard(place, pictures)
        elif self.shards is not None:
            sizes = np.diff(np.linspace(0, images, self.shards + 1).astype(np.int64)).tolist()
            for number, run in enumerate(runs(pictures, sizes)):
                write_shard(place / shard_name(number), run)
            # Asked once more, the progress bar learns that all have come.
            next(pictures, None)
        elif mixed:
            write_mixed_records(place, pictures)
        else:
            write_records(place, pictures)
