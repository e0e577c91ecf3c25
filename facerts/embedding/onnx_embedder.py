"""ONNX models for aligned crops: the only module that turns crops into a model's input tensor."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from facerts.embedding.outputs import NOT_A_FACE, Embedder, FaceOutputs
from facerts.errors import ModelError, problems_text
from facerts.images import CROP_SIZE
from facerts.io.files import scratch_folder, sha256_file
from facerts.onnx.contract import Description, InputSpec, find_description, read_description
from facerts.onnx.model_pack import find_recognizer, is_pack
from facerts.onnx.providers import Runtime, usual_batch_size
from facerts.onnx.session import metadata_of, open_session, run_session

if TYPE_CHECKING:
    from typing_extensions import Unpack

Floats = NDArray[np.float32]

ROLES = ("embedding", "norm", "quality", "uncertainty")
# Roles with one value per crop.
SCORES = (*ROLES[1:], NOT_A_FACE)
# In a description, the only input or the only output of a model, whatever its name.
ONLY = "*"
# Numeric tensor types, as ONNX Runtime names them.
NUMBERS = frozenset(
    f"tensor({kind})"
    for kind in (
        "float",
        "double",
        "float16",
        *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
)


class OnnxModel:
    """Runs an ONNX model on aligned crops according to its description. May be shared by threads.

    Args:
        content: content of the file if it was changed; the path then only names it in errors.
        session: of the file, if it is open already.
        description: description to use instead of the model's own.
        runtime: see ``Runtime``; by default batches of 64 on the CPU.
    """

    thread_safe = True

    def __init__(
        self,
        path: str | Path,
        *,
        content: bytes | None = None,
        session: Any = None,
        description: Description | None = None,
        **runtime: Unpack[Runtime],
    ) -> None:
        path = Path(path)
        self.path = path
        self.threads = runtime.get("threads")
        self.session = session or open_session(
            path, content=content, providers=runtime.get("providers"), threads=self.threads
        )
        self.description = _completed(
            description or find_description(path, metadata_of(self.session, path)), self.session, path
        )
        self.name = self.description.name or path.stem
        self.method = self.description.method
        self.sha256 = sha256_file(path) if content is None else hashlib.sha256(content).hexdigest()
        self.providers: list[str] = self.session.get_providers()
        self.batch_size = runtime.get("batch_size", 64) or usual_batch_size(self.providers[0])
        self._check_description()
        self._roles = self._check_tensors()
        if len(self.session.get_inputs()) > 1:
            self._check_other_inputs()

    def with_graph(self, content: bytes, outputs: Mapping[str, str] | None = None) -> OnnxModel:
        """The model with a changed graph, opened in the same way; ``outputs`` by role, None for the description's."""
        description = self.description
        if outputs is not None:
            description = description.model_copy(update={"outputs": dict(outputs), "quality": "none"})
        return OnnxModel(
            self.path,
            content=content,
            description=description,
            providers=self.providers,
            threads=self.threads,
            batch_size=self.batch_size,
        )

    @property
    def identity(self) -> str:
        """Everything that the outputs depend on besides the crops: file, description, and how they are computed."""
        settings = {
            "file": self.sha256,
            "description": self.description.model_dump(mode="json"),
            "providers": self.providers,
            "threads": self.threads,
            "batch": self.batch_size,
        }
        return json.dumps(settings, sort_keys=True)

    def tensors(self, crops: NDArray[np.uint8]) -> dict[str, Floats]:
        """The model's raw outputs ``(N, …) float32``, by role, for aligned crops ``(N, 112, 112, 3) uint8`` RGB."""
        if crops.ndim != 4 or crops.shape[1:] != (CROP_SIZE, CROP_SIZE, 3) or crops.dtype != np.uint8:
            raise ModelError(
                f"crops must be (N, {CROP_SIZE}, {CROP_SIZE}, 3) uint8 RGB, not {crops.shape} {crops.dtype}"
            )
        size = self.description.input.batch or self.batch_size
        batches = [self._run(crops[start : start + size]) for start in range(0, max(len(crops), 1), size)]
        joined = {role: np.concatenate([batch[role] for batch in batches]) for role in self._roles}
        for role, values in joined.items():
            if not np.isfinite(values).all():
                row = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
                raise ModelError(f"{self.path}: {role} of crop {row} is not a finite number")
        return joined

    def norm_of(self, tensors: dict[str, Floats]) -> Floats | None:
        """``(N,)`` length of the embedding before normalization; None if the model does not output it."""
        if self.description.normalize_embedding and "embedding" in tensors:
            length: Floats = np.linalg.norm(_rows(tensors["embedding"]), axis=1)
            return length
        return tensors["norm"].reshape(-1) if "norm" in tensors else None

    def quality_of(self, tensors: dict[str, Floats]) -> Floats | None:
        """``(N,)`` quality, higher is better; None if the model has none."""
        quality = tensors["quality"].reshape(-1) if "quality" in tensors else None
        if self.description.quality == "norm":
            quality = self.norm_of(tensors)
        if quality is not None and self.description.polarity == "lower_is_better":
            quality = -quality
        return quality

    def _run(self, crops: NDArray[np.uint8]) -> dict[str, Floats]:
        """The raw outputs of a batch, padded if the model takes batches of one size only."""
        if len(crops) == 0:
            # An empty batch must still have outputs of the right shapes.
            return {role: values[:0] for role, values in self._run(_one_black_crop()).items()}
        spec = self.description.input
        batch, count = to_input(crops, spec), len(crops)
        if spec.batch and count < spec.batch:
            batch = np.concatenate([batch, np.repeat(batch[-1:], spec.batch - count, axis=0)])
        values = run_session(self.session, self.path, list(self._roles.values()), {spec.name: batch})
        for role, value in zip(self._roles, values, strict=True):
            if value.ndim == 0 or len(value) != len(batch):
                raise ModelError(
                    f"{self.path}: for {len(batch)} crops the output {role} has the shape {value.shape}; "
                    "it must have one row per crop"
                )
            if role in SCORES and value.size != len(batch):
                raise ModelError(
                    f"{self.path}: for {len(batch)} crops the output {role} has {value.size} values; "
                    "it must have one value per crop"
                )
        return {
            role: np.asarray(value[:count], dtype=np.float32) for role, value in zip(self._roles, values, strict=True)
        }

    def outputs(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """What the model says of aligned crops; see ``tensors``. Without an embedding, its size is 0."""
        tensors = self.tensors(crops)
        embedding = _rows(tensors["embedding"]) if "embedding" in tensors else np.zeros((len(crops), 0), np.float32)
        norm, quality = self.norm_of(tensors), self.quality_of(tensors)
        if norm is not None and self.description.normalize_embedding:
            lengths = np.maximum(norm, np.float32(1e-12))[:, None]
            embedding = (embedding / lengths).astype(np.float32, copy=False)
        uncertainty = tensors["uncertainty"].reshape(-1) if "uncertainty" in tensors else None
        if uncertainty is None and quality is not None:
            uncertainty = -quality
        extras = {role: values for role, values in tensors.items() if role not in ROLES}
        return FaceOutputs(embedding, norm, quality, uncertainty, extras)

    def _check_description(self) -> None:
        """Check that the description fits this kind of model."""

    def _check_other_inputs(self) -> None:
        """Check that the network reads no input but the crops."""
        spec = self.description.input
        crops = np.repeat(to_input(_one_black_crop(), spec), spec.batch or 1, axis=0)
        try:
            run_session(self.session, self.path, list(self._roles.values()), {spec.name: crops})
        except ModelError as error:
            others = [tensor.name for tensor in self.session.get_inputs() if tensor.name != spec.name]
            raise ModelError(
                f"{self.path}: besides {spec.name!r} it has the inputs {', '.join(others)}, and needs them; only the "
                "crops can be given"
            ) from error

    def _check_tensors(self) -> dict[str, str]:
        """Check the description against the file; returns the tensor of each role to read."""
        spec = self.description.input
        inputs = {tensor.name: tensor for tensor in self.session.get_inputs()}
        if spec.name not in inputs:
            raise ModelError(f"{self.path}: no input {spec.name!r}; its inputs are {', '.join(sorted(inputs))}")
        height, width = spec.size
        shape = inputs[spec.name].shape
        axes = (3, height, width) if spec.layout == "NCHW" else (height, width, 3)
        fits = len(shape) == 4 and all(
            not isinstance(actual, int) or actual == expected for actual, expected in zip(shape[1:], axes, strict=True)
        )
        if not fits or inputs[spec.name].type != "tensor(float)":
            raise ModelError(
                f"{self.path}: input {spec.name!r} is {inputs[spec.name].type} {shape}, "
                f"but the description says {spec.layout} of {axes}, float"
            )
        outputs = {tensor.name: tensor.type for tensor in self.session.get_outputs()}
        roles = dict(self.description.outputs)
        if self.description.quality.startswith("output:"):
            roles["quality"] = self.description.quality.removeprefix("output:")
        for role, name in roles.items():
            if name not in outputs:
                raise ModelError(
                    f"{self.path}: no output {name!r} for the role {role!r}; "
                    f"its outputs are {', '.join(sorted(outputs))}"
                )
            if outputs[name] not in NUMBERS:
                raise ModelError(f"{self.path}: output {name!r} is {outputs[name]}, not numbers")
        if self.description.quality == "norm" and not (self.description.normalize_embedding or "norm" in roles):
            raise ModelError(
                f"{self.path}: the description says that quality is the norm, but also that the embedding has unit "
                "length, and it names no output for the role 'norm'"
            )
        return roles


class OnnxEmbedder(OnnxModel):
    """An embedder from a described ONNX model; see ``outputs.Embedder``. May be shared by threads."""

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Embed aligned crops; see ``OnnxModel.tensors``."""
        return self.outputs(crops)

    def outputs(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        outputs = super().outputs(crops)
        length, size = outputs.embedding.shape[1], self.description.embedding_size
        if length != (size or length or 1):
            raise ModelError(
                f"{self.path}: its embedding has {length} values, but its description says {size or 'at least 1'}"
            )
        return outputs

    def _check_description(self) -> None:
        if "embedding" not in self.description.outputs:
            raise ModelError(
                f"{self.path}: the model gives a quality and no embedding; a recognizer is needed here "
                "(recognizer=NAME)"
            )
        height, width = self.description.input.size
        if (height, width) != (CROP_SIZE, CROP_SIZE):
            raise ModelError(
                f"{self.path}: crops are {CROP_SIZE} x {CROP_SIZE}, but the model takes {height} x {width}"
            )


class OnnxQuality(OnnxModel):
    """Quality of crops from a described ONNX model. May be shared by threads."""

    def __call__(self, crops: NDArray[np.uint8]) -> Floats:
        """Quality ``(N,) float32``, higher is better, of aligned crops ``(N, 112, 112, 3) uint8`` RGB."""
        quality = self.quality_of(self.tensors(crops))
        assert quality is not None  # checked by _check_description
        return quality

    def _check_description(self) -> None:
        if self.description.quality != "norm" and not self.description.gives_quality_output:
            raise ModelError(
                f'{self.path}: the model has no quality; its description must say "quality": "output:TENSOR" or "norm"'
            )


def load_embedder(
    path: str | Path, *, description: Description | None = None, **runtime: Unpack[Runtime]
) -> OnnxEmbedder:
    """Open an ONNX embedder: ours, a foreign one with a description beside it, or that of a pack (folder or .zip)."""
    path = Path(path)
    if not is_pack(path):
        return OnnxEmbedder(path, description=description, **runtime)
    beside = path.with_suffix(".json")
    if description is None and beside.is_file():
        description = read_description(beside)
    with scratch_folder() as scratch:
        model, own_description = find_recognizer(path, scratch, description)
        return OnnxEmbedder(model, description=own_description, **runtime)


def load_model(
    path: str | Path, *, description: Description | None = None, **runtime: Unpack[Runtime]
) -> OnnxEmbedder | OnnxQuality:
    """Open an ONNX model as an embedder, or for its quality if it has no embedding."""
    path = Path(path)
    if is_pack(path):
        return load_embedder(path, description=description, **runtime)
    session = open_session(path, providers=runtime.get("providers"), threads=runtime.get("threads"))
    description = description or find_description(path, metadata_of(session, path))
    kind = OnnxEmbedder if "embedding" in description.outputs else OnnxQuality
    return kind(path, session=session, description=description, **runtime)


def outputs_of_crops(model: OnnxModel | Embedder, crops: NDArray[np.uint8]) -> FaceOutputs:
    """All that a model of any kind gives for aligned crops, ``(N, 112, 112, 3) uint8`` RGB."""
    return model.outputs(crops) if isinstance(model, OnnxModel) else model(crops)


def _completed(description: Description, session: Any, path: Path) -> Description:
    """The description with what the file itself says.

    That is the only batch size that it takes, and the names of tensors that are called ``*``: the only input (or the
    only one with the axes of images), and the only output.
    """

    def only(kind: str, tensors: Sequence[Any]) -> str:
        if len(tensors) != 1:
            raise ModelError(
                f'{path}: its description calls an {kind} "{ONLY}", the only one, but the model has '
                f"{', '.join(tensor.name for tensor in tensors)}; name one of them"
            )
        return str(tensors[0].name)

    spec, inputs = description.input, session.get_inputs()
    if spec.name == ONLY:
        height, width = spec.size
        axes = [3, height, width] if spec.layout == "NCHW" else [height, width, 3]
        images = [tensor for tensor in inputs if tensor.shape[1:] == axes]
        spec = spec.model_copy(update={"name": only("input", images if len(images) == 1 else inputs)})
    batches = [tensor.shape[0] for tensor in inputs if tensor.name == spec.name and tensor.shape]
    if batches and isinstance(batches[0], int):
        try:
            spec = InputSpec.model_validate(spec.model_dump() | {"batch": batches[0]})
        except ValidationError as error:
            raise ModelError(f"{path}: {problems_text(error.errors())}") from error
    changes: dict[str, object] = {"input": spec}
    if ONLY in description.outputs.values():
        name = only("output", session.get_outputs())
        changes["outputs"] = {role: name if tensor == ONLY else tensor for role, tensor in description.outputs.items()}
    if description.quality == f"output:{ONLY}":
        changes["quality"] = f"output:{only('output', session.get_outputs())}"
    return description.model_copy(update=changes)


def to_input(crops: NDArray[np.uint8], spec: InputSpec) -> Floats:
    """Preprocess crops, ``(N, 112, 112, 3) uint8`` RGB, to the model's float32 input; bilinear if resized."""
    height, width = spec.size
    if crops.shape[1:3] != (height, width):
        resized = [cv2.resize(crop, (width, height), interpolation=cv2.INTER_LINEAR) for crop in crops]
        crops = np.stack(resized).astype(np.uint8, copy=False)
    mean, std = (np.array(values, dtype=np.float32) for values in (spec.mean, spec.std))
    if spec.color == "BGR":
        crops = crops[..., ::-1]
    if spec.layout == "NHWC":
        return (crops.astype(np.float32) - mean) / std
    # Channels are transposed as bytes, then each is converted to floats in one pass.
    planes = np.ascontiguousarray(crops.transpose(0, 3, 1, 2))
    images = np.empty(planes.shape, dtype=np.float32)
    for channel in range(3):
        np.multiply(planes[:, channel], 1 / std[channel], out=images[:, channel])
        images[:, channel] -= mean[channel] / std[channel]
    return images


def batches_of(images: Floats, fixed: int | None, most: int) -> Iterator[tuple[Floats, int]]:
    """Batches of a model's input, of at most ``most``, and how many rows of each are not padding.

    With a ``fixed`` batch size, the last batch is padded to it.
    """
    size = fixed or most
    for start in range(0, len(images), size):
        batch = images[start : start + size]
        count = len(batch)
        if fixed and count < fixed:
            batch = np.concatenate([batch, np.repeat(batch[-1:], fixed - count, axis=0)])
        yield batch, count


def _rows(values: Floats) -> Floats:
    """``(N, …)`` as ``(N, d)``."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _one_black_crop() -> NDArray[np.uint8]:
    return np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
