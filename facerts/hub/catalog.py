"""The catalog: models of others, where they come from, what they take, and what may be done with them.

``catalog.json`` lists them. A file is known by its SHA-256, and so are its terms: a repository may hold files under
other terms than its own. Only files whose hash stands in their publisher's own code or pointer have addresses.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from facerts.errors import ModelError, did_you_mean
from facerts.hub.registry import HashedFile, Name, StrictModel, Text, models_folder, read_list, shipped_models
from facerts.onnx.contract import Description

# Encrypted, so that nobody on the way can see the request or change the model.
SCHEME = "https"
CATALOG = Path(__file__).with_suffix(".json")
NOTHING_TO_DO = "{} ships with facerts; there is nothing to pull or to remove"

Kind = Literal["recognizer", "quality", "detector", "pack"]
# Recognizers among other files: what gives embeddings.
RECOGNIZERS = frozenset({"recognizer", "pack"})


class CatalogModel(HashedFile):
    """A model of others. One whose file lies in the package's folder of models ships; the rest is pulled.

    Attributes:
        kind: a pack is a .zip of several networks, one of which is a recognizer.
        urls: where it can be downloaded, in order of preference; empty if no address was found that gives this file.
        bytes: size of the file; None if only ``about_bytes`` is known.
        embedding_size: of recognizers and packs.
        description: input, outputs, and thresholds measured by us, of recognizers and qualities; packs have it by
            their own convention.
        published: accuracy in percent by benchmark, as its authors say.
        source: where these facts stand.
        measured_with: which file we ran, and how; None if we never had it.
    """

    kind: Kind
    urls: tuple[Annotated[str, StringConstraints(pattern=rf"^{SCHEME}://\S+$")], ...] = ()
    bytes: int | None = Field(default=None, ge=1)
    about_bytes: int | None = Field(default=None, ge=1)
    embedding_size: int | None = Field(default=None, ge=1)
    description: Description | None = None
    published: dict[str, float] = Field(default_factory=dict)
    source: Text
    measured_with: Text | None = None

    @model_validator(mode="after")
    def is_complete(self) -> CatalogModel:
        if (self.bytes is None) == (self.about_bytes is None):
            raise ValueError("give bytes or about_bytes")
        if (self.kind in RECOGNIZERS) != (self.embedding_size is not None):
            raise ValueError("recognizers and packs, and no others, have an embedding_size")
        if (self.kind in {"recognizer", "quality"}) != (self.description is not None):
            raise ValueError("recognizers and qualities, and no others, have a description")
        if self.measured and self.measured_with is None:
            raise ValueError("what was measured needs measured_with, the file that was run")
        return self

    @property
    def packaged(self) -> Path:
        """Where the file is if it ships."""
        return models_folder() / self.file

    @property
    def size(self) -> str:
        """Size of the file, for people."""
        return f"{self.bytes / 1e6:.1f} MB" if self.bytes else f"~{(self.about_bytes or 0) / 1e6:.0f} MB"

    @property
    def length(self) -> str:
        """Size of the file, for error messages."""
        return f"{self.bytes:,} bytes" if self.bytes else self.size.replace("~", "about ")

    @property
    def most_bytes(self) -> int:
        """Size at which reading a file that claims to be this model ends."""
        return self.bytes or 3 * (self.about_bytes or 0)


class Catalog(StrictModel):
    """The list of models of others."""

    schema_: Literal["facerts.catalog/1"] = Field(alias="schema")
    models: tuple[CatalogModel, ...]

    @model_validator(mode="after")
    def names_and_files_differ(self) -> Catalog:
        for key in ("name", "file", "sha256"):
            values = [getattr(model, key) for model in self.models]
            if len(set(values)) != len(values):
                raise ValueError(f"two models have the same {key}")
        return self


def catalog_models() -> tuple[CatalogModel, ...]:
    """All models of the catalog, whether they are on this machine or not."""
    return read_list(CATALOG, Catalog, of="catalog of models").models


def in_catalog(name: Name) -> CatalogModel:
    """A model of the catalog."""
    models = {model.name: model for model in catalog_models()}
    if name in {model.name for model in shipped_models()}:
        raise ModelError(NOTHING_TO_DO.format(name))
    if name not in models:
        raise ModelError(
            f"no model {name!r} in the catalog{did_you_mean(name, models)}; facerts models list has all names"
        )
    return models[name]
