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

from facerts.errors import ModelError
from facerts.onnx.session import open_session

MAX_PACK_BYTES = 2 << 30


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a model.

    Attributes:
        type: as ONNX Runtime writes it, such as ``tensor(float)``.
        shape: a number, a name or None for each axis.
    """

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
    """Inputs and outputs of an .onnx file; empty if it cannot be loaded.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
    """
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
    """The only model of a given kind in a pack.

    Args:
        fits: whether a model is of that kind, from its inputs and outputs.

    Returns:
        The .onnx file, and its inputs and outputs.

    Raises:
        ModelError: there is no such pack, it cannot be unpacked safely, or it has no such model or several.
        MissingExtraError: ONNX Runtime is not installed.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such model pack")
    folder = path if path.is_dir() else _unpack(path, scratch)
    networks = {model: read_signature(model) for model in sorted(folder.rglob("*.onnx"))}
    models = [model for model, network in networks.items() if fits(network)]
    if len(models) != 1:
        listed = "; ".join(f"{model.relative_to(folder)}: {network}" for model, network in networks.items())
        raise ModelError(
            f"{path}: a model pack must have one {wanted}, but this one has {len(models) or 'none'} "
            f"({listed or 'no .onnx files'}); give the .onnx file instead{otherwise}"
        )
    return models[0], networks[models[0]]


def _tensors(nodes: Any) -> list[TensorSpec]:
    return [TensorSpec(node.name, node.type, list(node.shape)) for node in nodes]


def _unpack(path: Path, scratch: Path) -> Path:
    """Unpack the .onnx members of a .zip into a folder of the same name, so that errors name the pack."""
    target = scratch / path.name
    try:
        with zipfile.ZipFile(path) as archive:
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
