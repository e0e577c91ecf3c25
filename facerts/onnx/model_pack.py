"""Model packs, such as insightface's buffalo_l and antelopev2: a folder or a .zip of ONNX files.

A pack contains detectors, landmark models, gender and age models, and a recognizer. Files are recognized by their
inputs and outputs, not by their names.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from facerts.errors import MissingExtraError, ModelError, documentation_page, install_hint
from facerts.images import CROP_SIZE
from facerts.io.files import regular
from facerts.onnx.contract import SCHEMA, Description, InputSpec
from facerts.onnx.session import open_session

MAX_PACK_BYTES = 2 << 30
# Recognizers of insightface's own packs, whose graphs do not normalize the crops themselves.
KNOWN = frozenset({"w600k_r50", "w600k_mbf", "glintr100"})
MIN_EMBEDDING_SIZE = 128


class NotInPackError(ModelError):
    """A model pack has no model of the wanted kind."""


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model: a type such as ``tensor(float)``, and a number, a name or None for each axis."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelSignature:
    """Inputs and outputs of a model; empty if it cannot be loaded."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]

    def __str__(self) -> str:
        if not self.inputs:
            return "cannot be loaded"
        return " to ".join(
            " and ".join(str(tensor.shape) for tensor in side) if len(side) < 3 else f"{len(side)} tensors"
            for side in (self.inputs, self.outputs)
        )


def signature_of(session: Any) -> ModelSignature:
    """Inputs and outputs of the model of an ONNX Runtime session."""
    return ModelSignature(_tensors(session.get_inputs()), _tensors(session.get_outputs()))


def read_signature(model: Path) -> ModelSignature:
    """Inputs and outputs of an .onnx file; empty if it cannot be loaded."""
    try:
        return signature_of(open_session(model, inference=False))
    except ModelError:
        # Some other file; errors list it as one that cannot be loaded.
        return ModelSignature([], [])


def is_pack(path: Path) -> bool:
    """Whether a path is a model pack, a folder or a .zip, rather than a single model."""
    return path.is_dir() or path.suffix.lower() == ".zip"


def find_in_pack(
    path: Path, scratch: Path, fits: Callable[[ModelSignature], bool], *, wanted: str, otherwise: str = ""
) -> tuple[Path, ModelSignature]:
    """The only model in a pack whose inputs and outputs fit: the .onnx file, and these."""
    if not path.exists():
        raise ModelError(f"{path}: no such model pack")
    folder = path if path.is_dir() else _unpack(path, scratch)
    networks = {model: read_signature(model) for model in sorted(folder.rglob("*.onnx"))}
    models = [model for model, network in networks.items() if fits(network)]
    if len(models) != 1:
        listed = "; ".join(f"{model.relative_to(folder)}: {network}" for model, network in networks.items())
        raise (ModelError if models else NotInPackError)(
            f"{path}: a model pack must have one {wanted}, but this one has {len(models) or 'none'} "
            f"({listed or 'no .onnx files'}); give the .onnx file instead{otherwise}"
        )
    return models[0], networks[models[0]]


def find_recognizer(path: Path, scratch: Path, description: Description | None = None) -> tuple[Path, Description]:
    """The .onnx file of the only recognizer in a pack, and its description: the given one, or what is found out.

    A recognizer takes ``(N, 3, 112, 112)`` and outputs only ``(N, d)`` with d of 128 or more. Crops are RGB (the packs'
    own reader swaps the channels of its BGR images), normalized as (x − 127.5) / 127.5 unless the graph does so itself.
    """
    model, signature = find_in_pack(
        path,
        scratch,
        _is_recognizer,
        wanted=f"network from (N, 3, {CROP_SIZE}, {CROP_SIZE}) to embeddings",
        otherwise=", with a description beside it",
    )
    return model, description or _describe(model, signature)


def _tensors(nodes: Any) -> list[TensorSpec]:
    return [TensorSpec(node.name, node.type, list(node.shape)) for node in nodes]


def _unpack(path: Path, scratch: Path) -> Path:
    """Unpack the .onnx members of a .zip into a folder of the same name, so that errors name the pack."""
    target = scratch / path.name
    try:
        with open(path, "rb", opener=regular) as file, zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            for member in members:
                # A Windows path splits at both kinds of slashes and recognizes drive letters.
                name = PureWindowsPath(member.filename)
                if name.anchor or ".." in name.parts:
                    raise ModelError(
                        f"{path}: its member {member.filename!r} points outside the folder; not a model pack"
                    )
            models = [member for member in members if member.filename.lower().endswith(".onnx")]
            size = sum(member.file_size for member in models)
            if size > MAX_PACK_BYTES:
                raise ModelError(
                    f"{path}: its .onnx files have {size:,} bytes, more than the limit of {MAX_PACK_BYTES:,}"
                )
            for member in models:
                archive.extract(member, target)
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{path}: cannot be unpacked ({error})") from error
    return target


def _is_recognizer(signature: ModelSignature) -> bool:
    """Whether a model turns aligned crops into embeddings."""
    if len(signature.inputs) != 1 or len(signature.outputs) != 1:
        return False
    crops, embedding = signature.inputs[0], signature.outputs[0]
    if len(crops.shape) != 4 or crops.shape[1:] != [3, CROP_SIZE, CROP_SIZE]:
        return False
    size = embedding.shape[1] if len(embedding.shape) == 2 else None
    return crops.type == "tensor(float)" and isinstance(size, int) and size >= MIN_EMBEDDING_SIZE


def _describe(model: Path, signature: ModelSignature) -> Description:
    crops, embedding = signature.inputs[0], signature.outputs[0]
    size = embedding.shape[1]
    mean, std = (0.0, 1.0) if _normalizes_crops(model) else (127.5, 127.5)
    description = pack_description(size if isinstance(size, int) else None)
    spec = InputSpec(name=crops.name, mean=(mean, mean, mean), std=(std, std, std))
    return description.model_copy(update={"name": model.stem, "input": spec})


def pack_description(embedding_size: int | None) -> Description:
    """What the recognizers of insightface's own packs have in common."""
    return Description(
        schema=SCHEMA,
        method="arcface",
        embedding_size=embedding_size,
        input=InputSpec(name="*"),
        outputs={"embedding": "*"},
        normalize_embedding=True,
        quality="norm",
        terms="insightface model packs are for non-commercial research only",
        source="insightface model pack",
    )


def _normalizes_crops(model: Path) -> bool:
    """Whether the graph itself normalizes the crops, by insightface's own rule."""
    try:
        import onnx
    except ImportError as error:
        if model.stem in KNOWN:
            return False
        raise MissingExtraError(
            f"{model}: finding out its preprocessing needs onnx: {install_hint('use')}; or unpack it, write a "
            f"description in {model.stem}.json beside it (see {documentation_page('foreign-models')}), and give the "
            ".onnx file"
        ) from error
    graph = onnx.load(str(model), load_external_data=False).graph
    return {"Sub", "Mul"} <= {node.op_type for node in graph.node[:8]}
