"""What an ONNX model says of itself: the contract between those who train and those who use.

Our own exports carry it as JSON under the metadata key ``facerts``. A foreign embedder gets the same JSON in a
file beside it (``model.onnx`` and ``model.json``), which also names its tensors.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left
from contextlib import ExitStack
from pathlib import Path
from shutil import copyfileobj
from typing import Annotated, Any, Literal

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)

from facerts.errors import ModelError
from facerts.io.files import atomic_write
from facerts.io.json_file import parse_json
from facerts.onnx.metadata import read_entry, replace_entry

METADATA_KEY = "facerts"
SCHEMA: Literal["facerts.model/1"] = "facerts.model/1"

# Quantiles of the calibration faces' quality: 0 %, 1 %, …, 100 %.
QUANTILES = 101

# What a file says of itself must not decide how much memory is taken; these are far beyond any model.
MAX_SIDE, MOST_PIXELS = 1024, 1 << 25

Side = Annotated[int, Field(ge=1, le=MAX_SIDE)]
Three = tuple[float, float, float]
Interval = tuple[float, float]


class DescriptionPart(BaseModel):
    """A part of a description: no unknown keys, no numbers that are not finite.

    Keys in British spelling, as earlier versions wrote them, are still read.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class InputSpec(DescriptionPart):
    """The input tensor, and how crops become it: (x − mean) / std per channel, x from 0 to 255.

    Attributes:
        name: of the tensor.
        size: height and width; crops of 112 x 112 are resized for a model that gives quality alone.
        layout: order of the axes.
        color: order of the channels.
        batch: the only batch size that the model takes; None for any.
        mean: per channel, in the order of ``color``.
        std: likewise.
    """

    name: str = "image"
    size: tuple[Side, Side] = (112, 112)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    color: Literal["RGB", "BGR"] = Field("RGB", validation_alias=AliasChoices("color", "colour"))
    batch: int | None = Field(default=None, ge=1, le=1024)
    mean: Three = (127.5, 127.5, 127.5)
    std: Three = (127.5, 127.5, 127.5)

    @field_validator("std")
    @classmethod
    def divides(cls, std: Three) -> Three:
        if any(value <= 0 for value in std):
            raise ValueError("std must be above 0")
        return std

    @model_validator(mode="after")
    def fits_into_memory(self) -> InputSpec:
        if math.prod(self.size) * (self.batch or 1) > MOST_PIXELS:
            raise ValueError(f"a batch has more than {MOST_PIXELS:,} pixels")
        return self


class QualityThreshold(DescriptionPart):
    """A threshold of quality chosen on a user's own faces.

    Attributes:
        quality: accept at or above; higher is better, whatever the model's own polarity.
        data_sha256: of the faces it was chosen on.
        kept: the share of those faces that it accepts; more than was asked for where qualities are equal.
    """

    quality: float
    data_sha256: str
    kept: float | None = None


class KeptPairs(DescriptionPart):
    """The genuine pairs whose two faces both pass a threshold of quality, at a match threshold.

    Attributes:
        genuine: how many are left.
        fnmr: share of them that does not match; None where none is left.
        ci95: its 95 % interval.
    """

    genuine: int
    fnmr: float | None
    ci95: Interval | None


class MatchThreshold(DescriptionPart):
    """A threshold of similarity, and what errors it makes.

    Attributes:
        similarity: cosine; two faces match at or above.
        achieved_fmr: share of the impostor pairs that match, at most the rate it was chosen for.
        impostors: pairs of two people that the threshold rests on.
        genuine: pairs of one person that FNMR rests on.
        fnmr: false non-match rate, the share of the genuine pairs that does not match.
        ci95: its 95 % interval.
        kept: FNMR at the same threshold when poor faces are rejected, by the share of faces kept.
    """

    similarity: float
    achieved_fmr: float
    impostors: int
    genuine: int
    fnmr: float
    ci95: Interval
    kept: dict[str, KeptPairs] = {}


class Matching(DescriptionPart):
    """Match thresholds, and the pairs that they were chosen on.

    Attributes:
        data: name of the pictures.
        data_sha256: of the pictures.
        pairs: "all" pairs of the pictures, or those that a benchmark has "listed".
        images: how many pictures.
        identities: how many people; None where that is not known.
        flip: the embeddings are those of the crop and of its mirror added, and not the crop's alone.
        interval: how intervals were made.
        thresholds: by the false match rate that they were chosen for.
    """

    data: str
    data_sha256: str
    pairs: Literal["all", "listed"]
    images: int
    identities: int | None
    flip: bool
    interval: str
    thresholds: dict[str, MatchThreshold]


class Calibration(DescriptionPart):
    """What a model's numbers mean on a user's own faces.

    Attributes:
        data: name of the faces.
        data_sha256: of the faces.
        faces: how many.
        identities: how many people; None where that is not known.
        quantiles: of their quality, at 0, 1, …, 100 %; empty where the model gives no quality.
        matching: match thresholds; None where there were no pairs for them.
        notes: what is missing or odd, one sentence each.
        facerts_version: that calibrated.
    """

    data: str
    data_sha256: str
    faces: int
    identities: int | None
    quantiles: tuple[float, ...] = ()
    matching: Matching | None = None
    notes: tuple[str, ...] = ()
    facerts_version: str = ""

    @field_validator("quantiles")
    @classmethod
    def rises(cls, quantiles: tuple[float, ...]) -> tuple[float, ...]:
        if len(quantiles) not in (0, QUANTILES) or list(quantiles) != sorted(quantiles):
            raise ValueError(f"quantiles are {QUANTILES} numbers that do not fall, or none")
        return quantiles

    def percentile(self, quality: float) -> float | None:
        """The share of the calibration faces that scored lower, in percent; None where they have no quality.

        Exact to one percentage point and the share of one face. The lowest face and what lies below it have 0, what
        lies above the highest has 100.

        Args:
            quality: of a face, higher is better.
        """
        if not self.quantiles:
            return None
        place = bisect_left(self.quantiles, quality)
        if place in (0, QUANTILES):
            return 0.0 if place == 0 else 100.0
        low, high = self.quantiles[place - 1 : place + 1]
        return round(place - 1 + (quality - low) / (high - low), 2)


class Description(DescriptionPart):
    """The whole description.

    Attributes:
        schema_: the form of this description.
        name: for tables; the file's name where empty.
        method: the training method, by its registry name where it is one of ours.
        backbone: of the network.
        precision: of the file: fp32; fp16, weights stored in 16 bits; int8, convolutions computed in 8.
        embedding_size: d; None where it is not known.
        input: see ``InputSpec``.
        outputs: the model's tensor for each role: embedding, norm, quality, uncertainty, extras. A model whose quality
            is an output may do without the embedding.
        normalize_embedding: the embedding must still be brought to unit length; then its length is the norm.
        quality: where quality comes from: an output's name, the norm, or nowhere.
        polarity: whether higher quality numbers mean better pictures, as the model gives them.
        alignment: how crops must be aligned.
        thresholds: quality thresholds by the share of faces that they keep, from ``facerts calibrate``.
        calibration: what else it found; None for a model that is not calibrated.
        training_data: what it was trained on.
        recipe_sha256: of the recipe that trained it.
        license: of the weights.
        terms: on which it may be used.
        source: where it comes from.
        facerts_version: that exported it.
    """

    schema_: Literal["facerts.model/1"] = Field(alias="schema")
    name: str = ""
    method: str = "unknown"
    backbone: str = ""
    precision: str = "fp32"
    embedding_size: int | None = Field(default=None, ge=1, le=1 << 16)
    input: InputSpec = InputSpec()
    outputs: dict[str, str] = {}
    normalize_embedding: bool = Field(
        False, validation_alias=AliasChoices("normalize_embedding", "normalise_embedding")
    )
    quality: Annotated[str, StringConstraints(pattern=r"^(norm|none|output:.+)$")] = "none"
    polarity: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"
    alignment: Literal["arcface-112"] = "arcface-112"
    thresholds: dict[str, QualityThreshold] = {}
    calibration: Calibration | None = None
    training_data: str = ""
    recipe_sha256: str = ""
    license: str = Field("", validation_alias=AliasChoices("license", "licence"))
    terms: str = ""
    source: str = ""
    facerts_version: str = ""

    @model_validator(mode="after")
    def gives_embedding_or_quality(self) -> Description:
        if "embedding" not in self.outputs and not self.gives_quality_output:
            raise ValueError(
                "the outputs must name the tensor of the role 'embedding'; a model that gives quality alone needs "
                '"quality": "output:TENSOR"'
            )
        return self

    @property
    def gives_quality_output(self) -> bool:
        """Whether quality is a tensor of the model, and not computed from its embedding."""
        return self.quality.startswith("output:") or "quality" in self.outputs

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), ensure_ascii=False)


def parse_description(text: str | bytes, where: str) -> Description:
    """A description from its JSON.

    Raises:
        ModelError: not JSON, or not a description; every wrong field is named.
    """
    content = parse_json(text, where, error=ModelError)
    try:
        description = Description.model_validate(content)
    except ValidationError as error:
        problems = "; ".join(f"{_path(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        raise ModelError(f"{where}: {problems}") from error
    try:
        description.to_json().encode()
    except UnicodeEncodeError as error:
        raise ModelError(f"{where}: it has characters that do not exist ({error})") from error
    return description


def read_description(path: Path) -> Description:
    """The description in a file of its own.

    Raises:
        ModelError: the file cannot be read, or is broken.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from error
    return parse_description(text, str(path))


def find_description(model: Path, metadata: dict[str, str]) -> Description:
    """The description of a model: what it carries, or else the file beside it.

    Raises:
        ModelError: there is neither, or it is broken.
    """
    if METADATA_KEY in metadata:
        return parse_description(metadata[METADATA_KEY], f"{model}, metadata {METADATA_KEY!r}")
    beside = model.with_suffix(".json")
    if beside.is_file():
        return read_description(beside)
    raise ModelError(
        f"{model}: the model does not say how it wants its input; describe it in {beside.name} beside it "
        "(see docs/foreign-models.md)"
    )


def store_description(model: Path, description: Description, out: Path) -> Path:
    """Put a description where the model has its own: inside the file, or in the file beside it.

    Args:
        model: the .onnx file.
        description: in place of the one that it has.
        out: the .onnx file to write; ``model`` itself to change its description alone. A model that is described by a
            file beside it is copied there, and the description goes beside the copy.

    Returns:
        the file that now holds the description.

    Raises:
        ModelError: the model cannot be read, or is no ONNX file.
    """
    if read_entry(model, METADATA_KEY) is not None:
        replace_entry(model, out, METADATA_KEY, description.to_json())
        return out
    beside = out.with_suffix(".json")
    # What nobody wrote stays unwritten, so that a file made by hand can still be read by one.
    content = description.model_dump(mode="json", by_alias=True, exclude_unset=True)
    with ExitStack() as files:
        if out.resolve() != model.resolve():
            copyfileobj(files.enter_context(model.open("rb")), files.enter_context(atomic_write(out)))
        files.enter_context(atomic_write(beside, "w")).write(
            json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        )
    return beside


def _path(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location) or "the description"
