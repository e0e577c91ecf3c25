"""Pictures and crops put aside while scoring: aligned crops of faces, and the pictures that were accepted or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from facerts.datasets.source import Source
from facerts.images import encode_png
from facerts.io.files import atomic_write, writing
from facerts.scoring.row_builder import Scored


@dataclass(frozen=True)
class Copies:
    """Folders to put them into; None for none.

    A picture is accepted if one of its faces is; one that could not be read is neither, it is in the rows. Names are
    those that the pictures have in their source. A file that has that name already and other contents is kept, and
    the new one gets a number behind its name, so nothing is lost and a repeated run changes nothing.

    Attributes:
        crops: of the aligned crops, as PNG, the face's number behind the picture's name.
        accepted: of the accepted pictures, as they are.
        rejected: of the others.
    """

    crops: Path | None = None
    accepted: Path | None = None
    rejected: Path | None = None

    def put(self, source: Source, index: int, faces: Sequence[Scored]) -> list[Path]:
        """Put aside what belongs to one picture.

        Returns:
            The files that were written; ``facerts.io.files.sync_names`` makes sure of their names.

        Raises:
            WriteError: a file cannot be written.
        """
        written = []
        for face in faces:
            if self.crops is not None and face.crop is not None:
                name = _inside(source.key(index))
                place = self.crops / name.with_name(f"{name.stem}_{face.row.face}.png")
                written += _write(place, encode_png(face.crop))
        folder = self.accepted if any(face.row.accepted for face in faces) else self.rejected
        if folder is not None and faces[0].row.error is None:
            data = source.read(index)
            name = _inside(source.key(index))
            written += _write(folder / (name if name.suffix else name.with_suffix(_suffix(data))), data)
        return written


def _inside(key: str) -> Path:
    """A key as a path that stays in a folder, whatever a tar file says, with slashes of either kind."""
    key = key.replace("\0", "_")
    parts = [part for part in PureWindowsPath(key).parts if part != ".."]
    anchor = PureWindowsPath(key).anchor
    return Path(*[part for part in parts if part != anchor] or ["picture"])


def _suffix(data: bytes) -> str:
    """Of a picture that is not named as one, such as a record."""
    return {b"\xff\xd8": ".jpg", b"\x89P": ".png", b"RI": ".webp"}.get(data[:2], ".bmp")


def _write(path: Path, data: bytes) -> list[Path]:
    """The file that was written, if one was."""
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
