"""The pictures behind a result: their hash, repeated ones, and the few that a report shows."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark
from facerts.data.source import Source
from facerts.evaluate.result import Arrays
from facerts.image import encode_jpeg

JPEG_QUALITY = 85
# Best and worst pictures by each score that a report shows.
SHOWN_PICTURES = 16


@dataclass(frozen=True)
class Hashed:
    """Hashes of a source's pictures.

    Attributes:
        sha256: over all names and bytes, in order.
        first: ``(N,) int64`` the first picture with the same bytes; its own number where there is none before.
    """

    sha256: str
    first: NDArray[np.int64]


def hash_pictures(source: Source) -> Hashed:
    """Read every picture's bytes once."""
    whole = hashlib.sha256()
    seen: dict[bytes, int] = {}
    first = np.empty(len(source), dtype=np.int64)
    for index in range(len(source)):
        data = source.read(index)
        whole.update(f"{source.key(index)}\0{len(data)}\0".encode())
        whole.update(data)
        first[index] = seen.setdefault(hashlib.blake2b(data, digest_size=16).digest(), index)
    return Hashed(whole.hexdigest(), first)


def repeated_pictures(benchmark: PairBenchmark, first: NDArray[np.int64]) -> tuple[str, ...]:
    """What is wrong with a benchmark in which the same bytes stand more than once, one sentence each."""
    notes = []
    pictures = first[benchmark.pairs]
    twice = pictures[:, 0] == pictures[:, 1]
    for flag, what in ((True, "genuine"), (False, "impostor")):
        rows = np.flatnonzero(twice & (benchmark.same == flag))
        if len(rows):
            notes.append(
                f"{len(rows)} {what} pairs are one picture twice, the first is "
                + _named(benchmark, pictures[rows[0], 0])
                + ("." if flag else ": they are labelled wrongly.")
            )
    used = np.unique(np.stack([pictures.reshape(-1), np.repeat(benchmark.folds, 2)], axis=1), axis=0)
    shared, folds = np.unique(used[:, 0], return_counts=True)
    across = shared[folds > 1]
    if len(across):
        where = sorted(used[used[:, 0] == across[0], 1].tolist())
        notes.append(
            f"{len(across)} pictures stand in more than one fold, the first is {_named(benchmark, across[0])} in folds "
            f"{', '.join(str(fold) for fold in where)}: thresholds chosen on the other folds have seen them."
        )
    return tuple(notes)


def shown_pictures(source: Source, rows: Sequence[int] | NDArray[np.integer]) -> Arrays:
    """Crops that a report will show: their rows, and their JPEG bytes one after the other with the ends of each."""
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    encoded = [encode_jpeg(source.crop(int(row)), JPEG_QUALITY) for row in chosen]
    return {
        "shown_rows": chosen,
        "shown_jpeg": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "shown_ends": np.cumsum([len(data) for data in encoded]).astype(np.int64),
    }


def extremes(values: NDArray[np.float32]) -> list[NDArray[np.intp]]:
    """Rows of the lowest and of the highest values."""
    order = np.argsort(values, kind="stable")
    return [order[:SHOWN_PICTURES], order[-SHOWN_PICTURES:]]


def _named(benchmark: PairBenchmark, row: int) -> str:
    return benchmark.images.key(int(row))
