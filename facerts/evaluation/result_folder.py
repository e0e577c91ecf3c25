"""A result folder: ``result.json`` and ``arrays.npz``, which the report and comparisons read and nothing else.

Several commands may write into one folder, as long as they judge the same model; each adds its section.
``docs/results-schema.md`` says what every key means.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from facerts.errors import DataError, Error
from facerts.evaluation.plain import check_result
from facerts.io.files import atomic_write
from facerts.io.json_file import read_json
from facerts.io.npz import read_npz
from facerts.io.shown import shown_command
from facerts.io.versions import installed_versions

SCHEMA = "facerts.result/1"
JSON_FILE, ARRAYS_FILE = "result.json", "arrays.npz"

Arrays = dict[str, NDArray[Any]]


class Named(Protocol):
    """What a result says of the model or table that it judges."""

    name: str
    method: str
    sha256: str


class ResultFolder:
    """The results of one model, in one folder.

    Args:
        path: of the folder; made at the first write.
        model: whose results these are.

    Raises:
        Error: the folder holds results of another model, or something that is no result.
    """

    def __init__(self, path: str | Path, model: Named) -> None:
        self.path = Path(path)
        self.content: dict[str, Any] = {
            "schema": SCHEMA,
            "command": [],
            "versions": {},
            "model": {"name": model.name, "sha256": model.sha256, "method": model.method},
        }
        self._arrays: Arrays = {}
        if (self.path / JSON_FILE).exists():
            earlier, self._arrays = load_result(self.path)
            if earlier["model"]["sha256"] != model.sha256:
                raise Error(
                    f"{self.path} holds results of {earlier['model']['name']} "
                    f"({earlier['model']['sha256'][:8]}…), and this is {model.name} ({model.sha256[:8]}…); "
                    "choose another --out"
                )
            self.content = earlier
        self.content["command"] = [*self.content["command"], shown_command()]

    def add(self, kind: str, name: str | None, section: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Add or replace a section; ``write`` brings it to the disk.

        Args:
            kind: "verification", "reject", "calibration", "identification", "ood", "ladder".
            name: of the benchmark; None for kinds that have one section.
            section: as the schema has it.
            arrays: kept under ``KIND/NAME/…``.
        """
        prefix = kind if name is None else f"{kind}/{name}"
        if name is None:
            self.content[kind] = section
        else:
            self.content.setdefault(kind, {})[name] = section
        kept = {key: value for key, value in self._arrays.items() if not key.startswith(f"{prefix}/")}
        self._arrays = {**kept, **{f"{prefix}/{key}": value for key, value in arrays.items()}}

    def write(self) -> None:
        """Write the folder, as it is now."""
        self.content["versions"] = installed_versions()
        self.content["created"] = datetime.now(timezone.utc).isoformat(timespec="seconds")
        with atomic_write(self.path / ARRAYS_FILE) as file:
            np.savez_compressed(file, **self._arrays)  # type: ignore[arg-type]
        with atomic_write(self.path / JSON_FILE, "w") as text:
            json.dump(self.content, text, indent=1, ensure_ascii=False, allow_nan=False)


def load_result(folder: str | Path) -> tuple[dict[str, Any], Arrays]:
    """What a result folder holds.

    Raises:
        DataError: no result there, or a broken one.
    """
    path = Path(folder) / JSON_FILE
    if not path.is_file():
        raise DataError(f"{folder}: no {JSON_FILE} here; `facerts evaluate … --out` writes one")
    content = read_json(path)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DataError(f"{path}: not a result of the form {SCHEMA}")
    check_result(content, path)
    return content, read_npz(path.with_name(ARRAYS_FILE))
