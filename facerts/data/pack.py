"""Converting between layouts: record directories, tar shards, folders by identity. Pictures keep their bytes."""

from __future__ import annotations

import io
import shutil
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray

from facerts.data.recordio import pack_labelled, write_record
from facerts.data.source import Source
from facerts.errors import DataError, Error
from facerts.files import atomic_write
from facerts.image import CROP_SIZE, decode
from facerts.progress import track

SHARD_IMAGES = 10_000
CHUNK = 256


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
    order = np.argsort(source.labels, kind="stable")
    ranges: list[tuple[int, int]] = []
    left_out: list[str] = []
    key = 1
    last_label = -1
    with (
        atomic_write(folder / "train.rec") as rec,
        atomic_write(folder / "train.idx", "w") as idx,
        atomic_write(folder / "train.lst", "w") as lst,
        atomic_write(folder / "property", "w") as prop,
    ):
        # The header's two numbers are known at the end; a placeholder of the same length holds its place.
        write_record(rec, idx, 0, pack_labelled((0.0, 0.0), 0, b""))
        for index, data in _read_checked(source, order, f"packing {source.name}", left_out, check):
            source_label = int(source.labels[index])
            if source_label != last_label:
                ranges.append((key, key))
                last_label = source_label
            write_record(rec, idx, key, pack_labelled(float(len(ranges) - 1), key, data))
            lst.write(f"{key}\t{len(ranges) - 1}\t{_record_name(source, index)}\n")
            key += 1
            ranges[-1] = (ranges[-1][0], key)
        if not ranges:
            raise DataError(f"{source.name}: no picture in it can be decoded")
        for label, (begin, end) in enumerate(ranges):
            write_record(rec, idx, key + label, pack_labelled((float(begin), float(end)), key + label, b""))
        rec.seek(0)
        write_record(rec, io.StringIO(), 0, pack_labelled((float(key), float(key + len(ranges))), 0, b""))
        prop.write(f"{len(ranges)},{CROP_SIZE},{CROP_SIZE}\n")
    files = [folder / name for name in ("train.rec", "train.idx", "train.lst", "property")]
    return Packed(key - 1, len(ranges), files, left_out)


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
    order = np.arange(len(source)) if source.labels is None else np.argsort(source.labels, kind="stable")
    left_out: list[str] = []
    files: list[Path] = []
    pictures = _read_checked(source, order, f"packing {source.name}", left_out, check)
    images = 0
    while first := next(pictures, None):
        path = folder / f"shard-{len(files):06d}.tar"
        with (
            atomic_write(path) as file,
            tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for index, data in chain([first], islice(pictures, images_per_shard - 1)):
                member = tarfile.TarInfo(_record_name(source, index))
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                images += 1
        files.append(path)
    if not files:
        raise DataError(f"{source.name}: no picture in it can be decoded")
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
            path = part / _safe(_file_name(source, index, data), source.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with path.open("xb") as file:
                    file.write(data)
            except FileExistsError:
                raise DataError(f"{source.name}: two pictures are called {path.relative_to(part)}") from None
        part.rename(folder)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return Packed(len(source), len(source.identities), [folder])


def _read_checked(
    source: Source, order: NDArray[np.integer], text: str, left_out: list[str], check: bool
) -> Iterator[tuple[int, bytes]]:
    """Bytes of each picture in order; pictures that cannot be decoded are noted and passed over."""

    def load(index: int) -> tuple[int, bytes, str | None]:
        data = source.read(index)
        if check:
            try:
                decode(data, where=source.location(index))
            except Error as error:
                return index, data, str(error)
        return index, data, None

    indices = [int(index) for index in order]
    with ThreadPoolExecutor() as pool:
        chunks = (indices[start : start + CHUNK] for start in range(0, len(indices), CHUNK))
        loaded = (row for chunk in chunks for row in pool.map(load, chunk))
        for index, data, problem in track(loaded, text, total=len(indices)):
            if problem is None:
                yield index, data
            else:
                left_out.append(problem)


def _record_name(source: Source, index: int) -> str:
    """``IDENTITY/FILE``, the picture's place in a folder by identity."""
    name = PurePosixPath(source.key(index)).name
    if source.labels is None:
        return name
    return f"{source.identities[source.labels[index]]}/{name}"


def _file_name(source: Source, index: int, data: bytes) -> str:
    """As ``_record_name``, with the ending that the bytes call for where the name has none."""
    name = _record_name(source, index)
    return name if PurePosixPath(name).suffix else name + _ending(data)


def _ending(data: bytes) -> str:
    if data[:8] == b"\x89PNG\r\n\x1a\n":
        return ".png"
    if data[:4] == b"RIFF":
        return ".webp"
    return ".bmp" if data[:2] == b"BM" else ".jpg"


def _safe(name: str, source: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise DataError(f"{source}: the name {name!r} points outside of the folder")
    return path
