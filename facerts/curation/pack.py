"""Convert between layouts: record directories, tar shards, folders by identity. Images are not re-encoded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from facerts.curation.output_spec import RECORD_FILES, shard_name, write_records, write_shard
from facerts.datasets.encoded_images import (
    EncodedImage,
    encoded_image,
    order_by_identity,
    read_ahead,
)
from facerts.datasets.source import Source
from facerts.errors import DataError, Error
from facerts.images import decode
from facerts.io.file_names import safe_path
from facerts.io.files import writing
from facerts.io.job import staged
from facerts.io.progress import track

SHARD_IMAGES = 10_000


@dataclass
class PackResult:
    """The result of a conversion."""

    images: int
    identities: int
    files: list[Path]
    left_out: list[str] = field(default_factory=list)


def pack_records(source: Source, folder: Path, *, check: bool = True) -> PackResult:
    """Write ``train.rec``, ``train.idx``, ``train.lst`` and ``property`` in the usual training format.

    Images are grouped by identity, in the order of ``source.identities``.
    """
    if source.labels is None:
        raise DataError(f"{source.name}: a record directory needs identities, and this source has none")
    left_out: list[str] = []
    written = write_records(folder, _read_checked(source, left_out, check))
    return PackResult(*written, [folder / name for name in RECORD_FILES], left_out)


def pack_shards(
    source: Source, folder: Path, *, images_per_shard: int = SHARD_IMAGES, check: bool = True
) -> PackResult:
    """Write ``shard-000000.tar`` and so on, members ``IDENTITY/NAME`` (or ``NAME`` without identities).

    Images are grouped by identity; each shard but the last has ``images_per_shard`` images.
    """
    if any(folder.glob("shard-*.tar")):
        raise Error(f"{folder} has shards already, which would mix with the new ones; choose another folder")
    left_out: list[str] = []
    files: list[Path] = []
    count = 0
    images = _read_checked(source, left_out, check)
    while first := next(images, None):
        files.append(folder / shard_name(len(files)))
        count += write_shard(files[-1], chain([first], islice(images, images_per_shard - 1)))
    return PackResult(count, len(source.identities), files, left_out)


def unpack(source: Source, folder: Path) -> PackResult:
    """Write every image as a file: ``IDENTITY/NAME``, or ``NAME`` without identities.

    The folder appears only when it is complete.
    """
    with staged([folder]) as temporary:
        part = temporary[folder]
        for index in track(range(len(source)), f"unpacking {source.name}"):
            data = source.read(index)
            identity, _, name = encoded_image(source, index, data).name.rpartition("/")
            path = part / safe_path([identity, name] if identity else [name])
            if path.exists():
                raise DataError(f"{source.name}: two images are called {path.relative_to(part)}")
            with writing(folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
    return PackResult(len(source), len(source.identities), [folder])


def _read_checked(source: Source, left_out: list[str], check: bool) -> Iterator[EncodedImage]:
    """The images, grouped by identity; those that cannot be decoded are added to ``left_out`` and skipped."""

    def load(index: int) -> EncodedImage | str:
        try:
            data = source.read(index)
            if check:
                decode(data, where=source.location(index))
        except Error as error:
            if not check:
                raise
            return str(error)
        return encoded_image(source, index, data)

    is_empty = True
    for loaded in read_ahead(order_by_identity(source), load, f"packing {source.name}"):
        if isinstance(loaded, str):
            left_out.append(loaded)
        else:
            is_empty = False
            yield loaded
    if is_empty:
        raise DataError(f"{source.name}: none of its images can be decoded")
