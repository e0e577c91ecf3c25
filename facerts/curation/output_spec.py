"""The formats of a new data set: a record directory, one tar file, or tar shards in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from facerts.curation.writers import shard_name, write_records, write_shard, write_shuffled_records
from facerts.datasets.encoded_images import EncodedImage
from facerts.errors import Error


@dataclass(frozen=True)
class OutputSpec:
    """The path and format of a new data set.

    Attributes:
        path: a folder that does not exist yet, or a ``.tar`` file.
        shards: number of tar shards in the folder; None for a record directory.
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
        """The format, in words."""
        if self.in_one_file:
            return "tar file"
        return "record directory" if self.shards is None else "tar shards"

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
