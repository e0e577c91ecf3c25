"""What the service answers with, and what it may be asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from facerts.errors import did_you_mean
from facerts.onnx.contract import Description
from facerts.serve.refusal import Code, RefusedError

Box = Annotated[list[float], Field(min_length=4, max_length=4)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Points = Annotated[list[Point], Field(min_length=5, max_length=5)]
Count = Annotated[int, Field(ge=0)]


class Options(BaseModel):
    """How pictures are to be scored: parameters of the URL, or fields of the form."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    embeddings: bool = Field(False, description="Answer with the embedding of each face, too.")
    largest: bool = Field(False, description="Of several faces in a picture score the largest alone.")
    aligned: bool | None = Field(
        None,
        description="The pictures are aligned crops, in which no face is looked for. By default they are where the "
        "service has no detector.",
    )
    resize_crops: bool | None = Field(
        None,
        description="Aligned crops of another size than 112 x 112 are resized; otherwise they are an error, as they "
        "may be photos. By default as the service was started.",
    )
    keep: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Accept faces as the model's own threshold for this share does (see /v1/model).",
    )
    min_quality: float | None = Field(None, description="Accept faces at or above this quality.")

    @model_validator(mode="after")
    def has_one_threshold(self) -> Options:
        if self.keep is not None and self.min_quality is not None:
            raise ValueError("keep and min_quality both name a threshold; give one")
        return self


class Answer(BaseModel):
    """A part of an answer."""

    # Names that begin with model_ are ours to give.
    model_config = ConfigDict(protected_namespaces=(), extra="forbid")


class Face(Answer):
    """One face."""

    box: Box | None = Field(
        description="Left, top, right, bottom in pixels of the upright picture; of a crop null."
    )
    points: Points | None = Field(
        description="Eyes, nose, corners of the mouth, left to right in the picture: x and y; of a crop null."
    )
    det_score: float | None = Field(description="Of the detector, 0 to 1; of a crop null.")
    quality: float | None = Field(description="Higher is better; comparable within one model only.")
    percentile: float | None = Field(
        description="0 to 100: the share of the faces that the model was calibrated on which scored lower."
    )
    uncertainty: float | None = Field(description="The method's own number.")
    accepted: bool | None = Field(
        description="Whether it reaches the threshold; null where none was asked for."
    )
    reason: str | None = Field(description="Why it was not accepted.")
    embedding: list[float] | None = Field(description="Of unit length; null where it was not asked for.")


class Picture(Answer):
    """One picture: its faces, or why there are none to tell of."""

    name: str | None = Field(description="The file's name, as it was sent.")
    width: Count | None = Field(description="In pixels, upright; null where it could not be read.")
    height: Count | None
    found: Count = Field(description="Faces in the picture; of more than the service scores the largest are.")
    faces: list[Face] = Field(description="The largest first.")
    error: str | None = Field(description="Why it could not be scored.")


class Scores(Answer):
    """The answer of /v1/score."""

    model: str = Field(description="Its name.")
    model_sha256: str = Field(description="Of its file.")
    min_quality: float | None = Field(description="The threshold that faces were accepted by; null for none.")
    pictures: list[Picture] = Field(description="In the order in which they were sent.")


class Limits(Answer):
    """What the service takes."""

    bytes: Count = Field(description="Of a request's body.")
    pixels: Count = Field(description="Of a picture.")
    pictures: Count = Field(description="In a request.")
    faces: Count = Field(description="Of a picture that are scored.")


class Model(Answer):
    """The answer of /v1/model."""

    name: str
    sha256: str = Field(description="Of its file.")
    detector: str | None = Field(description="What finds faces in photos; null where pictures must be crops.")
    has_quality: bool = Field(description="Whether it gives faces a quality.")
    min_quality: float | None = Field(
        description="The threshold of requests that name none; null where they are not decided on."
    )
    template: Points = Field(description="The five points of an aligned crop.")
    template_size: Count = Field(description="Its width and height.")
    limits: Limits
    description: Description = Field(
        description="What the model says of itself: its thresholds of quality by the share of faces that they keep, "
        "and under calibration.matching its thresholds of similarity with the errors that they make."
    )


class Health(Answer):
    """The answer of /healthz and /readyz."""

    status: str


class Problem(Answer):
    """The answer to a request that is turned away."""

    error: str = Field(description="What was wrong, in a sentence.")
    code: Code = Field(description="The same, for programs.")
    pictures: list[Picture] | None = Field(None, description="Of each picture, where none could be scored.")


def merge_options(query: Options, named: Collection[str], fields: Mapping[str, str]) -> Options:
    """Options of the URL, and those of a form.

    Args:
        query: those of the URL.
        named: which of them it names.
        fields: the form's.

    Raises:
        RefusedError: a field is unknown, is not what it should be, or was already in the URL.
    """
    given: dict[str, Any] = {name: getattr(query, name) for name in named}
    for name in fields:
        if name not in Options.model_fields:
            raise RefusedError("invalid", f"no option {name!r}{did_you_mean(name, Options.model_fields)}")
        if name in given:
            raise RefusedError("invalid", f"the option {name!r} is in the URL and in the form; give it once")
    try:
        return Options.model_validate({**given, **fields})
    except ValidationError as error:
        raise RefusedError("invalid", in_words(error.errors())) from error


def in_words(errors: Any) -> str:
    """The problems that pydantic found, in a sentence; what was given is not repeated."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}".removeprefix(": ")
        for problem in errors
    )
