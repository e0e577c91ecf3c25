"""ONNX models of aligned crops through ONNX Runtime: the one place where crops become a model's input."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.embedding.outputs import FaceOutputs
from facerts.embedding.packs import find_recognizer
from facerts.errors import ModelError
from facerts.images import CROP_SIZE
from facerts.io.files import sha256_file
from facerts.onnx.contract import Description, InputSpec, find_description
from facerts.onnx.packs import is_pack
from facerts.onnx.session import metadata_of, open_session, run_session

Floats = NDArray[np.float32]

SCORES = ("norm", "quality", "uncertainty")
ROLES = ("embedding", *SCORES)
# As ONNX Runtime calls the types of tensors.
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
    """Crops to the tensors that a described ONNX model gives. May be shared by threads.

    Attributes:
        name: the model's own, or its file's.
        method: the training method.
        sha256: of the file.
        description: what the model says of itself.
        batch_size: crops that it likes to be given at once.
        providers: in use, in order.
        session: of ONNX Runtime.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        description: Description | None = None,
        providers: Sequence[str] | None = None,
        threads: int | None = None,
        batch_size: int = 64,
    ) -> None:
        path = Path(path)
        self._path = path
        self.session = open_session(path, providers=providers, threads=threads)
        self.description = description or find_description(path, metadata_of(self.session, path))
        self.name = self.description.name or path.stem
        self.method = self.description.method
        self.sha256 = sha256_file(path)
        self.providers: list[str] = self.session.get_providers()
        self.batch_size = batch_size
        self._check_description()
        self._roles = self._check_tensors()

    def tensors(self, crops: NDArray[np.uint8]) -> dict[str, Floats]:
        """What the model gives for aligned crops, as it gives it.

        Args:
            crops: ``(N, 112, 112, 3) uint8`` RGB.

        Returns:
            ``(N, …) float32`` by role.

        Raises:
            ModelError: crops of another shape, or the model fails on them, or gives what it should not: another number
                of rows, or a number that is not finite.
        """
        if crops.ndim != 4 or crops.shape[1:] != (CROP_SIZE, CROP_SIZE, 3) or crops.dtype != np.uint8:
            raise ModelError(
                f"crops must be (N, {CROP_SIZE}, {CROP_SIZE}, 3) uint8 RGB, not {crops.shape} {crops.dtype}"
            )
        batches = [
            run
            for start in range(0, max(len(crops), 1), self.batch_size)
            for run in self._run(crops[start : start + self.batch_size])
        ]
        joined = {role: np.concatenate([batch[role] for batch in batches]) for role in self._roles}
        for role, values in joined.items():
            if not np.isfinite(values).all():
                row = int(np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))[0])
                raise ModelError(f"{self._path}: {role} of crop {row} is not a finite number")
        return joined

    def norm_of(self, tensors: dict[str, Floats]) -> Floats | None:
        """``(N,)`` length of the embedding before it was normalized; None where the model hides it."""
        if self.description.normalize_embedding and "embedding" in tensors:
            length: Floats = np.linalg.norm(_rows(tensors["embedding"]), axis=1)
            return length
        return tensors["norm"].reshape(-1) if "norm" in tensors else None

    def quality_of(self, tensors: dict[str, Floats]) -> Floats | None:
        """``(N,)`` quality, higher is better; None where the model has none."""
        quality = tensors["quality"].reshape(-1) if "quality" in tensors else None
        if self.description.quality == "norm":
            quality = self.norm_of(tensors)
        if quality is not None and self.description.polarity == "lower_is_better":
            quality = -quality
        return quality

    def _run(self, crops: NDArray[np.uint8]) -> Iterator[dict[str, Floats]]:
        if len(crops) == 0:
            # An empty batch still tells the outputs' shapes.
            yield {role: values[:0] for role, values in next(self._run(_one_black_crop())).items()}
            return
        told = self.description.input
        images = to_input(crops, told)
        size = told.batch or len(images)
        for start in range(0, len(images), size):
            part = images[start : start + size]
            short = size - len(part)
            if short:
                part = np.concatenate([part, np.repeat(part[-1:], short, axis=0)])
            values = run_session(self.session, self._path, list(self._roles.values()), {told.name: part})
            yield {
                role: self._rows_of(role, value, size)[: size - short]
                for role, value in zip(self._roles, values, strict=True)
            }

    def _rows_of(self, role: str, value: NDArray[Any], crops: int) -> Floats:
        """An output, held against the crops that it is of."""
        if value.ndim == 0 or len(value) != crops:
            raise ModelError(
                f"{self._path}: for {crops} crops the {role} is {value.shape}; a row for each is wanted"
            )
        if role in SCORES and value.size != crops:
            raise ModelError(
                f"{self._path}: {crops} crops have {value.size} numbers of {role}; one for each is wanted"
            )
        return np.asarray(value, dtype=np.float32)

    def _check_description(self) -> None:
        """Refuse a description that does not give what this kind of model must."""

    def _check_tensors(self) -> dict[str, str]:
        """Hold the description against the file; gives the tensor of each role that will be read."""
        told = self.description.input
        inputs = {tensor.name: tensor for tensor in self.session.get_inputs()}
        if told.name not in inputs or len(inputs) != 1:
            raise ModelError(
                f"{self._path}: its inputs are {', '.join(sorted(inputs))}, but its description names "
                f"{told.name!r} alone"
            )
        height, width = told.size
        shape = inputs[told.name].shape
        axes = (3, height, width) if told.layout == "NCHW" else (height, width, 3)
        fits = len(shape) == 4 and all(
            not isinstance(has, int) or has == wants for has, wants in zip(shape[1:], axes, strict=True)
        )
        if not fits or inputs[told.name].type != "tensor(float)":
            raise ModelError(
                f"{self._path}: input {told.name!r} is {inputs[told.name].type} {shape}, "
                f"but the description says {told.layout} of {axes}, float"
            )
        if isinstance(shape[0], int) and shape[0] != told.batch:
            raise ModelError(
                f'{self._path}: the batch is fixed at {shape[0]}; the description must say "batch": {shape[0]}'
            )
        outputs = {tensor.name: tensor.type for tensor in self.session.get_outputs()}
        roles = dict(self.description.outputs)
        if self.description.quality.startswith("output:"):
            roles["quality"] = self.description.quality.removeprefix("output:")
        for role, name in roles.items():
            if name not in outputs:
                raise ModelError(
                    f"{self._path}: no output {name!r} for the role {role!r}; there are {', '.join(sorted(outputs))}"
                )
            if outputs[name] not in NUMBERS:
                raise ModelError(f"{self._path}: output {name!r} is {outputs[name]}, not numbers")
        if self.description.quality == "norm" and not (
            self.description.normalize_embedding or "norm" in roles
        ):
            raise ModelError(
                f"{self._path}: quality is to be the norm, but the embedding is said to have unit length "
                "and there is no output of the role 'norm'"
            )
        return roles


class OnnxEmbedder(OnnxModel):
    """Crops to outputs through a described ONNX model; see ``outputs.Embedder``. May be shared by threads."""

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        """Embed aligned crops; see ``OnnxModel.tensors``.

        Raises:
            ModelError: as there, or the embedding has another length than the description says.
        """
        tensors = self.tensors(crops)
        embedding = _rows(tensors["embedding"])
        size = self.description.embedding_size
        if embedding.shape[1] != (size or embedding.shape[1] or 1):
            raise ModelError(
                f"{self._path}: its embedding has {embedding.shape[1]} numbers, and its description says "
                f"{size or 'at least 1'}"
            )
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
        if "embedding" not in self.description.outputs:
            raise ModelError(
                f"{self._path}: the model gives quality alone; an embedder's description names the tensor of the role "
                "'embedding'"
            )
        height, width = self.description.input.size
        if (height, width) != (CROP_SIZE, CROP_SIZE):
            raise ModelError(
                f"{self._path}: crops are {CROP_SIZE} x {CROP_SIZE}, but the model wants {height} x {width}"
            )


def load_embedder(
    path: str | Path,
    *,
    description: Description | None = None,
    providers: Sequence[str] | None = None,
    threads: int | None = None,
    batch_size: int = 64,
) -> OnnxEmbedder:
    """Open an ONNX embedder: ours, a foreign one with its description beside it, or that of a model pack.

    Args:
        path: the .onnx file, or an insightface model pack, a folder or .zip.
        description: of the model, in place of the one that it carries, has beside it, or has by its pack.
        providers: ONNX Runtime's execution providers by name, in order of preference; None for the CPU.
        threads: of one call; None leaves ONNX Runtime's choice.
        batch_size: crops per run, where the model takes any number.

    Raises:
        ModelError: no such file, not an ONNX model, or not as described; or a pack without a single recognizer.
    """
    path = Path(path)
    open_model = partial(OnnxEmbedder, providers=providers, threads=threads, batch_size=batch_size)
    if not is_pack(path):
        return open_model(path, description=description)
    with tempfile.TemporaryDirectory() as scratch:
        model, found = find_recognizer(path, Path(scratch))
        return open_model(model, description=description or found)


def to_input(crops: NDArray[np.uint8], told: InputSpec) -> Floats:
    """``(N, 112, 112, 3) uint8`` RGB to the model's float32 input; bilinear where the model wants another size."""
    crops = _resized(crops, told.size)
    mean, std = (np.array(values, dtype=np.float32) for values in (told.mean, told.std))
    if told.color == "BGR":
        crops = crops[..., ::-1]
    if told.layout == "NHWC":
        return (crops.astype(np.float32) - mean) / std
    # Planes are copied while they are bytes; then one pass over each makes it float.
    planes = np.ascontiguousarray(crops.transpose(0, 3, 1, 2))
    images = np.empty(planes.shape, dtype=np.float32)
    for channel in range(3):
        np.multiply(planes[:, channel], 1 / std[channel], out=images[:, channel])
        images[:, channel] -= mean[channel] / std[channel]
    return images


def _resized(crops: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    height, width = size
    if crops.shape[1:3] == (height, width):
        return crops
    resized = [cv2.resize(crop, (width, height), interpolation=cv2.INTER_LINEAR) for crop in crops]
    return np.stack(resized).astype(np.uint8, copy=False)


def _rows(values: Floats) -> Floats:
    """``(N, …)`` as ``(N, d)``."""
    return values.reshape(len(values), math.prod(values.shape[1:]))


def _one_black_crop() -> NDArray[np.uint8]:
    return np.zeros((1, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
