"""Lists of models as JSON: name, file, SHA-256 and terms of use of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from facerts.errors import ModelError, problems_text
from facerts.io.files import sha256_file

# A name cannot be mistaken for a path: no dots, no slashes.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(pattern=r"^\S[^\n]*$")]

List = TypeVar("List", bound=BaseModel)


class StrictModel(BaseModel):
    """Base class of a list and its entries: unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListedModel(StrictModel):
    """A model in a list."""

    name: Name
    file: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.onnx$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bytes: int = Field(ge=1)
    summary: Text
    terms: Text

    def mismatch(self, path: Path) -> str:
        """How a file differs from the listed one; an empty string if it is the same."""
        return self.hash_mismatch(sha256_file(path))

    def hash_mismatch(self, actual: str) -> str:
        """As ``mismatch``, for a SHA-256 that was already computed."""
        if actual == self.sha256:
            return ""
        return f"its SHA-256 is {actual}, but that of {self.name} is {self.sha256}"


def read_list(path: Path, kind: type[List], *, of: str) -> List:
    """Read a list of models.

    Raises:
        ModelError: the file is missing or broken.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: no {of} ({error.strerror}); reinstall facerts") from error
    except ValidationError as error:
        raise ModelError(f"{path}: {problems_text(error.errors())}") from error
