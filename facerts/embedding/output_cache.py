"""A folder that keeps what models gave for sets of images, so that later commands need not ask them again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError, Error
from facerts.io.console import warn
from facerts.io.files import atomic_write
from facerts.io.npz import read_npz

Arrays = Mapping[str, NDArray[Any]]

# Part of every key: another number where the meaning of what is kept changes.
VERSION = 1
SCORES = ("norm", "quality", "uncertainty")
_EXTRA = "extra/"


class OutputCache:
    """Keeps arrays in a folder, one file for each key, which may be deleted at any time.

    Several processes may share the folder, which is created when something is kept: files appear complete, under the
    hash of their key. A file that is damaged or belongs to another key is computed again, with a warning.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if self.folder.is_file():
            raise Error(f"{folder} is a file, but a cache is a folder; name a folder")

    def path_of(self, key: Mapping[str, object], suffix: str = ".npz") -> Path:
        """Where what belongs to a key is kept."""
        text = json.dumps({"version": VERSION, **key}, sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()}{suffix}"

    def arrays(
        self,
        key: Mapping[str, object],
        compute: Callable[[], Arrays],
        check: Callable[[Arrays, Path], None] | None = None,
    ) -> Arrays:
        """Arrays from the folder if it has them; otherwise computed and kept.

        The key is all that they depend on, as values for JSON; ``check`` raises a DataError if a file's cannot be of
        it.
        """
        path = self.path_of(key)
        if path.is_file():
            try:
                stored = read_npz(path)
                if str(stored.pop("key", "")) != path.stem:
                    raise DataError(f"{path}: the content does not match the name of the file")
                if check is not None:
                    check(stored, path)
                return stored
            except DataError as error:
                warn(f"{error}; it is computed again")
        arrays = compute()
        try:
            with atomic_write(path) as file:
                np.savez(file, allow_pickle=False, key=np.array(path.stem), **arrays)
        except Error as error:
            warn(f"{error}; the outputs are not kept for the next command")
        return arrays

    def outputs(self, key: Mapping[str, object], rows: int, compute: Callable[[], FaceOutputs]) -> FaceOutputs:
        """The outputs of a number of images, as ``arrays`` keeps them."""

        def check(arrays: Arrays, path: Path) -> None:
            _check_outputs(arrays, rows, path)

        stored = self.arrays({"count": rows, **key}, lambda: _arrays_of(compute()), check)
        extras = {name.removeprefix(_EXTRA): values for name, values in stored.items() if name.startswith(_EXTRA)}
        norm, quality, uncertainty = (stored.get(name) for name in SCORES)
        return FaceOutputs(stored["embedding"], norm, quality, uncertainty, extras)


def _arrays_of(outputs: FaceOutputs) -> dict[str, NDArray[Any]]:
    scores = {name: getattr(outputs, name) for name in SCORES}
    return {
        "embedding": outputs.embedding,
        **{name: values for name, values in scores.items() if values is not None},
        **{f"{_EXTRA}{name}": values for name, values in outputs.extras.items()},
    }


def _check_outputs(arrays: Arrays, rows: int, path: Path) -> None:
    """Refuse arrays that are not complete outputs of ``rows`` images."""
    if "embedding" not in arrays:
        raise DataError(f"{path}: it has no embeddings")
    for name, values in arrays.items():
        axes = 2 if name == "embedding" else 1 if name in SCORES else max(values.ndim, 1)
        known = name == "embedding" or name in SCORES or name.startswith(_EXTRA)
        if (
            not known
            or values.dtype != np.float32
            or values.shape[:1] != (rows,)
            or values.ndim != axes
            or not np.isfinite(values).all()
        ):
            raise DataError(f"{path}: {name} does not have a finite number for each of {rows} images")
