"""What the API takes and returns; descriptions are the docstrings of fields, or of the dataclasses they come from."""

from __future__ import annotations

import base64
import dataclasses
import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict, get_type_hints

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator

from facerts.galleries import Decision as SearchDecision
from facerts.galleries import GallerySummary
from facerts.images import encode_png
from facerts.onnx.contract import Description
from facerts.scoring import Row, Track, Verification
from facerts.scoring.reasons import REASONS
from facerts.scoring.verify import Decision
from facerts.serving.settings import MIN_FPIR

if TYPE_CHECKING:
    from typing_extensions import Self

FORM_TYPE = "multipart/form-data"
# The codes of errors, with their status.
STATUS = {
    "bad_request": 400,
    "unauthorized": 401,
    "foreign_origin": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "too_slow": 408,
    "too_large": 413,
    "unsupported_type": 415,
    "wrong_host": 421,
    "invalid": 422,
    "unusable_images": 422,
    "unusable_video": 422,
    "headers_too_large": 431,
    "internal": 500,
    "busy": 503,
    "timeout": 504,
}
JsonSchema = dict[str, Any]
Count = Annotated[int, Field(ge=0)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
# The dataclasses have numbers in a row, or arrays.
Box = Annotated[list[float], Field(min_length=4, max_length=4), BeforeValidator(lambda box: np.ravel(box).tolist())]
Points = Annotated[
    list[Point],
    Field(min_length=5, max_length=5),
    BeforeValidator(lambda points: np.reshape(points, (-1, 2)).tolist()),
]
# Only the digits that float32 has.
Embedding = Annotated[list[float], BeforeValidator(lambda values: [float(str(value)) for value in values])]
Png = Annotated[str, BeforeValidator(lambda crop: base64.b64encode(encode_png(crop)).decode("ascii"))]
Reason = Annotated[str, Field(json_schema_extra={"enum": list(REASONS)})]
FACE_DECISIONS = [SearchDecision.MATCH, SearchDecision.UNKNOWN, SearchDecision.TOO_POOR]
FaceDecision = Annotated[str, Field(json_schema_extra={"enum": [one.value for one in FACE_DECISIONS]})]
# Of columns whose shape the hints of the row do not say.
SHAPES: dict[str, object] = {"box": Box | None, "points": Points | None, "reasons": list[Reason]}
# Columns that stand beside the faces of an image, or number them.
NOT_OF_A_FACE = ("path", "face", "smaller_faces", "error", "model_sha256")
MAX_CANDIDATES = 10
MAX_SHOTS = 10


class ThresholdOptions(BaseModel):
    """Which faces are accepted; options are parameters of the URL, fields of a form, or keys of a JSON object."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    keep: float | None = Field(None, gt=0, le=1)
    """Accept faces above the threshold that keeps this share of the model's calibration faces; what is not a face is
    rejected."""
    min_quality: float | None = None
    """Accept faces with at least this quality."""

    @model_validator(mode="after")
    def has_one_threshold_of_each_kind(self) -> Self:
        for one, other, kind in (("keep", "min_quality", "a"), ("fmr", "threshold", "the match")):
            if getattr(self, one, None) is not None and getattr(self, other, None) is not None:
                raise ValueError(f"{one} and {other} both set {kind} threshold; give only one")
        return self


class CommonOptions(ThresholdOptions):
    """How the images of any request are treated."""

    aligned: bool | None = None
    """Treat the images as aligned crops and skip the detector. Default: only where the service has no detector."""


class Options(CommonOptions):
    """How images are scored."""

    embeddings: bool = False
    """Also return the embedding of each face."""
    largest: bool = False
    """Score only the largest face of each image."""


class VerifyOptions(CommonOptions):
    """How two images are compared; ``keep`` and ``min_quality`` limit the faces that are."""

    embeddings: ClassVar[bool] = False
    largest: ClassVar[bool] = True

    fmr: float | None = Field(None, gt=0, lt=1)
    """False match rate: the share of the pairs of different people that may be taken for one person; one of those that
    the model was calibrated for (see /v1/model). Default: as the service was started."""
    threshold: float | None = Field(None, ge=-1, le=1)
    """Instead, the cosine similarity at or above which two faces match; its error rates are not known."""


class GalleryOptions(ThresholdOptions):
    """How faces are searched for in the gallery."""

    fpir: float | None = Field(None, ge=MIN_FPIR, lt=1)
    """False positive identification rate: the share of searches for people who are not in the gallery that may find
    somebody. Default: as the service was started."""
    k: int = Field(1, ge=1, le=MAX_CANDIDATES)
    """Number of candidates of each face, or of each track of a video."""


class SearchOptions(Options, GalleryOptions):
    """How images are scored and searched for; faces below ``keep`` or ``min_quality`` are too poor."""


class VideoOptions(GalleryOptions):
    """How a clip is looked at; faces below ``keep`` or ``min_quality``, by default 0.99, are poor."""

    fps: float = Field(5.0, ge=0.1, le=30)
    """Frames per second that are looked at."""
    best: int = Field(3, ge=1, le=MAX_SHOTS)
    """Maximum number of best shots of a track."""
    min_faces: int = Field(2, ge=1, le=100)
    """Leave out tracks with fewer faces, which are mostly errors of the detector."""
    crops: bool = False
    """Also return the aligned crops of the best shots."""
    embeddings: bool = False
    """Also return the template of each track."""


class Schema(BaseModel):
    """A response, or a part of one."""

    # Fields may begin with model_.
    model_config = ConfigDict(protected_namespaces=(), extra="forbid", use_attribute_docstrings=True)

    @classmethod
    def of(cls, source: object, **more: Any) -> Self:
        """With the attributes of an object, but those that are given."""
        return cls(**{name: getattr(source, name) for name in cls.model_fields.keys() - more} | more)


def fields_of(source: type, *without: str, **types: Any) -> type[Schema]:
    """A schema with the fields of a dataclass, and the descriptions of its docstring.

    Args:
        without: fields that the responses do not have.
        types: of fields, where they are not those of the dataclass.
    """
    hints, texts = get_type_hints(source) | SHAPES | types, attribute_texts(source)
    described: Mapping[str, Any] = {
        field.name: (hints[field.name], Field(description=texts.get(field.name)))
        for field in dataclasses.fields(source)
        if field.name not in without
    }
    return create_model(source.__name__, __base__=Schema, **described)


def attribute_texts(source: type) -> dict[str, str]:
    """The descriptions of a class's attributes, as sentences on JSON, from its docstring and those of its bases."""
    found = {}
    for kind in reversed(source.__mro__):
        section = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")[2]
        for name, text in re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section, re.MULTILINE):
            text = " ".join(text.split()).replace("None", "null")
            found[name] = text[:1].upper() + text[1:]
    return found


class FaceResult(fields_of(Row, *NOT_OF_A_FACE), Schema):  # type: ignore[misc]
    """A face."""

    embedding: Embedding | None
    """Unit length; null unless requested."""


class Found(TypedDict):
    """Whom the gallery has for a face, see ``FaceMatch``."""

    decision: str | None
    candidates: list[Candidate]


class Candidate(Schema):
    """A person in the gallery who is like a face."""

    person: str
    """The person's name in the gallery."""
    cosine: float
    """Cosine similarity of the face and the person's template."""


class FaceMatch(FaceResult):
    """A face, and who it is."""

    decision: FaceDecision
    """match: the first candidate reaches the threshold; unknown: nobody does; too poor to say: the face's quality is
    below the minimum, or it is not a face."""
    candidates: list[Candidate]
    """The most similar people, best first, whatever the decision; none for a face too poor."""


class ImageResult(Schema):
    """An image: its faces, or the error that kept it from being scored."""

    name: str | None
    """The name of the file, as it was sent."""
    width: Count | None
    """Width of the upright image in pixels; null if it could not be read."""
    height: Count | None
    """Height of the upright image in pixels; null if it could not be read."""
    found: Count
    """Number of faces found, including those below the minimum size or beyond the maximum that is scored."""
    error: str | None
    """Why the image could not be scored."""
    faces: Sequence[FaceResult]
    """Largest first."""


class ImageMatches(ImageResult):
    """An image: its faces and who they are, or the error that kept it from being scored."""

    faces: Sequence[FaceMatch]
    """Largest first."""


class Answer(Schema):
    """What every answer says of the model."""

    model: str
    """Name of the model."""
    model_sha256: str
    """SHA-256 of the model file."""
    min_quality: float | None
    """Faces below this quality are rejected, not compared, too poor to search for, or poor; null if quality does not
    matter."""


class Scores(Answer):
    """The response of /v1/score."""

    images: list[ImageResult]
    """One result for each image, in the order they were sent."""


_Verification = fields_of(
    Verification,
    *("first", "second", "error", "first_quality", "second_quality", "min_quality", "model_sha256"),
    *("first_percentile", "second_percentile", "first_faces", "second_faces"),
    decision=Decision,
    similarity=float,
    threshold=float,
)


class PairVerification(_Verification, Answer):  # type: ignore[misc, valid-type]
    """The response of /v1/verify."""

    images: list[ImageResult]
    """The two images, each with the face that was compared, its largest."""


class Matches(Answer):
    """The response of /v1/search."""

    fpir: float
    """The false positive identification rate that was asked for."""
    threshold: float
    """The cosine at or above which a face matches a person at that rate, by the gallery itself."""
    images: list[ImageMatches]
    """One result for each image, in the order they were sent."""


class ShotResult(fields_of(Row, *NOT_OF_A_FACE, "accepted"), Schema):  # type: ignore[misc]
    """One of the best faces of a track."""

    time: float
    """When it was seen, in seconds since the clip began."""
    crop: Png | None
    """The aligned crop, 112 x 112, as PNG in base64; null unless requested."""


_Track = fields_of(Track, "path", "number", "parts", "template", "model_sha256", best=list[ShotResult])


class TrackResult(_Track, Schema):  # type: ignore[misc, valid-type]
    """A person in a clip."""

    track: int
    """Number of the track, from 1."""
    template: Embedding | None
    """The embeddings' mean, weighted by their quality's percentiles, of unit length; null unless requested."""
    decision: FaceDecision | None
    """As in /v1/search; null if the service has no gallery."""
    candidates: list[Candidate]
    """The most similar people in the gallery, best first, whatever the decision; none for a track that is too poor."""


class VideoResult(Answer):
    """The response of /v1/video."""

    fpir: float | None
    """The false positive identification rate of the search; null if the service has no gallery."""
    threshold: float | None
    """The cosine at or above which a template matches a person at that rate."""
    name: str | None
    """The name of the file, as it was sent."""
    seconds: float | None
    """Duration of the clip, as it says itself."""
    read_until: float | None
    """Time of the last frame that was decoded, in seconds."""
    frames: Count
    """Number of frames that were looked at."""
    left_out: Count
    """Number of tracks with too few faces."""
    tracks: list[TrackResult]
    """In the order in which they begin."""
    error: str | None
    """Why the clip could not be read to its end; null if it was."""


class RequestLimits(Schema):
    """The limits of a request."""

    bytes: Count
    """Maximum size of a request body, in bytes."""
    pixels: Count
    """Maximum number of pixels of an image."""
    images: Count
    """Maximum number of images per request."""
    faces: Count
    """Maximum number of faces scored per image."""
    seconds: float | None
    """Maximum duration of a clip, in seconds; null if the service takes none."""


class GalleryInfo(fields_of(GallerySummary, "model", "model_sha256", "size"), Schema):  # type: ignore[misc]
    """The gallery of the service, without names."""

    fpir: float
    """The false positive identification rate for requests to /v1/search that set none."""
    threshold: float
    """The cosine at or above which a face matches a person at that rate."""
    min_quality: float | None
    """The threshold of quality for requests to /v1/search that set none; null if quality does not matter."""


class ModelPartInfo(Schema):
    """A model."""

    name: str
    """Name of the model."""
    sha256: str
    """SHA-256 of the model file."""
    description: Description
    """The model's own description: of a quality, thresholds by the share of good faces that they keep, and, in
    calibration, percentiles; of a recognizer, similarity thresholds with their error rates in calibration.matching."""


class ModelInfo(Schema):
    """The response of /v1/model."""

    quality: ModelPartInfo | None
    """What says how good a face is; null if nothing does."""
    recognizer: ModelPartInfo
    """What compares faces; often the same model."""
    detector: str | None
    """The face detector; auto if images of 112 x 112 are aligned crops and all others photos; null if images must be
    aligned crops."""
    min_quality: float | None
    """The threshold for requests that set none; null if their faces are neither accepted nor rejected."""
    fmr: float | None
    """The false match rate for requests to /v1/verify that set none; null if the model has no match thresholds."""
    gallery: GalleryInfo | None
    """What /v1/search searches in; null if the service has no gallery."""
    template: Points
    """The five points of an aligned crop."""
    template_size: Count
    """Width and height of an aligned crop, in pixels."""
    limits: RequestLimits
    """What a request may bring at most."""
    columns: list[str]
    """The columns of the tables that facerts score writes; the fields of a face are among them."""


class Health(Schema):
    """The response of /healthz and /readyz."""

    status: str
    """ok or ready."""


class Problem(Schema):
    """The response to a request that failed."""

    error: str
    """The reason, in a sentence."""
    code: Annotated[str, Field(json_schema_extra={"enum": list(STATUS)})]
    """The reason, for programs."""
    images: list[ImageResult] | None = None
    """One result for each image, if none could be scored, or one of two not compared."""


def body_schema(options: type[ThresholdOptions], noun: str, minimum: int, maximum: int) -> JsonSchema:
    """The body of a request in the OpenAPI schema: a form, JSON, or one image or video alone."""
    file: JsonSchema = {"type": "string", "format": "binary"}
    one = {
        "type": "string",
        "contentEncoding": "base64",
        "description": f"One {noun} in base64, or as a data URL.",
    }
    several = {"type": "array", "minItems": minimum, "maxItems": maximum}
    files = {**several, "items": file, "description": "Files, under this or any other name."}
    texts = {**several, "items": one, "description": f"Each {noun} in base64, or as a data URL."}
    fields = {name: _non_null(schema) for name, schema in options.model_json_schema()["properties"].items()}
    form = {"type": "object", "properties": {noun: files, **fields}}
    keys = {noun: one, f"{noun}s": texts, **fields}
    if minimum > 1:
        del keys[noun]
    content = {
        FORM_TYPE: {"schema": form},
        "application/json": {"schema": {"type": "object", "properties": keys, "additionalProperties": False}},
    }
    if minimum == 1:
        content["application/octet-stream"] = {"schema": file}
    return {"required": True, "content": content}


def _non_null(schema: JsonSchema) -> JsonSchema:
    """The schema of an option in a body, which may be missing, but not null."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return rest | next((kind for kind in schema.get("anyOf", ()) if kind["type"] != "null"), {})
