"""A scoring run over a source of any size, in blocks of images, so that it can be resumed and distributed.

The rows of each finished block are in a file of their own, in a folder beside the result. A run that is interrupted
loses only the blocks in progress. At the end the files are joined and the folder is removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from facerts.datasets.source import Source
from facerts.errors import DataError, Error
from facerts.io.files import atomic_write, locked, refuse_link, remove_unfinished, sync_names
from facerts.io.json_file import read_json
from facerts.scoring.blocks import (
    Block,
    FileState,
    block_files,
    check_block,
    file_states,
    read_rows,
    write_block,
)
from facerts.scoring.copies import Copies
from facerts.scoring.inputs import lazy_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row import Row
from facerts.scoring.scorer import Scorer
from facerts.scoring.sinks import check_sink, open_sink

SCHEMA = "facerts.score-job/3"
BLOCK_SIZE = 1000
# An error names at most this many stale blocks.
MAX_NAMED = 5


class Job:
    """The blocks of one scoring run.

    It holds a lock on its result from ``begin`` until ``close`` or the end of the ``with`` block.

    Args:
        settings: everything that the rows depend on besides the images; must be JSON serializable.
        block_size: images per block, by default ``BLOCK_SIZE``; the last block may have fewer.

    Attributes:
        settings: everything that the rows depend on, by name; only a run with equal settings can be resumed.
    """

    def __init__(
        self, out: str | Path, source: Source, settings: dict[str, Any], block_size: int | None = None
    ) -> None:
        self.out = Path(out)
        check_sink(self.out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self.images = len(source)
        self.block_size = block_size or BLOCK_SIZE
        self.settings = {
            "schema": SCHEMA,
            **settings,
            "images": self.images,
            "images_sha256": names_sha256(source),
            "block": self.block_size,
        }
        self._source = source
        self._joined = self.folder.with_name(f".{self.folder.name}.joined")
        self._lock = ExitStack()

    def __len__(self) -> int:
        """The number of blocks."""
        return -(-self.images // self.block_size)

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock on the result; finished blocks stay."""
        self._lock.close()

    def begin(self, *, resume: bool) -> list[str]:
        """Lock the result, and create the folder or check the one that an earlier run left.

        Returns:
            The problem of each finished block that is damaged; these blocks are scored again.
        """
        with ExitStack() as lock:
            lock.enter_context(locked(self.out))
            damaged = self._begin(resume=resume)
            self._lock = lock.pop_all()
        return damaged

    def _begin(self, *, resume: bool) -> list[str]:
        for folder in (self.folder, self._joined):
            refuse_link(folder)
        if self._joined.exists():
            shutil.rmtree(self._joined)
        remove_unfinished(self.folder)
        job_file = self.folder / "job.json"
        if not job_file.is_file():
            if self.folder.exists() and any(self.folder.iterdir()):
                raise Error(f"{self.folder} exists but is not from an unfinished run; move it elsewhere")
            self._write_settings(job_file)
            return []
        earlier = _read_settings(job_file)
        # A run without finished blocks has nothing to lose.
        if not resume and not self.finished():
            self._write_settings(job_file)
            return []
        if not resume:
            raise Error(
                f"{self.folder} has {len(self.finished())} finished blocks of an unfinished run; continue it with "
                "--resume, or delete the folder"
            )
        if earlier.get("schema") != SCHEMA:
            raise Error(
                f"{self.folder} is from another version of facerts; finish the run with that version, or delete the "
                "folder"
            )
        changed = [name for name in self.settings if earlier.get(name) != self.settings[name]]
        if changed:
            raise Error(
                f"{self.folder} is from a run with different settings ({', '.join(changed)}); use the original "
                "settings, or delete the folder"
            )
        return self._check_blocks()

    def _write_settings(self, job_file: Path) -> None:
        with atomic_write(job_file, "w") as file:
            json.dump(self.settings, file, indent=1)

    def _check_blocks(self) -> list[str]:
        """Remove the damaged blocks; see ``begin``."""
        damaged: list[str] = []
        stale: dict[str, Path] = {}
        for number in sorted(self.finished()):
            span, path = self.span(number), self._file(number)
            try:
                states = check_block(path, number)
            except DataError as error:
                path.unlink()
                damaged.append(f"{error}; its {len(span):,} images are scored again")
                continue
            now = file_states(self._source, span)
            if now != states:
                files = zip(block_files(self._source, span), states, now, strict=False)
                stale[path.name] = next((file for file, before, after in files if before != after), path)
        if stale:
            blocks = f"{len(stale)} finished blocks have" if len(stale) > 1 else "a finished block has"
            names = "the folder" if len(stale) > MAX_NAMED else " and ".join(stale)
            raise Error(
                f"{self.folder}: {blocks} rows of images that have changed since they were scored, first "
                f"{next(iter(stale.values()))}; restore the images, or delete {names} to score them again"
            )
        return damaged

    def span(self, number: int) -> range:
        """The images of a block, as indices into the source."""
        return range(number * self.block_size, min((number + 1) * self.block_size, self.images))

    def finished(self) -> set[int]:
        """The numbers of the finished blocks."""
        files = (path for path in self.folder.glob("[0-9]*.jsonl") if path.is_file())
        return {int(path.stem) for path in files if path.stem.isdecimal()}

    def missing(self) -> list[int]:
        """The numbers of the unfinished blocks, in order."""
        done = self.finished()
        return [number for number in range(len(self)) if number not in done]

    def put(self, number: int, block: Block) -> None:
        """Store a block; when this returns it survives a power failure."""
        write_block(self._file(number), number, block)

    def rows(self) -> Iterator[Row]:
        """All rows in order."""
        for number in range(len(self)):
            try:
                yield from read_rows(self._file(number), number)
            except DataError as error:
                raise DataError(f"{error}; run again with --resume to score its images again") from error

    def finish(self) -> Iterator[Row]:
        """Join all blocks into the result, yielding the rows as they are written, and remove the folder."""
        with open_sink(self.out) as put:
            for row in self.rows():
                put(row)
                yield row
        # Renamed first, because a half-deleted folder could neither be resumed nor ignored.
        os.replace(self.folder, self._joined)
        shutil.rmtree(self._joined)
        self.close()

    def _file(self, number: int) -> Path:
        return self.folder / f"{number:09d}.jsonl"


def names_sha256(source: Source) -> str:
    """SHA-256 of the names of all images, in order; a run whose images changed cannot be resumed."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        digest.update(source.location(index).encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        settings = read_json(path)
    except DataError as error:
        raise DataError(f"{error}; delete the folder to start over") from error
    if not isinstance(settings, dict):
        raise DataError(f"{path}: not from a scoring run; delete the folder to start over")
    return settings


@dataclass(frozen=True)
class Task:
    """The options of a scoring run."""

    min_quality: float | None = None
    largest: bool = False
    copies: Copies = field(default_factory=Copies)

    def settings(self) -> dict[str, Any]:
        """The options as JSON values, for ``Job``."""
        return {
            "min_quality": self.min_quality,
            "largest": self.largest,
            "copies": {name: None if path is None else str(path) for name, path in vars(self.copies).items()},
        }


def score_spans(
    scorer: Scorer,
    source: Source,
    spans: Sequence[range],
    task: Task,
    advance: Callable[[int], None] | None = None,
    *,
    workers: int | None = None,
) -> Iterator[Block]:
    """Score spans of images, each into a block, in order; the copies of a block are on disk when it is yielded.

    Args:
        spans: indices of the images of each block; all spans but the last have the same length.
        advance: called with the number of images scored since the last call.
        workers: threads that load, detect and align, with one batch in the model at a time; None for as many of both
            as keep all cores busy.
    """
    states: deque[list[FileState]] = deque()

    def images() -> Iterator[LazyImage]:
        for span in spans:
            # Taken before the files are read, so that a change while they are read is noticed.
            states.append(file_states(source, span))
            yield from lazy_images(source, span.start, span.stop)

    one_at_a_time = {} if workers is None else {"workers": workers, "parallel_batches": 1}
    scored = scorer.score_lazy(
        images(),
        scorer.row_builder(task.min_quality, embed=False),
        largest=task.largest,
        block_size=len(spans[0]) if spans else None,
        **one_at_a_time,
    )
    for span in spans:
        rows, copies = [], list[Path]()
        for index in span:
            faces = next(scored)
            copies += task.copies.save(source, index, faces)
            rows += [face.row for face in faces]
            if advance is not None:
                advance(1)
        sync_names(copies)
        yield Block(rows, states.popleft())


def score_rows(
    scorer: Scorer, source: Source, task: Task, advance: Callable[[int], None] | None = None
) -> Iterator[Row]:
    """The rows of all images in order, without a job: what was scored before an interruption is lost."""
    images = range(len(source))
    spans = [images[start : start + BLOCK_SIZE] for start in images[::BLOCK_SIZE]]
    for block in score_spans(scorer, source, spans, task, advance):
        yield from block.rows


def run_job(
    scorer: Scorer, source: Source, job: Job, task: Task, advance: Callable[[int], None] | None = None
) -> None:
    """Score the unfinished blocks of a job in this process."""
    missing = job.missing()
    blocks = score_spans(scorer, source, [job.span(number) for number in missing], task, advance)
    for number, block in zip(missing, blocks, strict=True):
        job.put(number, block)
