"""Lists of models as JSON, and the models shipped with facerts.

``models/`` (installed as ``facerts.models``) contains their files, a model card for each, and a manifest with the
SHA-256 of every file, which is checked each time a model is requested by name.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from facerts.errors import ModelError, did_you_mean, problems_text
from facerts.io.files import read_file, sha256_file

MANIFEST = "manifest.json"
SCHEMA: Literal["facerts.models/1"] = "facerts.models/1"

# A name cannot be mistaken for a path: no dots, no slashes.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(pattern=r"^\S[^\n]*$")]

List = TypeVar("List", bound=BaseModel)


class StrictModel(BaseModel):
    """Base class of a list and its entries: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HashedFile(StrictModel):
    """A model in a list, by its file: an .onnx file, or a .zip of several.

    Attributes:
        commercial: whether the weights may be used commercially; "disputed" where their publisher's license says so,
            and that of the training data or of the original weights does not.
        measured: what we measured: accuracies and TAR as shares, by benchmark, and the "time" of a crop, of
            mobilefacenet's in the same run.
    """

    name: Name
    file: Annotated[str, StringConstraints(pattern=r"^[\w-][\w.-]*\.(onnx|zip)$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    summary: Text
    terms: Text
    commercial: Literal["yes", "no", "disputed"]
    measured: dict[str, float] = Field(default_factory=dict)

    def mismatch(self, path: Path) -> str:
        """How a file differs from the listed one; an empty string if it is the same."""
        return self.hash_mismatch(sha256_file(path))

    def hash_mismatch(self, actual: str) -> str:
        """As ``mismatch``, for a SHA-256 that was already computed."""
        if actual == self.sha256:
            return ""
        return f"its SHA-256 is {actual}, but that of {self.name} is {self.sha256}"


def read_list(path: Path, kind: type[List], *, of: str) -> List:
    """Read a list of models."""
    try:
        return kind.model_validate_json(read_file(path))
    except OSError as error:
        raise ModelError(f"{path}: no {of} ({error.strerror}); reinstall facerts") from error
    except ValidationError as error:
        raise ModelError(f"{path}: {problems_text(error.errors())}") from error


class ShippedModel(HashedFile):
    """A shipped model; its file lies beside the manifest, and its name is that of its description.

    Attributes:
        card: model card, a Markdown file beside the manifest: training data, results, limitations.
        embedding_size: 0 for a quality alone.
    """

    bytes: int = Field(ge=1)
    embedding_size: int = Field(ge=0)
    method: Text
    card: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.md$")]


class Manifest(StrictModel):
    """The list of shipped models.

    Attributes:
        default: name of the recognizer to use if none is named; None if there are no models.
        quality: name of the quality to use if none is named; None for that of the recognizer.
    """

    schema_: Literal["facerts.models/1"] = Field(default=SCHEMA, alias="schema")
    default: Name | None = None
    quality: Name | None = None
    models: tuple[ShippedModel, ...] = ()

    @model_validator(mode="after")
    def is_consistent(self) -> Manifest:
        names: list[str | None] = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise ValueError("two models have the same name")
        if self.default not in (names or [None]):
            raise ValueError("default must be the name of one of the models, or null if there are none")
        if self.quality not in (None, *names):
            raise ValueError("quality must be the name of one of the models, or null")
        return self


def models_folder() -> Path:
    """The folder with the manifest and the models."""
    try:
        return Path(str(resources.files("facerts.models")))
    except ModuleNotFoundError as error:
        raise ModelError(
            "this installation of facerts lacks its package facerts.models; reinstall facerts (an editable "
            "installation with pip install -e .), or give the .onnx file of a model"
        ) from error


def read_manifest(folder: Path | None = None) -> Manifest:
    """Read the manifest of a folder of models, by default of the installed one."""
    path = (folder or models_folder()) / MANIFEST
    return read_list(path, Manifest, of="manifest of the shipped models")


def shipped_models() -> tuple[ShippedModel, ...]:
    """The shipped models according to the manifest; their files are not checked."""
    return read_manifest().models


def find_shipped(name: str | None = None) -> Path:
    """The file of a shipped model, after checking its hash."""
    manifest = read_manifest()
    names = [model.name for model in manifest.models]
    if not names:
        problem = "no model is shipped" if name is None else f"no model {name!r}, since none is shipped"
        raise ModelError(
            f"{problem} with this copy of facerts; give the path of an .onnx file, such as one from facerts export"
        )
    wanted = name or manifest.default
    if wanted not in names:
        raise ModelError(
            f"no model {wanted!r}{did_you_mean(str(wanted), names)}; available: {', '.join(names)}; "
            "give a file with its suffix, such as model.onnx"
        )
    return intact_file(manifest.models[names.index(wanted)])


def intact_file(model: ShippedModel) -> Path:
    """The file of a shipped model, after checking its hash."""
    path = models_folder() / model.file
    if not path.is_file():
        raise ModelError(
            f"{path}: the model {model.name} is missing, though the manifest lists it; reinstall facerts, or fetch "
            "the files missing from the copy of its sources"
        )
    if wrong := model.mismatch(path):
        raise ModelError(f"{path}: not the shipped {model.name}: {wrong}; reinstall facerts")
    return path
