"""Files saved while scoring: aligned crops, annotated images, and copies of accepted and rejected images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from facerts.datasets.source import Source
from facerts.images import decode, encode_jpeg, encode_png
from facerts.io.files import atomic_write, writing
from facerts.scoring.annotate import annotate
from facerts.scoring.row_builder import ScoredFace


@dataclass(frozen=True)
class Copies:
    """The folders to save copies in; None saves none.

    An image is accepted if one of its faces is. An image that could not be read is neither accepted nor rejected; its
    row has the error. Copies keep the names that the images have in their source. If a file of that name with other
    contents exists it is kept, and the copy gets a number after its name: nothing is lost, and running again changes
    nothing.

    Attributes:
        crops: folder for aligned crops, as PNG; the number of the face follows the name of the image.
        accepted: folder for accepted images, unchanged.
        rejected: folder for the other images, unchanged.
        annotated: folder for images with their faces drawn in, as JPEG.
    """

    crops: Path | None = None
    accepted: Path | None = None
    rejected: Path | None = None
    annotated: Path | None = None

    def save(self, source: Source, index: int, faces: Sequence[ScoredFace]) -> list[Path]:
        """Save the copies of one image.

        Returns:
            The files written; their names are durable after ``facerts.io.files.sync_names``.

        Raises:
            WriteError: a file cannot be written.
        """
        written = []
        for face in faces:
            if self.crops is not None and face.crop is not None:
                name = _relative_path(source.key(index))
                crop_file = self.crops / name.with_name(f"{name.stem}_{face.row.face}.png")
                written += write_copy(crop_file, encode_png(face.crop))
        if self.annotated is not None and faces[0].row.error is None:
            image = decode(source.read(index), where=source.location(index))
            name = _relative_path(source.key(index))
            jpeg = name if name.suffix.lower() in (".jpg", ".jpeg") else name.with_name(f"{name.name}.jpg")
            annotated = annotate(image, [face.row for face in faces])
            written += write_copy(self.annotated / jpeg, encode_jpeg(annotated))
        folder = self.accepted if any(face.row.accepted for face in faces) else self.rejected
        if folder is not None and faces[0].row.error is None:
            data = source.read(index)
            name = _relative_path(source.key(index))
            written += write_copy(folder / (name if name.suffix else name.with_suffix(_suffix(data))), data)
        return written


def _relative_path(key: str) -> Path:
    """A key as a path that stays inside a folder, whatever a tar file contains, with either kind of slash."""
    key = key.replace("\0", "_")
    parts = [part for part in PureWindowsPath(key).parts if part != ".."]
    anchor = PureWindowsPath(key).anchor
    return Path(*[part for part in parts if part != anchor] or ["image"])


def _suffix(data: bytes) -> str:
    """The suffix for an image whose name has none, such as a record."""
    return {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}.get(data[:2], ".bmp")


def write_copy(path: Path, data: bytes) -> list[Path]:
    """The file that was written: one of the same name with other contents is kept; empty if an identical one exists."""
    target, number = path, 1
    with writing(path):
        while target.exists():
            if target.is_file() and target.read_bytes() == data:
                return []
            number += 1
            target = path.with_name(f"{path.stem} ({number}){path.suffix}")
        with atomic_write(target, sync_name=False) as file:
            file.write(data)
        return [target]
