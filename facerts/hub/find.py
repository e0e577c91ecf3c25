"""Models by name or path."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError, did_you_mean
from facerts.hub.catalog import CatalogModel, catalog_models
from facerts.hub.installed import find_installed, used_model
from facerts.hub.registry import find_shipped, read_manifest, shipped_models


def find_model(model: str | Path | None = None) -> Path:
    """The path of a model given by path or name.

    Args:
        model: a path, or the name of a model that ships or was pulled; None for the default one. Anything with a suffix
            or a parent folder, or that exists on disk, is a path and returned as it is; anything else is a name.
    """
    name = used_model() if model is None else name_in(model)
    if name is None:
        return find_shipped() if model is None else Path(model)
    listed = in_catalog_or_none(name)
    if listed is None:
        return find_shipped(name)
    if listed.kind == "detector":
        raise ModelError(f"{name} is a detector; give it as --detector (detector)")
    if (path := find_installed(name)) is not None:
        return path
    what = "the default model" if model is None else "the model"
    raise ModelError(f"{what} {name} is not on this machine: run facerts models pull {name}")


def default_model() -> str | None:
    """Name of the model that is used if none is named; None if none ships and none was chosen."""
    return used_model() or read_manifest().default


def name_in(model: str | Path) -> str | None:
    """The name of a model; None if it is a path."""
    path = Path(model)
    return None if path.suffix or path.name != str(model) or path.exists() else path.name


def in_catalog_or_none(name: str) -> CatalogModel | None:
    """The model of that name in the catalog; None if it ships."""
    shipped = [model.name for model in shipped_models()]
    models = {model.name: model for model in catalog_models()}
    # Without any model that ships, the error about that says more.
    if name in shipped or (not shipped and name not in models):
        return None
    if name not in models:
        raise ModelError(
            f"no model {name!r}{did_you_mean(name, [*shipped, *models])}; available: {', '.join(shipped)}, and those "
            "of facerts models list; give a file with its suffix, such as model.onnx"
        )
    return models[name]
