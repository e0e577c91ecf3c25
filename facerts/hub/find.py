"""Models by name or path."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import ModelError, did_you_mean
from facerts.hub.catalog import CatalogModel, catalog_models
from facerts.hub.fetch import is_offline
from facerts.hub.installed import find_installed, install
from facerts.hub.registry import find_shipped, read_manifest, shipped_models


def find_model(model: str | Path | None = None) -> Path:
    """The path of a model given by path or name; None for the recognizer that ships as the default.

    Anything with a suffix or a parent folder, or that exists on disk, is a path and returned as it is; anything else is
    the name of a model that ships or was pulled.
    """
    if model is None:
        return find_shipped()
    if (name := name_in(model)) is None:
        return Path(model)
    listed = in_catalog_or_none(name)
    if listed is None:
        return find_shipped(name)
    if listed.kind == "detector":
        raise ModelError(f"{name} is a detector; give it as detector")
    if (path := find_installed(name)) is not None:
        return path
    raise ModelError(f"the model {name} is not on this machine: run facerts models pull {name}")


def find_or_pull(model: str | Path | None = None) -> Path:
    """As ``find_model``, but a model of the catalog that is not on this machine is pulled now, if that is allowed."""
    name = None if model is None else name_in(model)
    entry = None if name is None else in_catalog_or_none(name)
    if entry is None or entry.kind == "detector" or is_offline():
        return find_model(model)
    return install(entry.name)


def check_name(model: str | Path) -> None:
    """Check that there is a model of this name in the lists, or such a file."""
    if (name := name_in(model)) is not None:
        in_catalog_or_none(name)
    elif not Path(model).exists():
        raise ModelError(f"{model}: no such model file")


def is_quality(model: str | Path) -> bool:
    """Whether a name is that of a quality that ships, which has no embedding."""
    name = name_in(model)
    return any(one.name == name and not one.embedding_size for one in shipped_models())


def default_model() -> str | None:
    """Name of the recognizer that is used if none is named; None if none ships."""
    return read_manifest().default


def default_quality() -> str | None:
    """Name of the quality that is used if none is named; None if none ships."""
    manifest = read_manifest()
    return manifest.quality or manifest.default


def name_in(model: str | Path) -> str | None:
    """The name of a model; None if it is a path."""
    path = Path(model)
    named = not (path.suffix or path.name != str(model) or path.exists())
    return path.name.replace("_", "-") if named else None


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
