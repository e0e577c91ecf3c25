"""A whole result, as ``result.json`` has it, and how it is read from files that anybody may have written."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from facerts.errors import DataError
from facerts.evaluation.measure import Evaluation, ResultPart

SCHEMA: Literal["facerts.result/1"] = "facerts.result/1"
# The order of reports; other kinds follow.
KINDS = ("verification", "identification", "reject", "fiqa", "ood", "corruptions")
# Far beyond any result: what a file holds must not decide how long a table or a figure takes.
MAX_DEPTH = 20
MAX_NAMES = 1000
MAX_NUMBERS = 100_000
MAX_SHOWN = 200


class ModelIdentity(ResultPart):
    """The identity of a model, of a table of embeddings, or of the recognizers and qualities of a league."""

    name: str = Field(description="Name of the model, table or league.")
    sha256: str = Field(description="SHA-256 of the file; for a league, of the hashes of all its files.")
    method: str = Field(description="Method that trained it; `unknown` for a foreign model.")
    recipe_sha256: str = Field(
        default="", description="SHA-256 of the recipe that trained it; empty where its file does not say."
    )


class Result(ResultPart):
    """The results of one model, with the commands and versions that produced them."""

    schema_: Literal["facerts.result/1"] = Field(alias="schema", description="Name and version of this format.")
    command: list[Annotated[list[str], Field(min_length=1)]] = Field(
        description="Every command that wrote to this folder, as lists of arguments; paths outside the working "
        "directory by their names alone."
    )
    versions: dict[str, str] = Field(
        description="Versions of Python, facerts, NumPy, ONNX Runtime and OpenCV at the last write."
    )
    model: ModelIdentity = Field(description="The evaluated model or table of embeddings.")
    created: str = Field(description="Time of the last write, UTC, as ISO 8601.")
    sections: dict[str, dict[str, Evaluation]] = Field(
        description="Evaluations by kind, such as `verification`, and by benchmark or source."
    )

    def of_kind(self, kind: str) -> dict[str, Evaluation]:
        """The sections of a kind, by benchmark or source."""
        return self.sections.get(kind, {})

    def each(self) -> Iterator[tuple[str, str, Evaluation]]:
        """Every section with its kind and name, in the order of reports."""
        for kind in sorted(self.sections, key=lambda kind: KINDS.index(kind) if kind in KINDS else len(KINDS)):
            for name, section in self.sections[kind].items():
                yield kind, name, section


def parse_result(content: Any, where: object) -> Result:
    """A result from what a JSON file holds."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise DataError(f"{where}: not a result in the format {SCHEMA}")
    _check_bounds(content, where, ())
    try:
        return Result.model_validate(content)
    except ValidationError as error:
        raise DataError(f"{where}: {_first_problem(error)}; evaluate again") from error


def _check_bounds(value: Any, where: object, path: tuple[object, ...]) -> None:
    """Hold nesting, lengths and finiteness of all values, known or not, against what any result has."""
    if isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"{where}: {_key(path)} is {value}, not a finite number")
    if len(path) > MAX_DEPTH:
        raise DataError(f"{where}: {_key(path)} is nested deeper than any result")
    if not isinstance(value, dict | list):
        return
    if len(value) > (MAX_NAMES if isinstance(value, dict) else MAX_NUMBERS):
        raise DataError(f"{where}: {_key(path)} has {len(value):,} entries, more than any result")
    for name, entry in value.items() if isinstance(value, dict) else enumerate(value):
        _check_bounds(entry, where, (*path, name))


def _first_problem(error: ValidationError) -> str:
    """Which key is wrong, and what about it."""
    problem = error.errors(include_url=False, include_input=False)[0]
    key = _key(problem["loc"])
    if problem["type"] == "missing":
        return f"{key} is missing"
    reason = problem["msg"].removeprefix("Value error, ")
    return f"{key}: {reason[:1].lower()}{reason[1:]}"


def _key(path: tuple[object, ...]) -> str:
    """``verification.lfw.auroc``, cut where names are endless; "the file" for all of it."""
    key = ".".join(map(str, path)) or "the file"
    return key if len(key) <= MAX_SHOWN else f"{key[:MAX_SHOWN]}…"
