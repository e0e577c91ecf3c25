"""The models that ship with facerts: which there are, where they lie, and whether they are what they were.

``models/`` (installed as ``facerts.models``) holds their files, a card for each, and a manifest with the SHA-256 of
every file, which is held against the file each time that a model is asked for by its name.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from facerts.errors import ModelError, did_you_mean
from facerts.hub.listing import ListedModel, Name, StrictModel, Text, read_list

MANIFEST = "manifest.json"
SCHEMA: Literal["facerts.models/1"] = "facerts.models/1"


class ShippedModel(ListedModel):
    """One model; its name is also what its description says, and its file lies beside the manifest.

    Attributes:
        embedding_size: d.
        method: that trained it.
        card: a Markdown file beside the manifest: data, numbers, limits.
    """

    embedding_size: int = Field(ge=1)
    method: Text
    card: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.md$")]


class Manifest(StrictModel):
    """All of them.

    Attributes:
        schema_: the form of the manifest.
        default: name of the model that is used where none is named; None where there are no models.
        models: in the order in which they are listed.
    """

    schema_: Literal["facerts.models/1"] = Field(default=SCHEMA, alias="schema")
    default: Name | None = None
    models: tuple[ShippedModel, ...] = ()

    @model_validator(mode="after")
    def agrees_with_itself(self) -> Manifest:
        names: list[str | None] = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError("two models have the same name")
        if self.default not in (names or [None]):
            raise ValueError("default must be the name of one of the models, or null where there are none")
        return self


def models_folder() -> Path:
    """Where the manifest and the files lie.

    Raises:
        ModelError: the installation has no such folder.
    """
    try:
        return Path(str(resources.files("facerts.models")))
    except ModuleNotFoundError as error:
        raise ModelError(
            "this installation of facerts is without its package facerts.models; install it again (an editable one "
            "with pip install -e .), or name the .onnx file of a model"
        ) from error


def read_manifest(folder: Path | None = None) -> Manifest:
    """The manifest of a folder of models, of the one that is installed by default.

    Raises:
        ModelError: there is none, or it is broken.
    """
    path = (folder or models_folder()) / MANIFEST
    return read_list(path, Manifest, of="manifest of the models that ship")


def shipped_models() -> tuple[ShippedModel, ...]:
    """What ships, as the manifest has it; the files are not looked at."""
    return read_manifest().models


def find_shipped(name: str | None = None) -> Path:
    """The file of a shipped model, after its hash was checked.

    Args:
        name: of the model; None for the default one.

    Raises:
        ModelError: nothing ships, or nothing of that name; the file is missing or not the one that shipped.
    """
    manifest = read_manifest()
    names = [model.name for model in manifest.models]
    if not names:
        asked = "no model ships" if name is None else f"no model {name!r}, as none ships"
        raise ModelError(
            f"{asked} with this copy of facerts; give the path of an .onnx file, such as facerts export writes"
        )
    wanted = name or manifest.default
    if wanted not in names:
        raise ModelError(
            f"no model {wanted!r}{did_you_mean(str(wanted), names)}; there are {', '.join(names)}; "
            "a file is named with its suffix, such as model.onnx"
        )
    return intact_file(manifest.models[names.index(wanted)])


def find_model(model: str | Path | None = None) -> Path:
    """The path of a model that is named as users name them.

    Args:
        model: a path, or the name of a shipped model; None for the default one. What has a suffix or a folder before
            it, or exists on the disk, is a path, and is given back as it is; everything else is a name.

    Raises:
        ModelError: as ``find_shipped``.
    """
    if model is None:
        return find_shipped()
    path = Path(model)
    if path.suffix or path.name != str(model) or path.exists():
        return path
    return find_shipped(path.name)


def intact_file(model: ShippedModel) -> Path:
    """The file of a shipped model, after its hash was checked.

    Raises:
        ModelError: it is missing, or not the one that shipped.
    """
    path = models_folder() / model.file
    if not path.is_file():
        raise ModelError(
            f"{path}: the model {model.name} is not there, though the manifest lists it; install facerts again, or "
            "fetch the files that a copy of its sources left out"
        )
    if wrong := model.mismatch(path):
        raise ModelError(f"{path}: not the {model.name} that shipped: {wrong}; install facerts again")
    return path
