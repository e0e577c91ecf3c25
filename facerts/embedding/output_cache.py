"""A folder that keeps what embedders gave for sets of images, so that the next evaluation need not ask them again."""

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

# Part of every key: another number where the meaning of what is kept changes.
VERSION = 1
SCORES = ("norm", "quality", "uncertainty")
_EXTRA = "extra/"


class OutputCache:
    """Keeps outputs in a folder, one file for each key, which may be deleted at any time.

    Several processes may share the folder: files appear complete, under the hash of their key. A file that is damaged
    or belongs to another key is computed again, with a warning.

    Args:
        folder: the folder; created when something is kept.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def outputs(
        self, key: Mapping[str, object], rows: int, compute: Callable[[], FaceOutputs]
    ) -> FaceOutputs:
        """Outputs from the folder if it has them; otherwise computed and kept.

        Args:
            key: everything that the outputs depend on, as values that JSON can represent.
            rows: number of outputs.
            compute: computes the outputs.
        """
        text = json.dumps({"version": VERSION, "rows": rows, **key}, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()
        path = self.folder / f"{digest}.npz"
        if path.is_file():
            try:
                return _checked(read_npz(path), digest, rows, path)
            except DataError as error:
                warn(f"{error}; it is computed again")
        outputs = compute()
        try:
            with atomic_write(path) as file:
                np.savez(file, allow_pickle=False, key=np.array(digest), **_arrays(outputs))
        except Error as error:
            warn(f"{error}; the outputs are not kept for the next evaluation")
        return outputs


def _arrays(outputs: FaceOutputs) -> dict[str, NDArray[Any]]:
    scores = {name: getattr(outputs, name) for name in SCORES}
    return {
        "embedding": outputs.embedding,
        **{name: values for name, values in scores.items() if values is not None},
        **{f"{_EXTRA}{name}": values for name, values in outputs.extras.items()},
    }


def _checked(arrays: dict[str, NDArray[Any]], digest: str, rows: int, path: Path) -> FaceOutputs:
    """The outputs in a file.

    Raises:
        DataError: the file is not the one of this key, or not complete.
    """
    if str(arrays.pop("key", "")) != digest or "embedding" not in arrays:
        raise DataError(f"{path}: the content does not match the name of the file")
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
    extras = {name.removeprefix(_EXTRA): values for name, values in arrays.items() if name.startswith(_EXTRA)}
    norm, quality, uncertainty = (arrays.get(name) for name in SCORES)
    return FaceOutputs(arrays["embedding"], norm, quality, uncertainty, extras)
