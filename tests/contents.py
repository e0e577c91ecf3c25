"""The contents of files: those of a data set in comparable form, whatever its layout, and those to write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from facerts.datasets import Source, open_source

Content = Counter[tuple[str, bytes]]


def content(data: Source | Path | str) -> Content:
    """Identity and bytes of every image."""
    source = data if isinstance(data, Source) else open_source(data)
    return Counter((identity, data) for identity, _, data in rows(source))


def rows(data: Source | Path | str) -> list[tuple[str, str, bytes]]:
    """Identity, file name and bytes of every image, in order."""
    source = data if isinstance(data, Source) else open_source(data)
    identities = [""] * len(source)
    if source.labels is not None:
        identities = [str(source.identities[label]) for label in source.labels]
    return [(identities[index], Path(source.key(index)).name, source.read(index)) for index in range(len(source))]


def write_each(folder: Path, contents: Mapping[str, bytes], suffix: str) -> list[Path]:
    """A file of each content, called by its number."""
    paths = [folder / f"{number}{suffix}" for number in range(len(contents))]
    for path, data in zip(paths, contents.values(), strict=True):
        path.write_bytes(data)
    return paths


def files_in(folder: Path) -> list[str]:
    """All files below a folder, including hidden ones."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
