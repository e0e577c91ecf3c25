"""Models of the catalog that are ready to use: one file each, with its description and usually with our quality.

``facerts models pull`` writes ``models/NAME.onnx`` and ``models/NAME.record.json`` below the cache folder. The name of
the model that ``facerts models use`` made the default is there, too: it is of no use without its file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from facerts.errors import ModelError, did_you_mean
from facerts.hub.catalog import RECOGNIZERS, catalog_models
from facerts.hub.registry import Name, StrictModel, read_list, shipped_models
from facerts.io.cache import ADVICE, cache_folder
from facerts.io.files import atomic_write, locked, sha256_file, writing

Hash = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class InstalledModel(StrictModel):
    """The record of a model that is ready to use.

    Attributes:
        sha256: of the ready file.
        made_from: SHA-256 of the downloaded file.
        quality: name of the model whose quality it has; empty for its own.
    """

    schema_: Literal["facerts.installed/1"] = Field(default="facerts.installed/1", alias="schema")
    name: Name
    sha256: Hash
    made_from: Hash
    quality: str = ""


def installed_file(name: Name) -> Path:
    """Where the ready file of a model is, or would be."""
    return cache_folder() / "models" / f"{name}.onnx"


def record_file(name: Name) -> Path:
    """Where its record is, or would be."""
    return installed_file(name).with_suffix(".record.json")


def installed_models() -> tuple[InstalledModel, ...]:
    """The records of all models of the catalog that are ready to use."""
    names = [model.name for model in catalog_models() if record_file(model.name).is_file()]
    return tuple(_read(name) for name in names)


def find_installed(name: Name) -> Path | None:
    """The ready file of a model, after checking its hash; None if it is not installed."""
    if not record_file(name).is_file():
        return None
    record, path = _read(name), installed_file(name)
    actual = sha256_file(path) if path.is_file() else "that of no file"
    if actual != record.sha256:
        raise ModelError(
            f"{path}: not as facerts models pull wrote it (its SHA-256 is {actual}, and was {record.sha256}); run "
            f"facerts models remove {name}, and pull it again"
        )
    return path


def write_record(record: InstalledModel) -> None:
    """Write the record of a model whose file is complete."""
    path = record_file(record.name)
    with locked(path), atomic_write(path, "w") as file:
        file.write(record.model_dump_json(by_alias=True, indent=1) + "\n")


def uninstall(name: Name) -> list[Path]:
    """Delete the ready file of a model and its record; the default model is the one that ships again, if it was it.

    Returns:
        What was deleted.
    """
    if used_model() == name:
        use_model(None)
    # Without a record, a file is not used; so the record goes first.
    found = [path for path in (record_file(name), installed_file(name)) if path.is_file()]
    for path in found:
        with writing(path):
            path.unlink()
    return found


def used_model() -> Name | None:
    """The model that ``facerts models use`` made the default; None for the one that ships."""
    path = _used_file()
    if not path.is_file():
        return None
    name = path.read_text(encoding="utf-8", errors="replace").strip()
    if name not in _names():
        raise ModelError(f"{path}: {name!r} is no model; run facerts models use NAME, or delete the file")
    return name


def use_model(name: Name | None) -> None:
    """Make a model the default of every command; None for the one that ships."""
    path = _used_file()
    if name is None:
        with writing(path):
            path.unlink(missing_ok=True)
        return
    if name not in _names():
        raise ModelError(
            f"no model {name!r}{did_you_mean(name, _names())}; facerts models list has all names"
        )
    if name not in _recognizers():
        raise ModelError(f"{name} gives no embedding, so it cannot be the default model")
    if name not in _shipped() and find_installed(name) is None:
        raise ModelError(f"the model {name} is not on this machine: run facerts models pull {name}")
    with locked(path), atomic_write(path, "w", advice=ADVICE) as file:
        file.write(f"{name}\n")


def _used_file() -> Path:
    return cache_folder() / "models" / "default"


def _shipped() -> list[Name]:
    return [model.name for model in shipped_models()]


def _recognizers() -> list[Name]:
    ours = [model.name for model in shipped_models() if model.embedding_size]
    return ours + [model.name for model in catalog_models() if model.kind in RECOGNIZERS]


def _names() -> list[Name]:
    return _shipped() + [model.name for model in catalog_models()]


def _read(name: Name) -> InstalledModel:
    record = read_list(record_file(name), InstalledModel, of="record of an installed model")
    if record.name != name:
        raise ModelError(f"{record_file(name)}: it is the record of {record.name}; pull {name} again")
    return record
