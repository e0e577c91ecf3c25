"""The contents of files: those of a data set in comparable form, whatever its layout, and those to write."""

from collections import Counter
from pathlib import Path

from facerts.datasets import Source, open_source

Content = Counter[tuple[str, bytes]]


def content(data):
    """Identity and bytes of every image."""
    source = data if isinstance(data, Source) else open_source(data)
    return Counter((identity, data) for identity, _, data in rows(source))


def rows(data):
    """Identity, file name and bytes of every image, in order."""
    source = data if isinstance(data, Source) else open_source(data)
    identities = [""] * len(source)
    if source.labels is not None:
        identities = [str(source.identities[label]) for label in source.labels]
    return [(identities[index], Path(source.key(index)).name, source.read(index)) for index in range(len(source))]


def write_each(folder, contents, suffix):
    """A file of each content, called by its number."""
    paths = [folder / f"{number}{suffix}" for number in range(len(contents))]
    for path, data in zip(paths, contents.values(), strict=True):
        path.write_bytes(data)
    return paths


def files_in(folder):
    """All files below a folder, including hidden ones."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
