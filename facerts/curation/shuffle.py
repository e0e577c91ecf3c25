"""Pictures in an order drawn at random, so that reading them one after the other is reading them shuffled.

Reading a source in random order is slow where its files are far apart. So pictures are read in the source's own order
and written to piles: each takes those whose places in the new order lie in one range. Then a pile at a time is read,
put in order in memory, and written.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import Settings, making
from facerts.curation.output_spec import Target
from facerts.datasets.read_ahead import EncodedImage, encoded_image, read_ahead
from facerts.datasets.source import Source
from facerts.io.files import writing
from facerts.io.progress import track

# A pile is held in memory. All of them are open at once, which some systems allow for 256 files.
PILE_BYTES = 256 << 20
MOST_PILES = 200
SAMPLE = 64

_ENTRY = struct.Struct("<QQI")


def shuffle(
    source: Source,
    out: Target,
    *,
    seed: int = 0,
    settings: Settings | None = None,
    pile_bytes: int = PILE_BYTES,
) -> dict[str, Any]:
    """Write a source's pictures in an order drawn at random: every order is equally likely.

    Memory holds one pile, and eight bytes for each picture; the disk of ``out`` needs room for all pictures twice.

    Args:
        source: any pictures.
        out: tar shards, a tar file, or a record directory, whose pictures are not grouped by identity.
        seed: of the order, which depends on nothing else than the number of pictures.
        settings: of the command.
        pile_bytes: of pictures to hold in memory, as far as ``MOST_PILES`` allow it.

    Returns:
        The report.

    Raises:
        Error: a data set cannot be read or written.
    """
    places = np.random.default_rng(seed).permutation(len(source))
    with making(source, [out], settings or Settings(), {"seed": seed}) as made:
        made.write(out, source, mixed=_in_order(source, places, made.scratch, pile_bytes))
    return made.report


def _in_order(
    source: Source, places: NDArray[np.int64], scratch: Path, pile_bytes: int
) -> Iterator[EncodedImage]:
    """The pictures, each at its place."""
    per_pile = _pictures_in_a_pile(source, pile_bytes)
    files = [scratch / f"pile-{number}" for number in range(-(-len(source) // per_pile))]
    with writing(scratch), ExitStack() as stack:
        piles = [stack.enter_context(file.open("wb")) for file in files]
        for index, data in _read(source):
            place = int(places[index])
            pile = piles[place // per_pile]
            pile.write(_ENTRY.pack(place, index, len(data)))
            pile.write(data)
    yield from track(
        (encoded_image(source, index, data) for file in files for index, data in _sorted(file)),
        "writing in the new order",
        total=len(source),
    )


def _read(source: Source) -> Iterator[tuple[int, bytes]]:
    """All pictures in the source's order."""
    return read_ahead(range(len(source)), lambda index: (index, source.read(index)), f"reading {source.name}")


def _sorted(file: Path) -> Iterator[tuple[int, bytes]]:
    """The pictures of a pile by their places; the file goes as soon as it is read."""
    with file.open("rb") as pile:
        entries = sorted(_entries(pile))
    file.unlink()
    for _, index, data in entries:
        yield index, data


def _entries(pile: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    while head := pile.read(_ENTRY.size):
        place, index, size = _ENTRY.unpack(head)
        yield place, index, pile.read(size)


def _pictures_in_a_pile(source: Source, pile_bytes: int) -> int:
    """As many as a pile may hold, by the mean size of a few pictures throughout the source."""
    sample = np.unique(np.linspace(0, len(source) - 1, SAMPLE).astype(np.int64))
    mean = max(1.0, float(np.mean([len(source.read(int(index))) for index in sample])))
    piles = min(MOST_PILES, -(-int(mean * len(source)) // pile_bytes))
    return -(-len(source) // max(1, piles))
