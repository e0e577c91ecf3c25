"""The description of an ONNX model: the contract between training and inference.

Our own exports carry it as JSON under the metadata key ``facerts``. A foreign embedder needs the same JSON in a file
beside it (``model.onnx`` and ``model.json``), which also names its tensors.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfileobj
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from facerts.errors import ModelError, documentation_page, problems_text
from facerts.io.files import atomic_write, read_file, reading, regular
from facerts.io.json_file import parse_json
from facerts.onnx.session import metadata_of, open_session
from facerts.onnx.wire import replace_entry

METADATA_KEY = "facerts"
SCHEMA: Literal["facerts.model/1"] = "facerts.model/1"

# Quantiles of the calibration faces' quality: 0%, 1%, …, 100%.
QUANTILES = 101

# A description must not decide how much memory is allocated; these limits are far beyond any real model.
MAX_SIDE, MOST_PIXELS = 1024, 1 << 25

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
PerChannel = tuple[float, float, float]
Interval = tuple[float, float]


class DescriptionPart(BaseModel):
    """Base class of a description and its parts: unknown keys and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InputSpec(DescriptionPart):
    """The input tensor and how crops are preprocessed: (x − mean) / std per channel, x from 0 to 255.

    Attributes:
        size: height and width in pixels; for quality-only models, crops of 112 x 112 are resized to it.
        batch: the only batch size that the model accepts; None for any.
        mean: mean per channel, in the order of ``color``.
        std: standard deviation per channel, likewise.
    """

    name: str = "image"
    size: tuple[Side, Side] = (112, 112)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR"] = "RGB"
    batch: int | None = Field(default=None, ge=1, le=1024)
    mean: PerChannel = (127.5, 127.5, 127.5)
    std: PerChannel = (127.5, 127.5, 127.5)

    @field_validator("std")
    @classmethod
    def is_positive(cls, std: PerChannel) -> PerChannel:
        if any(value <= 0 for value in std):
            raise ValueError("std must be above 0")
        return std

    @model_validator(mode="after")
    def fits_into_memory(self) -> InputSpec:
        if math.prod(self.size) * (self.batch or 1) > MOST_PIXELS:
            raise ValueError(f"a batch has more than {MOST_PIXELS:,} pixels")
        return self


class QualityThreshold(DescriptionPart):
    """A quality threshold chosen on a user's own faces.

    Attributes:
        quality: accept faces at or above it; higher is better, whatever the model's own polarity.
        kept: share of those faces that it accepts; with tied qualities this can exceed the requested share.
        ci95: 95% confidence interval of the share of such faces that it accepts, over people where they are known.
    """

    quality: float
    data_sha256: str
    kept: float | None = None
    ci95: Interval | None = None


class KeptPairs(DescriptionPart):
    """The genuine pairs whose faces both pass a quality threshold, and their error at a match threshold.

    Attributes:
        fnmr: share of them that do not match; None if no pair is left.
    """

    genuine: int
    fnmr: float | None
    ci95: Interval | None


class MatchThreshold(DescriptionPart):
    """A similarity threshold and its error rates.

    Attributes:
        similarity: cosine similarity; two faces match at or above it.
        achieved_fmr: share of the impostor pairs that match, at most the target FMR.
        fmr_ci95: 95% confidence interval of the share of such pairs that match; None where it was not measured.
        fnmr: false non-match rate, the share of the genuine pairs that do not match.
        kept: FNMR at the same threshold after rejecting low-quality faces, by the share of faces kept.
    """

    similarity: float
    achieved_fmr: float
    fmr_ci95: Interval | None = None
    impostors: int
    genuine: int
    fnmr: float
    ci95: Interval
    kept: dict[str, KeptPairs] = {}


class Matching(DescriptionPart):
    """Match thresholds and the pairs on which they were chosen.

    Attributes:
        pairs: "all" pairs of the images, or the pairs "listed" by a benchmark.
        flip: whether embeddings are the sum of those of the crop and its mirror image.
        same_person: weights of ``facerts.metrics.same_person.SamePerson``; None if there were too few pairs.
    """

    data: str
    data_sha256: str
    pairs: Literal["all", "listed"]
    images: int
    identities: int | None
    flip: bool
    interval: str
    thresholds: dict[str, MatchThreshold]
    same_person: tuple[float, float, float, float] | None = None


class ErrorRate(DescriptionPart):
    """A share of pairs that are decided wrongly.

    Attributes:
        rate: share of them decided wrongly; None if there is no pair.
    """

    pairs: int
    rate: float | None
    ci95: Interval | None


class MatchErrors(DescriptionPart):
    """Errors at a match threshold."""

    fnmr: ErrorRate
    fmr: ErrorRate


class GroupThreshold(DescriptionPart):
    """The quality threshold of a group of faces, next to the one for all faces that keeps the same share.

    Attributes:
        accepted: share of the group's faces that the threshold for all faces accepts.
        ci95: 95% confidence interval of ``accepted``.
        quality: the threshold that keeps the share of this group; None if the group is too small.
        errors: errors among the pairs inside the group whose faces pass the threshold for all faces, by the target FMR
            of the match threshold; without rates that are too high for so many pairs.
        own_errors: the same with the group's own threshold.
        non_faces: share of the non-faces that the group's own threshold accepts; None if there are no non-faces.
    """

    faces: int
    people: int | None
    accepted: float
    ci95: Interval
    quality: float | None
    errors: dict[str, MatchErrors] = {}
    own_errors: dict[str, MatchErrors] = {}
    non_faces: float | None = None


class NonFaces(DescriptionPart):
    """Images without a face, and what the quality thresholds let through.

    Attributes:
        accepted: share of them at or above each quality threshold, by the share of the faces that it keeps.
    """

    data: str
    data_sha256: str
    images: int
    accepted: dict[str, float]


class Calibration(DescriptionPart):
    """Calibration of a model's quality and similarity on a user's own faces.

    Attributes:
        quantiles: of the faces' quality at 0, 1, …, 100%; empty if the model has no quality.
        matching: match thresholds; None if there were no pairs to choose them on.
        groups: quality thresholds of groups by attribute, share of the faces to keep, and group, for information.
        non_faces: non-faces that the quality thresholds were tried on; None for none.
    """

    data: str
    data_sha256: str
    faces: int
    identities: int | None
    quantiles: tuple[float, ...] = ()
    matching: Matching | None = None
    groups: dict[str, dict[str, dict[str, GroupThreshold]]] = {}
    non_faces: NonFaces | None = None
    notes: tuple[str, ...] = ()
    facerts_version: str = ""

    @field_validator("quantiles")
    @classmethod
    def is_sorted(cls, quantiles: tuple[float, ...]) -> tuple[float, ...]:
        if len(quantiles) not in (0, QUANTILES) or list(quantiles) != sorted(quantiles):
            raise ValueError(f"quantiles must be {QUANTILES} numbers in ascending order, or empty")
        return quantiles

    def percentile(self, quality: float) -> float | None:
        """Percentage of the calibration faces with lower quality; None if they have no quality.

        Exact to one percentage point plus the share of one face. The result is 0 at or below the lowest quality and
        100 above the highest.
        """
        if not self.quantiles:
            return None
        index = bisect_left(self.quantiles, quality)
        if index in (0, QUANTILES):
            return 0.0 if index == 0 else 100.0
        low, high = self.quantiles[index - 1 : index + 1]
        return round(index - 1 + (quality - low) / (high - low), 2)

    def quality_at(self, percentile: float) -> float | None:
        """The quality that a percentage, 0 to 100, of the calibration faces do not reach; None without quality.

        Exact to one percentage point, like ``percentile``.
        """
        if not self.quantiles:
            return None
        index = min(int(percentile), QUANTILES - 2)
        low, high = self.quantiles[index : index + 2]
        return low + (percentile - index) * (high - low)


class Description(DescriptionPart):
    """The description of a model.

    Attributes:
        name: name for tables; if empty, the file's name is used.
        precision: fp32; fp16, weights stored in 16 bits; or int8, convolutions computed in 8 bits.
        outputs: name of the model's tensor for each role: embedding, norm, quality, uncertainty; not_a_face, above 0
            for what is none; covered, above 0 where something covers the face; extras. Only a model that outputs
            quality may have no embedding.
        normalize_embedding: whether the embedding must still be normalized to unit length; its length is then the norm.
        quality: where quality comes from: "output:TENSOR", "norm" or "none".
        polarity: whether higher or lower raw quality values mean better images.
        thresholds: quality thresholds by the share of faces that they keep, from ``facerts calibrate``.
    """

    schema_: Literal["facerts.model/1"] = Field(alias="schema")
    name: str = ""
    method: str = "unknown"
    backbone: str = ""
    precision: str = "fp32"
    embedding_size: int | None = Field(default=None, ge=1, le=1 << 16)
    input: InputSpec = InputSpec()
    outputs: dict[str, str] = {}
    normalize_embedding: bool = False
    quality: Annotated[str, StringConstraints(pattern=r"^(norm|none|output:.+)$")] = "none"
    polarity: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"
    alignment: Literal["arcface-112"] = "arcface-112"
    thresholds: dict[str, QualityThreshold] = {}
    calibration: Calibration | None = None
    training_data: str = ""
    recipe_sha256: str = ""
    license: str = ""
    terms: str = ""
    source: str = ""
    facerts_version: str = ""

    @model_validator(mode="after")
    def gives_embedding_or_quality(self) -> Description:
        if "embedding" not in self.outputs and not self.gives_quality_output:
            raise ValueError(
                "outputs must name a tensor for the role 'embedding'; a model that outputs only quality needs "
                '"quality": "output:TENSOR"'
            )
        return self

    @property
    def gives_quality_output(self) -> bool:
        """Whether quality is an output tensor of the model, rather than computed from its embedding."""
        return self.quality.startswith("output:") or "quality" in self.outputs

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), ensure_ascii=False)


def parse_description(text: str | bytes, where: str) -> Description:
    """Parse a description from JSON."""
    content = parse_json(text, where, error=ModelError)
    try:
        description = Description.model_validate(content)
    except ValidationError as error:
        raise ModelError(f"{where}: {problems_text(error.errors())}") from error
    try:
        description.to_json().encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"{where}: it contains invalid Unicode characters ({error})") from error
    return description


def read_description(path: Path) -> Description:
    """Read a description from a JSON file."""
    with reading(path, ModelError):
        return parse_description(read_file(path), str(path))


def find_description(model: Path, metadata: dict[str, str]) -> Description:
    """The description of a model: from its metadata, or from the JSON file beside it."""
    if METADATA_KEY in metadata:
        return parse_description(metadata[METADATA_KEY], f"{model}, metadata {METADATA_KEY!r}")
    beside = model.with_suffix(".json")
    if beside.is_file():
        return read_description(beside)
    raise ModelError(
        f"{model}: the model has no description of its input; write one in {beside.name} beside it "
        f"(see {documentation_page('foreign-models')})"
    )


def store_description(model: Path, description: Description, out: Path) -> Path:
    """Replace a model's description where it is, in the model's metadata or the file beside it; returns that file.

    ``out`` is the .onnx file to write; ``model`` itself to change only its description. A model that is described by a
    file beside it is copied to ``out``, and the description is written beside the copy.
    """
    if METADATA_KEY in metadata_of(open_session(model, inference=False), model):
        replace_entry(model, out, METADATA_KEY, description.to_json())
        return out
    beside = out.with_suffix(".json")
    # Unset fields are not written, so that a hand-written file stays readable.
    content = description.model_dump(mode="json", by_alias=True, exclude_unset=True)
    with ExitStack() as files:
        if out.resolve() != model.resolve():
            copyfileobj(files.enter_context(open(model, "rb", opener=regular)), files.enter_context(atomic_write(out)))
        files.enter_context(atomic_write(beside, "w")).write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")
    return beside
