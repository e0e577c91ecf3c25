"""A long scoring run as blocks of pictures, each of which is finished or not begun: what can be resumed and shared out.

Rows of a finished block lie in a file of their own in a folder beside the result. An interrupted run, however it
ended, has lost no more than the blocks that it was in; at the end the files are joined and the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from facerts.data.source import Source
from facerts.errors import DataError, Error
from facerts.files import atomic_write
from facerts.json_file import read_json
from facerts.scoring.row import Row
from facerts.scoring.sinks import check_sink, open_sink

SCHEMA = "facerts.score-job/1"
BLOCK = 1000
_ROW = TypeAdapter(Row)


class Job:
    """The blocks of one run.

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

    def __len__(self) -> int:
        """The number of blocks."""
        return -(-self.pictures // self.block)

    def begin(self, *, resume: bool) -> None:
        """Make the folder, or find it as an earlier run has left it.

        Args:
            resume: go on with an unfinished run; where there is none a new one begins.

        Raises:
            Error: an unfinished run is there, and it is not to be resumed, or was of something else.
        """
        told = self.folder / "job.json"
        if not told.exists():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise Error(f"{self.folder} is in the way: it is not of an unfinished run; move it elsewhere")
            self._tell()
            return
        before = _read_json(told)
        # Of a run that finished nothing there is nothing to go on from.
        if not resume and not self.finished():
            self._tell()
            return
        if not resume:
            raise Error(
                f"{self.folder} holds {len(self.finished())} finished blocks of an unfinished run; go on with it by "
                "--resume, or delete the folder"
            )
        changed = [name for name in self.told if before.get(name) != self.told[name]]
        if changed:
            raise Error(
                f"{self.folder} is of a run with another {', '.join(changed)}; give what it was begun with, or "
                "delete the folder"
            )

    def _tell(self) -> None:
        with atomic_write(self.folder / "job.json", "w") as file:
            json.dump(self.told, file, indent=1)

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

    def put(self, number: int, rows: Iterable[Row]) -> None:
        """Keep the rows of a block."""
        with atomic_write(self._file(number), "w") as file:
            for row in rows:
                file.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")

    def rows(self) -> Iterator[Row]:
        """All rows in order.

        Raises:
            DataError: a block's file is not what it was.
        """
        for number in range(len(self)):
            path = self._file(number)
            try:
                with open(path, "rb") as file:
                    for line in file:
                        yield _ROW.validate_json(line)
            except (OSError, ValueError) as error:
                said = str(error).partition("\n")[0]
                raise DataError(f"{path}: broken ({said}); delete it and run again with --resume") from error

    def finish(self) -> Iterator[Row]:
        """Join all blocks into the result, giving its rows as they are written, and remove the folder."""
        with open_sink(self.out) as put:
            for row in self.rows():
                put(row)
                yield row
        shutil.rmtree(self.folder)

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
        raise DataError(f"{error}; delete the folder to begin anew") from error
    if not isinstance(told, dict):
        raise DataError(f"{path}: not of a scoring run; delete the folder to begin anew")
    return told
