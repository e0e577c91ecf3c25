"""A whole result, as ``result.json`` has it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from facerts.evaluation.results.corruptions_result import CorruptionResult
from facerts.evaluation.results.fiqa_result import FiqaSection
from facerts.evaluation.results.identification_result import IdentificationResult
from facerts.evaluation.results.ood_result import OodResult
from facerts.evaluation.results.reject_result import RejectResult, ReliabilitySection
from facerts.evaluation.results.result_part import ResultPart
from facerts.evaluation.results.verification_result import VerificationResult

SCHEMA: Literal["facerts.result/1"] = "facerts.result/1"


class ModelIdentity(ResultPart):
    """The identity of a model, of a table of embeddings, or of the recognizers and qualities of a league."""

    name: str = Field(description="Name of the model, table or league.")
    sha256: str = Field(description="SHA-256 of the file; for a league, of the hashes of all its files.")
    method: str = Field(description="Method that trained it; `unknown` for a foreign model.")
    recipe_sha256: str = Field(
        default="", description="SHA-256 of the recipe that trained it; empty where its file does not say."
    )


class ResultHeader(ResultPart):
    """Metadata of a result."""

    schema_: Literal["facerts.result/1"] = Field(
        alias="schema", description="Name and version of this format."
    )
    command: list[Annotated[list[str], Field(min_length=1)]] = Field(
        description="Every command that wrote to this folder, as lists of arguments; paths outside the working "
        "directory by their "
        "names alone."
    )
    versions: dict[str, str] = Field(
        description="Versions of Python, facerts, NumPy, ONNX Runtime and OpenCV at the last write."
    )
    model: ModelIdentity = Field(description="The evaluated model or table of embeddings.")
    created: str = Field(description="Time of the last write, UTC, as ISO 8601.")


class Sections(ResultPart):
    """The measurements, each kind by benchmark or source."""

    verification: dict[str, VerificationResult] = Field(
        default={}, description="Verification (1:1), by benchmark."
    )
    reject: dict[str, list[RejectResult]] = Field(
        default={}, description="Error versus reject, by benchmark."
    )
    calibration: dict[str, ReliabilitySection] = Field(
        default={}, description="False non-matches by quality, by benchmark."
    )
    identification: dict[str, IdentificationResult] = Field(
        default={}, description="Identification (1:N), by benchmark."
    )
    ood: OodResult | None = Field(default=None, description="Faces against non-faces.")
    corruptions: dict[str, CorruptionResult] = Field(
        default={}, description="The corruption benchmark, by source of faces."
    )
    fiqa: dict[str, FiqaSection] = Field(
        default={}, description="Qualities on the errors of several recognizers, by set of faces."
    )


# The fields of the last base come first.
class Result(Sections, ResultHeader):
    """The results of one model, with the commands and versions that produced them."""
