"""Models of the catalog on this machine: each file as its publisher gave it, with a description beside it.

``facerts models pull`` writes ``FILE`` and ``FILE.json`` (in place of the suffix) to the cache folder; both are also
found in ``$FACERTS_MODELS``.
"""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError
from facerts.hub.catalog import NOTHING_TO_DO, CatalogModel, in_catalog
from facerts.hub.fetch import candidates, downloaded_file, fetch, remove
from facerts.hub.registry import Name
from facerts.io.cache import ADVICE
from facerts.io.files import atomic_write, locked, writing
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
    if source is None:
        # A copy without a description, from elsewhere on this machine, is copied.
        source = next((path for path in candidates(model)[1:] if path.is_file() and not model.mismatch(path)), None)
    path = fetch(model, source, mirror)
    if (description := _description(model)) is not None:
        # After the file, so that a failed pull leaves nothing.
        with locked(beside := _beside(path)), atomic_write(beside, "w", advice=ADVICE) as file:
            file.write(description.model_dump_json(by_alias=True, exclude_unset=True, indent=1) + "\n")
    return path


def uninstall(name: Name) -> list[Path]:
    """Delete a model's file and description, and return them."""
    model = _not_packaged(name)
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


def _beside(path: Path) -> Path:
    return path.with_suffix(".json")


def _description(model: CatalogModel) -> Description | None:
    """What the catalog says of the model's input and outputs; None for detectors."""
    if model.kind == "detector":
        return None
    description = model.description or pack_description(model.embedding_size)
    source = f"{model.source}; {model.file}, SHA-256 {model.sha256}"
    return description.model_copy(update={"name": model.name, "terms": model.terms, "source": source})
