"""Open a source from a path or pattern: every command accepts the same kinds."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from unicodedata import is_normalized, normalize

import numpy as np

from facerts.datasets.adience import is_adience, open_adience
from facerts.datasets.bin_set import BinSet
from facerts.datasets.folder import Files, is_image_name, open_folder, open_list, open_tree
from facerts.datasets.records import open_records
from facerts.datasets.source import DerivedSource, Source
from facerts.datasets.tar import TarShard
from facerts.errors import DataError
from facerts.io.console import warn
from facerts.io.files import address_problem

LIST_SUFFIXES = frozenset({".txt", ".lst"})
# Of files that hold or name several images.
SEVERAL_SUFFIXES = LIST_SUFFIXES | {".rec", ".tar", ".bin"}
# People with names alike that a warning lists.
SHOWN = 5


class Joined(DerivedSource):
    """Several sources, one after another; identities with the same name are the same identity."""

    def __init__(self, sources: Sequence[Source]) -> None:
        names = list(dict.fromkeys(source.name for source in sources))
        self.name = "+".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more"
        self.other_files = sum(source.other_files for source in sources)
        self._sources = list(sources)
        self._ends = np.cumsum([len(source) for source in sources])
        self.labels, self.identities = None, ()
        if all(source.labels is not None for source in sources):
            names = sorted({name for source in sources for name in source.identities})
            number = {name: label for label, name in enumerate(names)}
            self.identities = names
            self.labels = np.concatenate(
                [np.array([number[name] for name in s.identities], dtype=np.int64)[s.labels] for s in sources]
            )

    def __len__(self) -> int:
        return int(self._ends[-1])

    def _find(self, index: int) -> tuple[Source, int]:
        if index < 0:
            index += len(self)
        which = int(np.searchsorted(self._ends, index, side="right"))
        source = self._sources[which]
        return source, index - (int(self._ends[which]) - len(source))

    def key(self, index: int) -> str:
        source, inner = self._find(index)
        key = source.key(inner)
        # An image that was given by itself is no folder.
        return key if key == source.name else f"{source.name}/{key}"

    def crop_identity(self) -> str | None:
        parts = [(len(source), source.crop_identity()) for source in self._sources]
        if any(inner is None for _, inner in parts):
            return None
        return repr(parts) if any(inner for _, inner in parts) else ""


def open_source(spec: str | Path | Sequence[str | Path]) -> Source:
    """Open images in any supported layout.

    Args:
        spec: a folder by identity, a flat folder, a record directory (train.rec, train.idx), Adience's folder
            (fold_0_data.txt), a tar shard, a .bin set, a list file (.txt or .lst, a path on each line), or an image; a
            pattern with ``*`` that matches several of them; or a sequence of these, which are joined.
    """
    source = _open_all(spec, _open_one)
    _warn_of_alike(source)
    return source


def open_images(spec: str | Path | Sequence[str | Path]) -> Source:
    """As ``open_source``, for commands that do not need identities: a folder means every image below it.

    A file that is none of those is an image, whatever its name; if it cannot be read or decoded, the error comes then.
    """

    def open_one(path: Path) -> Source:
        if path.is_dir() and not any(path.glob("*.rec")):
            return open_tree(path)
        if path.suffix.lower() in LIST_SUFFIXES:
            return open_list(path, complete=False)
        if path.is_dir() or path.suffix.lower() in SEVERAL_SUFFIXES:
            return _open_one(path)
        return Files(path.name, path.parent, [path.name], None)

    return _open_all(spec, open_one)


def is_single_image(spec: str | Path) -> bool:
    """Whether ``open_images`` takes a path for that of one image, even if there is none."""
    if os.path.isdir(spec) or Path(spec).suffix.lower() in SEVERAL_SUFFIXES:
        return False
    return os.path.lexists(spec) or not glob.glob(str(spec))


def _open_all(spec: str | Path | Sequence[str | Path], open_one: Callable[[Path], Source]) -> Source:
    specs = [spec] if isinstance(spec, str | Path) else list(spec)
    paths = [path for entry in specs for path in _matches(str(entry))]
    if not paths:
        raise DataError("no source given")
    sources = [open_one(path) for path in paths]
    return sources[0] if len(sources) == 1 else Joined(sources)


def _matches(spec: str) -> list[Path]:
    if os.path.exists(spec):
        return [_not_a_pipe(Path(spec))]
    if spec == "-":
        raise DataError("images are not read from standard input; give files, folders or a list")
    if problem := address_problem(spec):
        raise DataError(problem)
    matches = sorted(glob.glob(spec))
    if not matches:
        raise DataError(f"{spec}: no such file or folder" + (", nothing matches" if "*" in spec else ""))
    return [_not_a_pipe(Path(path)) for path in matches]


def _not_a_pipe(path: Path) -> Path:
    """A path, unless reading it could wait for ever; images have that checked when they are read."""
    is_image = is_image_name(path.name)
    if not is_image and path.exists() and not (path.is_file() or path.is_dir()):
        raise DataError(f"{path}: not a file or folder; give a source that is one")
    return path


def _warn_of_alike(source: Source) -> None:
    alike: dict[str, list[str]] = {}
    for name in source.identities:
        alike.setdefault(normalize("NFD", name.casefold()), []).append(name)
    several = [
        " and ".join(name + " (decomposed)" * (not is_normalized("NFC", name)) for name in names)
        for names in alike.values()
        if len(names) > 1
    ]
    if several:
        more = f"; and {len(several) - SHOWN:,} more" * (len(several) > SHOWN)
        warn(
            f"{source.name}: people whose names differ only in case or Unicode normalization: "
            f"{'; '.join(several[:SHOWN])}{more}; if they are the same person, give them the same name"
        )


def _open_one(path: Path) -> Source:
    if path.is_dir():
        if is_adience(path):
            return open_adience(path)
        return open_records(path) if any(path.glob("*.rec")) else open_folder(path)
    suffix = path.suffix.lower()
    if suffix == ".rec":
        return open_records(path)
    if suffix == ".tar":
        return TarShard(path)
    if suffix == ".bin":
        return BinSet(path)
    if suffix in LIST_SUFFIXES:
        return open_list(path)
    if is_image_name(path.name):
        return Files(path.name, path.parent, [path.name], None)
    raise DataError(
        f"{path}: not a source; give a folder, a record directory, a .tar shard, a .bin set, a list or an image"
    )
