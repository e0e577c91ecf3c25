"""What an ONNX model says of itself: the contract between those who train and those who use.

Our own exports carry it as JSON under the metadata key ``facerts``. A foreign embedder gets the same JSON in a
file beside it (``model.onnx`` and ``model.json``), which also names its tensors.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, field_validator

from facerts.errors import ModelError

METADATA_KEY = "facerts"
SCHEMA: Literal["facerts.model/1"] = "facerts.model/1"

Three = tuple[float, float, float]


class Section(BaseModel):
    """A part of a description: no unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Input(Section):
    """The input tensor, and how crops become it: (x − mean) / std per channel, x from 0 to 255.

    Attributes:
        name: of the tensor.
        size: height and width.
        layout: order of the axes.
        colour: order of the channels.
        batch: the only batch size that the model takes; None for any.
        mean: per channel, in the order of ``colour``.
        std: likewise.
    """

    name: str = "image"
    size: tuple[int, int] = (112, 112)
    layout: Literal["NCHW", "NHWC"] = "NCHW"
    colour: Literal["RGB", "BGR"] = "RGB"
    batch: int | None = Field(default=None, ge=1)
    mean: Three = (127.5, 127.5, 127.5)
    std: Three = (127.5, 127.5, 127.5)

    @field_validator("std")
    @classmethod
    def divides(cls, std: Three) -> Three:
        if any(value <= 0 for value in std):
            raise ValueError("std must be above 0")
        return std


class Threshold(Section):
    """A threshold chosen on a user's own faces.

    Attributes:
        quality: accept at or above.
        data_sha256: of the faces it was chosen on.
    """

    quality: float
    data_sha256: str


class Description(Section):
    """The whole description.

    Attributes:
        schema_: the form of this description.
        name: for tables; the file's name where empty.
        method: the training method, by its registry name where it is one of ours.
        backbone: of the network.
        embedding_size: d; None where it is not known.
        input: see ``Input``.
        outputs: the model's tensor for each role: embedding, norm, quality, uncertainty, extras.
        normalise_embedding: the embedding must still be brought to unit length; then its length is the norm.
        quality: where quality comes from: an output's name, the norm, or nowhere.
        polarity: whether higher quality numbers mean better pictures, as the model gives them.
        alignment: how crops must be aligned.
        thresholds: quality thresholds by the share of faces that they keep.
        training_data: what it was trained on.
        recipe_sha256: of the recipe that trained it.
        licence: of the weights.
        terms: on which it may be used.
        source: where it comes from.
        facerts_version: that exported it.
    """

    schema_: Literal["facerts.model/1"] = Field(alias="schema")
    name: str = ""
    method: str = "unknown"
    backbone: str = ""
    embedding_size: int | None = Field(default=None, ge=1)
    input: Input = Input()
    outputs: dict[str, str]
    normalise_embedding: bool = False
    quality: Annotated[str, StringConstraints(pattern=r"^(norm|none|output:.+)$")] = "none"
    polarity: Literal["higher_is_better", "lower_is_better"] = "higher_is_better"
    alignment: Literal["arcface-112"] = "arcface-112"
    thresholds: dict[str, Threshold] = {}
    training_data: str = ""
    recipe_sha256: str = ""
    licence: str = ""
    terms: str = ""
    source: str = ""
    facerts_version: str = ""

    @field_validator("outputs")
    @classmethod
    def has_embedding(cls, outputs: dict[str, str]) -> dict[str, str]:
        if "embedding" not in outputs:
            raise ValueError("the outputs must name the tensor of the role 'embedding'")
        return outputs

    def to_json(self) -> str:
        return json.dumps(self.model_dump(mode="json", by_alias=True), ensure_ascii=False)


def parse_description(text: str, where: str) -> Description:
    """A description from its JSON.

    Raises:
        ModelError: not JSON, or not a description; every wrong field is named.
    """
    try:
        return Description.model_validate(json.loads(text))
    except json.JSONDecodeError as error:
        raise ModelError(f"{where}: not valid JSON ({error})") from error
    except ValidationError as error:
        problems = "; ".join(f"{_path(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        raise ModelError(f"{where}: {problems}") from error


def find_description(model: Path, metadata: dict[str, str]) -> Description:
    """The description of a model: what it carries, or else the file beside it.

    Raises:
        ModelError: there is neither, or it is broken.
    """
    if METADATA_KEY in metadata:
        return parse_description(metadata[METADATA_KEY], f"{model}, metadata {METADATA_KEY!r}")
    beside = model.with_suffix(".json")
    if beside.is_file():
        return parse_description(beside.read_text(encoding="utf-8"), str(beside))
    raise ModelError(
        f"{model}: the model does not say how it wants its input; describe it in {beside.name} beside it "
        "(see docs/foreign-models.md)"
    )


def _path(location: tuple[Any, ...]) -> str:
    return ".".join(str(part) for part in location) or "the description"
