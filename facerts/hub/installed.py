"""Models of the catalog on this machine: each file as its publisher gave it, with a description beside it.

``facerts models pull`` writes ``FILE`` and ``FILE.json`` (in place of the suffix) to the cache folder; both are also
found in ``$FACERTS_MODELS``. The name of the recognizer that ``facerts models use`` made the default is in the cache
folder, too.
"""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError, did_you_mean
from facerts.hub.catalog import NOTHING_TO_DO, RECOGNIZERS, CatalogModel, catalog_models, in_catalog
from facerts.hub.fetch import candidates, downloaded_file, fetch, remove
from facerts.hub.registry import Name, shipped_models
from facerts.io.cache import ADVICE, cache_folder
from facerts.io.files import atomic_write, locked, make_folder, writing
from facerts.onnx.contract import Description
from facerts.onnx.model_pack import pack_description


def installed_file(model: CatalogModel) -> Path | None:
    """The file of a model, whose content is not checked; None if it is not on this machine with its description."""
    return next(
        (
            path
            for path in candidates(model)
            if path.is_file() and (model.kind == "detector" or _beside(path).is_file())
        ),
        None,
    )


def find_installed(name: Name) -> Path | None:
    """The file of a model of the catalog, after checking its hash; None if it is not on this machine."""
    model = in_catalog(name)
    path = installed_file(model)
    if path is not None and (wrong := model.mismatch(path)):
        raise ModelError(f"{path}: {wrong}; delete it, or run facerts models remove {name}, and pull it again")
    return path


def install(name: Name, source: str | Path | None = None, mirror: str | None = None) -> Path:
    """Get a model of the catalog as ``fetch`` does; its file stays as it is, and a description is written beside it."""
    model = _not_packaged(name)
    if source is None and (path := find_installed(name)) is not None:
        return path
    if (description := _description(model)) is not None:
        beside = _beside(downloaded_file(model))
        with writing(beside, advice=ADVICE):
            make_folder(beside.parent)
        # Before the file, which is used as soon as it is there.
        with locked(beside), atomic_write(beside, "w", advice=ADVICE) as file:
            file.write(description.model_dump_json(by_alias=True, exclude_unset=True, indent=1) + "\n")
        # A copy without a description, from elsewhere on this machine, is copied.
        elsewhere = [path for path in candidates(model)[1:] if path.is_file() and not model.mismatch(path)]
        source = source or (elsewhere[0] if elsewhere else None)
    return fetch(model, source, mirror)


def uninstall(name: Name) -> list[Path]:
    """Delete a model's file and description, and return them; the one that ships is the default again, if it was it."""
    model = _not_packaged(name)
    if used_model() == name:
        use_model(None)
    removed = remove(model)
    beside = _beside(downloaded_file(model))
    if model.kind != "detector" and beside.is_file():
        with writing(beside):
            beside.unlink()
        removed.append(beside)
    return removed


def _not_packaged(name: Name) -> CatalogModel:
    model = in_catalog(name)
    if model.packaged.is_file():
        raise ModelError(NOTHING_TO_DO.format(name))
    return model


def used_model() -> Name | None:
    """The recognizer that ``facerts models use`` made the default; None for the one that ships."""
    path = _used_file()
    if not path.is_file():
        return None
    name = path.read_text(encoding="utf-8", errors="replace").strip()
    if name not in _names():
        raise ModelError(f"{path}: {name!r} is no model; run facerts models use NAME, or delete the file")
    return name


def use_model(name: Name | None) -> None:
    """Make a recognizer the default of every command; None for the one that ships."""
    path = _used_file()
    if name is None:
        with writing(path):
            path.unlink(missing_ok=True)
        return
    if name not in _names():
        raise ModelError(f"no model {name!r}{did_you_mean(name, _names())}; facerts models list has all names")
    if name not in _recognizers():
        raise ModelError(f"{name} gives no embedding, so it cannot be the default recognizer")
    if name not in _shipped() and find_installed(name) is None:
        raise ModelError(f"the model {name} is not on this machine: run facerts models pull {name}")
    with locked(path), atomic_write(path, "w", advice=ADVICE) as file:
        file.write(f"{name}\n")


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


def _description(model: CatalogModel) -> Description | None:
    """What the catalog says of the model's input and outputs; None for detectors."""
    if model.kind == "detector":
        return None
    description = model.description or pack_description(model.embedding_size)
    source = f"{model.source}; {model.file}, SHA-256 {model.sha256}"
    return description.model_copy(update={"name": model.name, "terms": model.terms, "source": source})


def _used_file() -> Path:
    return cache_folder() / "default-recognizer"


def _shipped() -> list[Name]:
    return [model.name for model in shipped_models()]


def _recognizers() -> list[Name]:
    ours = [model.name for model in shipped_models() if model.embedding_size]
    return ours + [model.name for model in catalog_models() if model.kind in RECOGNIZERS]


def _names() -> list[Name]:
    return _shipped() + [model.name for model in catalog_models()]
