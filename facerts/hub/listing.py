"""Lists of models as JSON: what each file is, on which terms it may be used, and its SHA-256."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from facerts.errors import ModelError
from facerts.io.files import sha256_file

# Neither could be taken for a path: no dots, no slashes.
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
Text = Annotated[str, StringConstraints(pattern=r"^\S[^\n]*$")]

List = TypeVar("List", bound=BaseModel)


class StrictModel(BaseModel):
    """A part of a list: no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ListedModel(StrictModel):
    """One model.

    Attributes:
        name: that it is asked for by.
        file: its .onnx file.
        sha256: of the file.
        bytes: of the file.
        summary: what it is for, in a line.
        terms: on which it may be used.
    """

    name: Name
    file: Annotated[str, StringConstraints(pattern=r"^[\w.-]+\.onnx$")]
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bytes: int = Field(ge=1)
    summary: Text
    terms: Text

    def mismatch(self, path: Path) -> str:
        """What tells a file from the one that is listed; nothing where it is that one."""
        return self.hash_mismatch(sha256_file(path))

    def hash_mismatch(self, found: str) -> str:
        """The same, of the SHA-256 that was found."""
        return (
            ""
            if found == self.sha256
            else f"its SHA-256 is {found}, and that of {self.name} is {self.sha256}"
        )


def read_list(path: Path, kind: type[List], *, of: str) -> List:
    """A list of models.

    Args:
        path: the JSON file.
        kind: what is in it.
        of: names it in errors.

    Raises:
        ModelError: there is none, or it is broken.
    """
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ModelError(f"{path}: no {of} ({error.strerror}); install facerts again") from error
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ")
            for problem in error.errors()
        )
        raise ModelError(f"{path}: {problems}") from error
