"""What the API takes and returns."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from facerts.galleries import Decision as SearchDecision
from facerts.onnx.contract import Description
from facerts.scoring.reasons import REASONS
from facerts.scoring.verify import Decision
from facerts.serving.settings import MIN_FPIR

# The form's field for images, and the types of a body that is one image; its first bytes say what it really is.
IMAGES_FIELD = "images"
FORM_TYPE = "multipart/form-data"
FILE = {"type": "string", "format": "binary"}
# Likewise of a video.
VIDEO_FIELD = "video"
VIDEO_TYPES = (
    *("video/mp4", "video/quicktime", "video/x-matroska", "video/matroska", "video/webm", "video/x-msvideo"),
    *("video/mpeg", "video/mp2t", "video/ogg", "application/octet-stream"),
)
IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", "image/bmp", "application/octet-stream")

Box = Annotated[list[float], Field(min_length=4, max_length=4)]
Point = Annotated[list[float], Field(min_length=2, max_length=2)]
Points = Annotated[list[Point], Field(min_length=5, max_length=5)]
Count = Annotated[int, Field(ge=0)]
Code = Literal[
    "bad_request",
    "unauthorized",
    "foreign_origin",
    "not_found",
    "method_not_allowed",
    "too_slow",
    "too_large",
    "headers_too_large",
    "unsupported_type",
    "wrong_host",
    "invalid",
    "unusable_images",
    "unusable_video",
    "internal",
    "busy",
    "timeout",
]
FACE_DECISIONS = [
    decision.value for decision in (SearchDecision.MATCH, SearchDecision.UNKNOWN, SearchDecision.TOO_POOR)
]
MAX_CANDIDATES = 10
MAX_SHOTS = 10
Reason = Annotated[str, Field(json_schema_extra={"enum": list(REASONS)})]


class ThresholdOptions(BaseModel):
    """Which faces are accepted: parameters of the URL, or fields of the form."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    keep: float | None = Field(
        None,
        gt=0,
        le=1,
        description="Accept faces above the threshold that keeps this share of the model's calibration faces; what is "
        "not a face is rejected.",
    )
    min_quality: float | None = Field(None, description="Accept faces with at least this quality.")

    @model_validator(mode="after")
    def has_one_threshold(self) -> ThresholdOptions:
        if self.keep is not None and self.min_quality is not None:
            raise ValueError("keep and min_quality both set a threshold; give only one")
        return self


class CommonOptions(ThresholdOptions):
    """How the images of any request are treated: parameters of the URL, or fields of the form."""

    aligned: bool | None = Field(
        None,
        description="Treat the images as aligned crops and skip the detector. Default: only where the service has no "
        "detector.",
    )
    resize_crops: bool | None = Field(
        None,
        description="Resize aligned crops that are not 112 x 112; otherwise they are an error, because they may be "
        "photos. Default: as the service was started.",
    )


class Options(CommonOptions):
    """How images are scored."""

    embeddings: bool = Field(False, description="Also return the embedding of each face.")
    largest: bool = Field(False, description="Score only the largest face of each image.")


class VerifyOptions(CommonOptions):
    """How two images are compared; ``keep`` and ``min_quality`` limit the faces that are."""

    fmr: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="False match rate: the share of the pairs of different people that may be taken for one person; "
        "one of those that the model was calibrated for (see /v1/model). Default: as the service was started.",
    )
    threshold: float | None = Field(
        None,
        ge=-1,
        le=1,
        description="Instead, the cosine similarity at or above which two faces match; its error rates are not known.",
    )

    @model_validator(mode="after")
    def has_one_match_threshold(self) -> VerifyOptions:
        if self.fmr is not None and self.threshold is not None:
            raise ValueError("fmr and threshold both set the match threshold; give only one")
        return self


class SearchOptions(Options):
    """How faces are searched for in the gallery; those below ``keep`` or ``min_quality`` are too poor."""

    fpir: float | None = Field(
        None,
        ge=MIN_FPIR,
        lt=1,
        description="False positive identification rate: the share of searches for people who are not in the gallery "
        "that may find somebody. Default: as the service was started.",
    )
    k: int = Field(1, ge=1, le=MAX_CANDIDATES, description="Number of candidates of each face.")


class VideoOptions(ThresholdOptions):
    """How a clip is looked at; faces below ``keep`` or ``min_quality``, by default 0.99, are poor."""

    fps: float = Field(5.0, ge=0.1, le=30, description="Frames per second that are looked at.")
    best: int = Field(3, ge=1, le=MAX_SHOTS, description="Maximum number of best shots of a track.")
    min_faces: int = Field(
        2,
        ge=1,
        le=100,
        description="Leave out tracks with fewer faces, which are mostly errors of the detector.",
    )
    crops: bool = Field(False, description="Also return the aligned crops of the best shots.")
    embeddings: bool = Field(False, description="Also return the template of each track.")
    fpir: float | None = Field(
        None,
        ge=MIN_FPIR,
        lt=1,
        description="False positive identification rate of the search in the gallery. Default: as the service was "
        "started.",
    )
    k: int = Field(1, ge=1, le=MAX_CANDIDATES, description="Number of candidates of each track.")


class Schema(BaseModel):
    """A response, or a part of one."""

    # Fields may begin with model_.
    model_config = ConfigDict(protected_namespaces=(), extra="forbid")


class FaceResult(Schema):
    """A face."""

    box: Box | None = Field(
        description="Left, top, right and bottom in pixels of the upright image; null for an aligned crop."
    )
    points: Points | None = Field(
        description="x and y of the eyes, the nose and the corners of the mouth, from left to right in the image; "
        "null for an aligned crop."
    )
    det_score: float | None = Field(description="The detector's score, 0 to 1; null for an aligned crop.")
    percentile: float | None = Field(
        description="The quality from 0 to 100: the percentage of the faces in the model's calibration set that scored "
        "lower."
    )
    quality: float | None = Field(description="Higher is better; comparable only within one model.")
    uncertainty: float | None = Field(description="The uncertainty as the model's method defines it.")
    accepted: bool | None = Field(
        description="Whether the quality reaches the threshold, and the face is one; null without a threshold."
    )
    reasons: list[Reason] = Field(
        description="What makes the face poor, most important first, and why it was rejected: not_a_face or "
        "below_threshold."
    )
    embedding: list[float] | None = Field(description="Unit length; null unless requested.")


class Candidate(Schema):
    """A person in the gallery who is like a face."""

    person: str = Field(description="The person's name in the gallery.")
    cosine: float = Field(description="Cosine similarity of the face and the person's template.")


class FaceMatch(FaceResult):
    """A face, and who it is."""

    decision: Annotated[str, Field(json_schema_extra={"enum": FACE_DECISIONS})] = Field(
        description="match: the first candidate reaches the threshold; unknown: nobody does; too poor to say: the "
        "face's quality is below the minimum, or it is not a face."
    )
    candidates: list[Candidate] = Field(
        description="The most similar people, best first, whatever the decision; none for a face too poor."
    )


class _Image(Schema):
    """What is said of an image besides its faces."""

    name: str | None = Field(description="The name of the file, as it was sent.")
    width: Count | None = Field(
        description="Width of the upright image in pixels; null if it could not be read."
    )
    height: Count | None = Field(
        description="Height of the upright image in pixels; null if it could not be read."
    )
    found: Count = Field(
        description="Number of faces found, including those smaller than the service's minimum or beyond the maximum "
        "that is scored."
    )
    error: str | None = Field(description="Why the image could not be scored.")


class ImageResult(_Image):
    """An image: its faces, or the error that kept it from being scored."""

    faces: list[FaceResult] = Field(description="Largest first.")


class ImageMatches(_Image):
    """An image: its faces and who they are, or the error that kept it from being scored."""

    faces: list[FaceMatch] = Field(description="Largest first.")


class Scores(Schema):
    """The response of /v1/score."""

    model: str = Field(description="Name of the model.")
    model_sha256: str = Field(description="SHA-256 of the model file.")
    min_quality: float | None = Field(
        description="The threshold that faces had to reach; null without a threshold."
    )
    images: list[ImageResult] = Field(description="One result for each image, in the order they were sent.")


class PairVerification(Schema):
    """The response of /v1/verify."""

    model: str = Field(description="Name of the model.")
    model_sha256: str = Field(description="SHA-256 of the model file.")
    decision: Decision = Field(
        description="same: the similarity reaches the threshold; different: it does not; inconclusive: the quality of "
        "an image is too low for either."
    )
    similarity: float = Field(description="Cosine similarity of the two embeddings.")
    reason: str | None = Field(description="Why the decision is inconclusive.")
    note: str | None = Field(description="What else to know, such as that an image has several faces.")
    fmr: float | None = Field(description="The false match rate that was asked for; null if a threshold was.")
    threshold: float = Field(
        description="The similarity at or above which two faces match: at that rate, by the model's calibration, or "
        "the one that was asked for."
    )
    fnmr: float | None = Field(
        description="The false non-match rate at the threshold, 0 to 1, of the calibration's pairs of one person."
    )
    fnmr_ci95: Annotated[list[float], Field(min_length=2, max_length=2)] | None = Field(
        description="95% confidence interval of fnmr."
    )
    min_quality: float | None = Field(
        description="Faces below this quality are not compared; null if quality does not matter."
    )
    images: list[ImageResult] = Field(
        description="The two images, each with the face that was compared, its largest."
    )


class Matches(Schema):
    """The response of /v1/search."""

    model: str = Field(description="Name of the model.")
    model_sha256: str = Field(description="SHA-256 of the model file.")
    min_quality: float | None = Field(
        description="Faces below this quality are too poor to say; null if quality does not matter."
    )
    fpir: float = Field(description="The false positive identification rate that was asked for.")
    threshold: float = Field(
        description="The cosine at or above which a face matches a person at that rate, by the gallery itself."
    )
    images: list[ImageMatches] = Field(description="One result for each image, in the order they were sent.")


class ShotResult(Schema):
    """One of the best faces of a track."""

    time: float = Field(description="When it was seen, in seconds since the clip began.")
    box: Box | None = Field(description="Left, top, right and bottom in pixels of the upright frame.")
    points: Points | None = Field(
        description="x and y of the eyes, the nose and the corners of the mouth, from left to right in the frame."
    )
    det_score: float | None = Field(description="The detector's score, 0 to 1.")
    percentile: float | None = Field(
        description="The quality from 0 to 100: the percentage of the faces in the model's calibration set that scored "
        "lower."
    )
    quality: float | None = Field(description="Higher is better; comparable only within one model.")
    uncertainty: float | None = Field(description="The uncertainty as the model's method defines it.")
    reasons: list[Reason] = Field(description="What makes the face poor, most important first.")
    crop: str | None = Field(
        description="The aligned crop, 112 x 112, as PNG in base64; null unless requested."
    )


class TrackResult(Schema):
    """A person in a clip."""

    track: int = Field(description="Number of the track, from 1.")
    spans: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(
        description="Begin and end of each time that the face is on screen, in seconds since the clip began."
    )
    faces: Count = Field(description="Number of frames in which the face was looked at.")
    poor_faces: Count = Field(description="How many of them are below the threshold or not a face.")
    percentile: float | None = Field(description="Of the best face, see its quality.")
    quality: float | None = Field(description="Of the best face.")
    too_poor: bool = Field(description="Whether all faces are poor, so that nothing is said of who it is.")
    reasons: list[Reason] = Field(
        description="What makes the best face poor, or, if all are, what makes most of them poor."
    )
    best: list[ShotResult] = Field(description="The best shots, best first; none are poor.")
    template: list[float] | None = Field(
        description="The embeddings' mean, weighted by what the model knows of their quality, of unit length; null "
        "unless requested."
    )
    decision: Annotated[str, Field(json_schema_extra={"enum": FACE_DECISIONS})] | None = Field(
        description="As in /v1/search; null if the service has no gallery."
    )
    candidates: list[Candidate] = Field(
        description="The most similar people in the gallery, best first, whatever the decision; none for a track that "
        "is too poor."
    )


class VideoResult(Schema):
    """The response of /v1/video."""

    model: str = Field(description="Name of the model.")
    model_sha256: str = Field(description="SHA-256 of the model file.")
    min_quality: float | None = Field(
        description="Faces below this quality are poor; null without a threshold."
    )
    fpir: float | None = Field(
        description="The false positive identification rate of the search; null if the service has no gallery."
    )
    threshold: float | None = Field(
        description="The cosine at or above which a template matches a person at that rate."
    )
    name: str | None = Field(description="The name of the file, as it was sent.")
    seconds: float | None = Field(description="Duration of the clip, as it says itself.")
    read_until: float | None = Field(description="Time of the last frame that was decoded, in seconds.")
    frames: Count = Field(description="Number of frames that were looked at.")
    left_out: Count = Field(description="Number of tracks with too few faces.")
    tracks: list[TrackResult] = Field(description="In the order in which they begin.")
    error: str | None = Field(description="Why the clip could not be read to its end; null if it was.")


class RequestLimits(Schema):
    """The limits of a request."""

    bytes: Count = Field(description="Maximum size of a request body, in bytes.")
    pixels: Count = Field(description="Maximum number of pixels of an image.")
    images: Count = Field(description="Maximum number of images per request.")
    faces: Count = Field(description="Maximum number of faces scored per image.")
    seconds: float | None = Field(
        description="Maximum duration of a clip, in seconds; null if the service takes none."
    )


class GalleryInfo(Schema):
    """The gallery of the service, without names."""

    people: Count = Field(description="Number of people.")
    images: Count = Field(description="Number of images enrolled.")
    fpir: float = Field(
        description="The false positive identification rate for requests to /v1/search that set none."
    )
    threshold: float = Field(description="The cosine at or above which a face matches a person at that rate.")
    min_quality: float | None = Field(
        description="The threshold of quality for requests to /v1/search that set none; null if quality does not "
        "matter."
    )


class ModelInfo(Schema):
    """The response of /v1/model."""

    name: str
    sha256: str = Field(description="SHA-256 of the model file.")
    detector: str | None = Field(
        description="The face detector; auto if images of 112 x 112 are aligned crops and all others photos; null if "
        "images must be aligned crops."
    )
    has_quality: bool = Field(description="Whether the model gives a quality for each face.")
    min_quality: float | None = Field(
        description="The threshold for requests that set none; null if their faces are neither accepted nor rejected."
    )
    fmr: float | None = Field(
        description="The false match rate for requests to /v1/verify that set none; null if the model has no match "
        "thresholds."
    )
    gallery: GalleryInfo | None = Field(
        description="What /v1/search searches in; null if the service has no gallery."
    )
    template: Points = Field(description="The five points of an aligned crop.")
    template_size: Count = Field(description="Width and height of an aligned crop, in pixels.")
    limits: RequestLimits
    description: Description = Field(
        description="The model's own description: its quality thresholds by the fraction of faces that they keep, and, "
        "in calibration.matching, its similarity thresholds with their error rates."
    )


class Health(Schema):
    """The response of /healthz and /readyz."""

    status: str


class Problem(Schema):
    """The response to a request that failed."""

    error: str = Field(description="The reason, in a sentence.")
    code: Code = Field(description="The reason, for programs.")
    images: list[ImageResult] | None = Field(
        None, description="One result for each image, if none could be scored, or one of two not compared."
    )


def images_body(options: type[CommonOptions], max_images: int) -> dict[str, Any]:
    """The body of /v1/score or /v1/search in the OpenAPI schema: a form, or one image."""
    content = {FORM_TYPE: {"schema": _form(options, 1, max_images)}}
    return {"required": True, "content": content | {kind: {"schema": FILE} for kind in IMAGE_TYPES}}


def video_body() -> dict[str, Any]:
    """The body of /v1/video in the OpenAPI schema: a form with one clip, or the clip."""
    fields = VideoOptions.model_json_schema()["properties"]
    form = {
        "type": "object",
        "properties": {VIDEO_FIELD: FILE, **{name: _non_null(schema) for name, schema in fields.items()}},
        "required": [VIDEO_FIELD],
        "additionalProperties": False,
    }
    return {
        "required": True,
        "content": {FORM_TYPE: {"schema": form}} | {kind: {"schema": FILE} for kind in VIDEO_TYPES},
    }


def verify_body() -> dict[str, Any]:
    """The body of /v1/verify in the OpenAPI schema: a form with two images."""
    return {"required": True, "content": {FORM_TYPE: {"schema": _form(VerifyOptions, 2, 2)}}}


def _form(options: type[CommonOptions], min_images: int, max_images: int) -> dict[str, Any]:
    images = {"type": "array", "items": FILE, "minItems": min_images, "maxItems": max_images}
    fields = options.model_json_schema()["properties"]
    return {
        "type": "object",
        "properties": {IMAGES_FIELD: images, **{name: _non_null(schema) for name, schema in fields.items()}},
        "required": [IMAGES_FIELD],
        "additionalProperties": False,
    }


def _non_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of an option as a form field, which may be missing, but not null."""
    rest = {key: value for key, value in schema.items() if key not in ("anyOf", "default")}
    return rest | next((kind for kind in schema.get("anyOf", ()) if kind["type"] != "null"), {})
