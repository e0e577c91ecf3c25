"""Converting between layouts: record directories, tar shards, folders by identity. Pictures keep their bytes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath

from facerts.curation.writers import RECORD_FILES, shard_name, write_records, write_shard
from facerts.datasets.read_ahead import (
    EncodedImage,
    encoded_image,
    order_by_identity,
    read_ahead,
    require_any,
)
from facerts.datasets.source import Source
from facerts.errors import DataError, Error
from facerts.images import decode
from facerts.io.files import writing
from facerts.io.progress import track

SHARD_IMAGES = 10_000


@dataclass
class Packed:
    """What came out of a conversion.

    Attributes:
        images: written.
        identities: written; 0 where they are unknown.
        files: written.
        left_out: pictures that cannot be decoded, each with the reason.
    """

    images: int
    identities: int
    files: list[Path]
    left_out: list[str] = field(default_factory=list)


def pack_records(source: Source, folder: Path, *, check: bool = True) -> Packed:
    """Write ``train.rec``, ``train.idx``, ``train.lst`` and ``property`` in the layout that the field trains from.

    Images are grouped by identity, in the order of ``source.identities``.

    Args:
        source: pictures with identities.
        folder: made where it does not exist.
        check: decode every picture, and leave out those that cannot be.

    Raises:
        DataError: no identities, or a picture cannot be had; earlier files stay as they were.
    """
    if source.labels is None:
        raise DataError(f"{source.name}: a record set needs identities, and this source has none")
    left_out: list[str] = []
    written = write_records(folder, _read_checked(source, left_out, check))
    return Packed(*written, [folder / name for name in RECORD_FILES], left_out)


def pack_shards(
    source: Source, folder: Path, *, images_per_shard: int = SHARD_IMAGES, check: bool = True
) -> Packed:
    """Write ``shard-000000.tar`` and so on, members ``IDENTITY/NAME`` (or ``NAME`` without identities).

    Images of an identity stay together where the source has them together; shards are cut by number of images.

    Raises:
        Error: the folder has shards already, or a picture cannot be had.
    """
    if any(folder.glob("shard-*.tar")):
        raise Error(f"{folder} has shards already, which would be read together with these; choose another")
    left_out: list[str] = []
    files: list[Path] = []
    images = 0
    pictures = _read_checked(source, left_out, check)
    while first := next(pictures, None):
        files.append(folder / shard_name(len(files)))
        images += write_shard(files[-1], chain([first], islice(pictures, images_per_shard - 1)))
    return Packed(images, len(source.identities), files, left_out)


def unpack(source: Source, folder: Path) -> Packed:
    """Write every picture as a file: ``IDENTITY/NAME``, or ``NAME`` without identities.

    The folder appears when it is whole.

    Raises:
        Error: the folder exists, a name in the source points outside of it, or two pictures share a name.
    """
    if folder.exists():
        raise Error(f"{folder} exists; choose a folder that does not")
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        for index in track(range(len(source)), f"unpacking {source.name}"):
            data = source.read(index)
            path = part / _safe(encoded_image(source, index, data).name, source.name)
            if path.exists():
                raise DataError(f"{source.name}: two pictures are called {path.relative_to(part)}")
            with writing(folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        with writing(folder):
            part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return Packed(len(source), len(source.identities), [folder])


def _read_checked(source: Source, left_out: list[str], check: bool) -> Iterator[EncodedImage]:
    """Each picture, by identity; those that cannot be decoded are noted and passed over.

    Raises:
        DataError: nothing is left.
    """

    def load(index: int) -> EncodedImage | str:
        data = source.read(index)
        if check:
            try:
                decode(data, where=source.location(index))
            except Error as error:
                return str(error)
        return encoded_image(source, index, data)

    def readable() -> Iterator[EncodedImage]:
        for loaded in read_ahead(order_by_identity(source), load, f"packing {source.name}"):
            if isinstance(loaded, str):
                left_out.append(loaded)
            else:
                yield loaded

    return require_any(readable(), f"{source.name}: no picture in it can be decoded")


def _safe(name: str, source: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise DataError(f"{source}: the name {name!r} points outside of the folder")
    return path
