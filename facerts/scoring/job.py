"""A long scoring run as blocks of pictures, each of which is finished or not begun: what can be resumed and shared out.

Rows of a finished block lie in a file of their own in a folder beside the result. An interrupted run, however it
ended, has lost no more than the blocks that it was in; at the end the files are joined and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from facerts.datasets.source import Source
from facerts.errors import DataError, Error
from facerts.io.files import atomic_write, locked
from facerts.io.json_file import read_json
from facerts.scoring.blocks import Block, check_block, files_of, read_rows, states_of, write_block
from facerts.scoring.row import Row
from facerts.scoring.sinks import check_sink, open_sink

SCHEMA = "facerts.score-job/2"
BLOCK = 1000
# Of many stale blocks the first few are named.
NAMED = 5


class Job:
    """The blocks of one run; ``close`` it, or leave its ``with`` block, to let others write its result.

    Args:
        out: the file that rows go to in the end.
        source: the pictures.
        settings: all that rows depend on beside the pictures, as JSON holds it.
        block: pictures in a block, by default ``BLOCK``; the last one may have fewer.

    Attributes:
        out: as given.
        folder: where finished blocks are.
        pictures: in all.
        block: pictures in one.
        told: all that the rows depend on, by name; a run with others is another one.

    Raises:
        Error: rows cannot be written to ``out``.
    """

    def __init__(
        self, out: str | Path, source: Source, settings: dict[str, Any], block: int | None = None
    ) -> None:
        self.out = Path(out)
        check_sink(self.out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self.pictures = len(source)
        self.block = block or BLOCK
        self.told = {
            "schema": SCHEMA,
            **settings,
            "pictures": self.pictures,
            "pictures_sha256": names_sha256(source),
            "block": self.block,
        }
        self._source = source
        self._joined = self.folder.with_name(f".{self.folder.name}.joined")
        self._lock = ExitStack()

    def __len__(self) -> int:
        """The number of blocks."""
        return -(-self.pictures // self.block)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let others write the result; what is finished stays."""
        self._lock.close()

    def begin(self, *, resume: bool) -> list[str]:
        """Make the folder, or find it as an earlier run has left it; nobody else can write the result from now on.

        Args:
            resume: go on with an unfinished run; where there is none a new one begins.

        Returns:
            Of finished blocks that are damaged, and will be scored again, what was wrong with each.

        Raises:
            Error: another process is at work; or an unfinished run is there, and it is not to be resumed, was of
                something else, or of pictures that have changed since.
        """
        with ExitStack() as lock:
            lock.enter_context(locked(self.out))
            damaged = self._begin(resume=resume)
            self._lock = lock.pop_all()
        return damaged

    def _begin(self, *, resume: bool) -> list[str]:
        if self._joined.exists():
            shutil.rmtree(self._joined)
        told = self.folder / "job.json"
        if not told.exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise Error(f"{self.folder} is in the way: it is not an unfinished run; move it elsewhere")
            self._tell()
            return []
        before = _read_json(told)
        # Of a run that finished nothing there is nothing to go on from.
        if not resume and not self.finished():
            self._tell()
            return []
        if not resume:
            raise Error(
                f"{self.folder} holds {len(self.finished())} finished blocks of an unfinished run; continue it with "
                "--resume, or delete the folder"
            )
        if before.get("schema") != SCHEMA:
            raise Error(
                f"{self.folder} is from a run of another version of facerts; finish it with that one, or "
                "delete the folder"
            )
        changed = [name for name in self.told if before.get(name) != self.told[name]]
        if changed:
            raise Error(
                f"{self.folder} is from a run with another {', '.join(changed)}; give what it was started with, or "
                "delete the folder"
            )
        return self._check_blocks()

    def _tell(self) -> None:
        with atomic_write(self.folder / "job.json", "w") as file:
            json.dump(self.told, file, indent=1)

    def _check_blocks(self) -> list[str]:
        """Remove the blocks that are damaged; see ``begin``.

        Raises:
            Error: pictures of others have changed.
        """
        damaged: list[str] = []
        stale: dict[str, Path] = {}
        for number in sorted(self.finished()):
            span, path = self.span(number), self._file(number)
            try:
                states = check_block(path, number)
            except DataError as error:
                path.unlink()
                damaged.append(f"{error}; its {len(span):,} pictures are scored again")
                continue
            now = states_of(self._source, span)
            if now != states:
                files = zip(files_of(self._source, span), states, now, strict=True)
                stale[path.name] = next(file for file, before, after in files if before != after)
        if stale:
            several = f"{len(stale)} finished blocks have" if len(stale) > 1 else "a finished block has"
            names = "the folder" if len(stale) > NAMED else " and ".join(stale)
            raise Error(
                f"{self.folder}: {several} rows of images that have changed since they were scored, the first is "
                f"{next(iter(stale.values()))}; put them back as they were, or delete {names} to have them scored again"
            )
        return damaged

    def span(self, number: int) -> range:
        """The pictures of a block, as numbered in the source."""
        return range(number * self.block, min((number + 1) * self.block, self.pictures))

    def finished(self) -> set[int]:
        """The numbers of the blocks whose rows are there."""
        return {int(path.stem) for path in self.folder.glob("[0-9]*.jsonl") if path.stem.isdecimal()}

    def missing(self) -> list[int]:
        """The numbers of the others, in order."""
        done = self.finished()
        return [number for number in range(len(self)) if number not in done]

    def put(self, number: int, block: Block) -> None:
        """Keep a block; when this returns a power cut does not take it away."""
        write_block(self._file(number), number, block)

    def rows(self) -> Iterator[Row]:
        """All rows in order.

        Raises:
            DataError: a block's file is missing, or not what it was.
        """
        for number in range(len(self)):
            try:
                yield from read_rows(self._file(number), number)
            except DataError as error:
                raise DataError(f"{error}; run again with --resume to score its images again") from error

    def finish(self) -> Iterator[Row]:
        """Join all blocks into the result, giving its rows as they are written, and remove the folder.

        Raises:
            DataError: as ``rows``; there is no result then.
        """
        with open_sink(self.out) as put:
            for row in self.rows():
                put(row)
                yield row
        # At once: half of a folder would be neither a run that is finished nor one that can be resumed.
        os.replace(self.folder, self._joined)
        shutil.rmtree(self._joined)
        self.close()

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:09d}.jsonl"


def names_sha256(source: Source) -> str:
    """Of the pictures' names in order: a list that changed is another run."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        digest.update(source.location(index).encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        told = read_json(path)
    except DataError as error:
        raise DataError(f"{error}; delete the folder to start over") from error
    if not isinstance(told, dict):
        raise DataError(f"{path}: not part of a scoring run; delete the folder to start over")
    return told
