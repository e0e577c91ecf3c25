"""A result folder: ``result.json`` and ``arrays.npz``, which the report and comparisons read and nothing else.

Several commands may write into one folder, as long as they evaluate the same model; each adds its section.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.evaluation.measure import Evaluation
from facerts.evaluation.result import SCHEMA, ModelIdentity, Result, parse_result
from facerts.io.files import atomic_write
from facerts.io.json_file import read_json
from facerts.io.npz import read_npz
from facerts.io.redact import redacted_command
from facerts.io.versions import installed_versions

JSON_FILE, ARRAYS_FILE = "result.json", "arrays.npz"

Arrays = dict[str, NDArray[Any]]


class Named(Protocol):
    """The evaluated model, table or league, as a result records it."""

    @property
    def name(self) -> str: ...
    @property
    def method(self) -> str: ...
    @property
    def sha256(self) -> str: ...


class ResultFolder:
    """The results of one model, in one folder, which is created by the first write."""

    def __init__(self, path: str | Path, model: Named) -> None:
        self.path = Path(path)
        self._arrays: Arrays = {}
        if (self.path / JSON_FILE).exists():
            self.content, self._arrays = load_result(self.path)
            earlier = self.content.model
            if earlier.sha256 != model.sha256:
                raise Error(
                    f"{self.path} holds results of {earlier.name} ({earlier.sha256[:8]}…), and this is {model.name} "
                    f"({model.sha256[:8]}…); choose another --out"
                )
        else:
            self.content = Result(
                schema_=SCHEMA,
                command=[],
                versions=installed_versions(),
                model=ModelIdentity(
                    name=model.name,
                    sha256=model.sha256,
                    method=model.method,
                    # Models in ONNX files have descriptions, other things do not.
                    recipe_sha256=getattr(getattr(model, "description", None), "recipe_sha256", ""),
                ),
                created=_now(),
                sections={},
            )
        self.content.command = [*self.content.command, redacted_command()]

    def add(self, kind: str, name: str, section: Evaluation, arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Add or replace a section, with its arrays under ``KIND/NAME/…``; ``write`` brings it to the disk."""
        of_kind = {**self.content.of_kind(kind), name: section}
        self.content.sections = {**self.content.sections, kind: of_kind}
        prefix = f"{kind}/{name}/"
        kept = {key: value for key, value in self._arrays.items() if not key.startswith(prefix)}
        self._arrays = {**kept, **{prefix + key: value for key, value in (arrays or {}).items()}}

    def write(self) -> None:
        """Write the folder, as it is now."""
        self.content.versions = installed_versions()
        self.content.created = _now()
        with atomic_write(self.path / ARRAYS_FILE) as file:
            np.savez_compressed(file, **self._arrays)  # type: ignore[arg-type]
        with atomic_write(self.path / JSON_FILE, "w") as text:
            json.dump(self.content.to_json(), text, indent=1, ensure_ascii=False, allow_nan=False)


def load_result(folder: str | Path) -> tuple[Result, Arrays]:
    """Read a result folder."""
    path = Path(folder) / JSON_FILE
    if not path.is_file():
        raise DataError(f"{folder}: no {JSON_FILE} here; `facerts evaluate … --out` writes one")
    content = parse_result(read_json(path), path)
    return content, read_npz(path.with_name(ARRAYS_FILE))


@contextmanager
def naming_folders(folders: Sequence[object]) -> Iterator[None]:
    """Name the result folders that a block fails on.

    What ``result.json`` says is checked when it is read. The arrays beside it are not checked against it: that one of
    them is missing, or of another length, shows where it is used.
    """
    try:
        yield
    except (Error, OSError, MemoryError):
        raise
    except Exception as error:
        raise DataError(
            f"{', '.join(map(str, folders))}: {ARRAYS_FILE} does not fit {JSON_FILE} "
            f"({type(error).__name__}: {error}); evaluate again"
        ) from error


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
