"""Write images in random order, so that a sequential read is a shuffled read.

Reading a source in random order is slow. Therefore images are read in the order of the source and distributed over
temporary files (piles), each of which holds a range of positions in the new order. Then one pile at a time is read,
sorted in memory, and written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import JobOptions, open_job
from facerts.curation.output_spec import OutputSpec
from facerts.datasets.encoded_images import EncodedImage, encoded_image, read_ahead
from facerts.datasets.source import Source
from facerts.io.files import writing
from facerts.io.progress import track

# A pile must fit in memory. All piles are open at once, and some systems limit a process to 256 open files.
PILE_BYTES = 256 << 20
MAX_PILES = 200
SAMPLE = 64

_ENTRY = struct.Struct("<QQI")


def shuffle(
    source: Source,
    out: OutputSpec,
    *,
    seed: int = 0,
    options: JobOptions | None = None,
    pile_bytes: int = PILE_BYTES,
) -> dict[str, Any]:
    """Write the images of a source in random order; every order is equally likely.

    Memory holds one pile and eight bytes per image; the disk of ``out`` needs space for all images twice.

    Args:
        out: the shuffled data set; images are not grouped by identity.
        seed: seed of the order, which depends only on the seed and the number of images.
        pile_bytes: size of a pile in bytes; piles are larger if ``MAX_PILES`` do not suffice.
    """
    positions = np.random.default_rng(seed).permutation(len(source))
    with open_job(source, [out], options or JobOptions(), {"seed": seed}) as job:
        job.write(out, source, shuffled=_in_order(source, positions, job.scratch, pile_bytes))
    return job.report


def _in_order(
    source: Source, positions: NDArray[np.int64], scratch: Path, pile_bytes: int
) -> Iterator[EncodedImage]:
    """The images in the order of their positions."""
    per_pile = _images_per_pile(source, pile_bytes)
    files = [scratch / f"pile-{number}" for number in range(-(-len(source) // per_pile))]
    with writing(scratch), ExitStack() as stack:
        piles = [stack.enter_context(file.open("wb")) for file in files]
        for index, data in _read(source):
            position = int(positions[index])
            pile = piles[position // per_pile]
            pile.write(_ENTRY.pack(position, index, len(data)))
            pile.write(data)
    yield from track(
        (encoded_image(source, index, data) for file in files for index, data in _sorted(file)),
        "writing in the new order",
        total=len(source),
    )


def _read(source: Source) -> Iterator[tuple[int, bytes]]:
    """All images in the order of the source."""
    return read_ahead(range(len(source)), lambda index: (index, source.read(index)), f"reading {source.name}")


def _sorted(file: Path) -> Iterator[tuple[int, bytes]]:
    """The images of a pile, sorted by position; the file is deleted as soon as it is read."""
    with file.open("rb") as pile:
        entries = sorted(_entries(pile))
    file.unlink()
    for _, index, data in entries:
        yield index, data


def _entries(pile: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    while head := pile.read(_ENTRY.size):
        position, index, size = _ENTRY.unpack(head)
        yield position, index, pile.read(size)


def _images_per_pile(source: Source, pile_bytes: int) -> int:
    """Images per pile, from the mean size of a sample of images throughout the source."""
    sample = np.unique(np.linspace(0, len(source) - 1, SAMPLE).astype(np.int64))
    mean = max(1.0, float(np.mean([len(source.read(int(index))) for index in sample])))
    piles = min(MAX_PILES, -(-int(mean * len(source)) // pile_bytes))
    return -(-len(source) // max(1, piles))
