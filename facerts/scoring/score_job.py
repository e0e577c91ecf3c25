"""A scoring run over a source of any size, in blocks of images, so that it can be resumed and distributed.

The rows of each finished block are in a file of their own, in a folder beside the result. A run that is interrupted
loses only the blocks in progress. At the end the files are joined and the folder is removed.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ConfigDict, TypeAdapter

from facerts.datasets.source import Source
from facerts.errors import DataError, Error
from facerts.io.files import sync_names
from facerts.io.job import FileState, Job, file_state, remove_finished
from facerts.scoring.copies import Copies
from facerts.scoring.inputs import lazy_images
from facerts.scoring.prepare import LazyImage
from facerts.scoring.row import Row
from facerts.scoring.scorer import Scorer
from facerts.scoring.sinks import check_sink, open_sink

SCHEMA = "facerts.score-job/5"
BLOCK_SIZE = 1000
# An error names at most this many stale blocks.
MAX_NAMED = 5


@dataclass(frozen=True)
class Block:
    """A finished block of images: its rows, and the state of each file that the images were read from."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    rows: list[Row]
    states: list[FileState]


BLOCK = TypeAdapter(Block)


class ScoreJob(Job):
    """The blocks of one scoring run.

    Args:
        settings: everything that the rows depend on besides the images; must be JSON serializable.
        block_size: images per block, by default ``BLOCK_SIZE``; the last block may have fewer.
    """

    def __init__(
        self, out: str | Path, source: Source, settings: dict[str, object], block_size: int | None = None
    ) -> None:
        self.out = Path(out)
        check_sink(self.out)
        self.images = len(source)
        self.block_size = block_size or BLOCK_SIZE
        settings = {
            "schema": SCHEMA,
            **settings,
            "images": self.images,
            "images_sha256": names_sha256(source),
            "block": self.block_size,
        }
        super().__init__(self.out.with_name(f"{self.out.name}.parts"), settings, ".json", self.out)
        self._source = source

    @staticmethod
    def is_finished(out: Path) -> bool:
        """Whether a run has written all rows; what it was killed in removing is removed."""
        parts = out.with_name(f"{out.name}.parts")
        if not out.is_file() or parts.exists():
            return False
        remove_finished(parts)
        return True

    def __len__(self) -> int:
        """The number of blocks."""
        return -(-self.images // self.block_size)

    def _check(self) -> None:
        stale: dict[str, Path] = {}
        for number, block in self.intact(self._block):
            span = self.span(number)
            now = file_states(self._source, span)
            if now != block.states:
                path = self.part(number)
                files = zip(block_files(self._source, span), block.states, now, strict=False)
                stale[path.name] = next((file for file, before, after in files if before != after), path)
        if stale:
            blocks = f"{len(stale)} finished blocks have" if len(stale) > 1 else "a finished block has"
            names = "the folder" if len(stale) > MAX_NAMED else " and ".join(stale)
            raise Error(
                f"{self.folder}: {blocks} rows of images that have changed since they were scored, first "
                f"{next(iter(stale.values()))}; restore the images, or delete {names} to score them again"
            )

    def _block(self, number: int) -> Block:
        try:
            return BLOCK.validate_json(self.content(number))
        except ValueError as error:
            # The checksum shows that a block is whole, not who wrote it.
            raise DataError(f"{self.part(number)}: damaged, these are not rows of images") from error

    def span(self, number: int) -> range:
        """The images of a block, as indices into the source."""
        return range(number * self.block_size, min((number + 1) * self.block_size, self.images))

    def missing(self) -> list[int]:
        """The numbers of the unfinished blocks, in order."""
        done = self.finished()
        return [number for number in range(len(self)) if number not in done]

    def rows(self) -> Iterator[Row]:
        """All rows in order."""
        for number in range(len(self)):
            try:
                yield from self._block(number).rows
            except DataError as error:
                raise DataError(f"{error}; run again with --resume to score its images again") from error

    def finish(self) -> Iterator[Row]:
        """Join all blocks into the result, yielding the rows as they are written, and remove the folder."""
        with open_sink(self.out) as put:
            for row in self.rows():
                put(row)
                yield row
        self.remove()


def block_files(source: Source, span: range) -> list[Path]:
    """The files that hold the images of a span, each once, in the order of the images."""
    files = dict.fromkeys(source.file_of(index) for index in span)
    return [file for file in files if file is not None]


def file_states(source: Source, span: range) -> list[FileState]:
    """The state of each of ``block_files``."""
    return [file_state(file) for file in block_files(source, span)]


def names_sha256(source: Source) -> str:
    """SHA-256 of the names of all images, in order; a run whose images changed cannot be resumed."""
    digest = hashlib.sha256()
    for index in range(len(source)):
        digest.update(source.location(index).encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """The options of a scoring run."""

    min_quality: float | None = None
    largest: bool = False
    copies: Copies = field(default_factory=Copies)

    def settings(self) -> dict[str, object]:
        """The options as JSON values, for ``ScoreJob``."""
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
    scorer: Scorer, source: Source, job: ScoreJob, task: Task, advance: Callable[[int], None] | None = None
) -> None:
    """Score the unfinished blocks of a job in this process."""
    missing = job.missing()
    blocks = score_spans(scorer, source, [job.span(number) for number in missing], task, advance)
    for number, block in zip(missing, blocks, strict=True):
        job.put(number, BLOCK.dump_json(block))
