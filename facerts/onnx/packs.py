"""Model packs, such as insightface's buffalo_l and antelopev2: a folder or a .zip of ONNX files.

A pack holds detectors, landmarks, gender and age, and a recognizer. Which file is which is told by what it takes and
gives, not by its name.
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

LARGEST_PACK = 2 << 30


@dataclass(frozen=True)
class TensorSpec:
    """An input or an output: its name, its type as ONNX Runtime writes it, and its shape, as far as the file tells."""

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class ModelSignature:
    """What a file takes and gives; nothing where it cannot be loaded."""

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
    """What the model of an ONNX Runtime session takes and gives."""
    return ModelSignature(_tensors(session.get_inputs()), _tensors(session.get_outputs()))


def read_signature(model: Path) -> ModelSignature:
    """What a file takes and gives.

    Raises:
        MissingExtraError: ONNX Runtime is not installed.
    """
    try:
        return signature_of(open_session(model, run=False))
    except ModelError:
        # A file that is none of ours; it is listed as such.
        return ModelSignature([], [])


def is_pack(path: Path) -> bool:
    """Whether a path is a folder or a .zip, and so no model by itself."""
    return path.is_dir() or path.suffix.lower() == ".zip"


def find_in_pack(
    path: Path, scratch: Path, fits: Callable[[ModelSignature], bool], *, wanted: str, otherwise: str = ""
) -> tuple[Path, ModelSignature]:
    """The one file of a pack that is of a kind.

    Args:
        path: the folder or .zip.
        scratch: an empty folder, which gets the ONNX files of a .zip.
        fits: whether a file is of that kind.
        wanted: names the kind in errors.
        otherwise: what errors add to the advice to give the .onnx file that is meant.

    Raises:
        ModelError: no such pack, one that cannot be unpacked safely, or none or several such files in it.
        MissingExtraError: ONNX Runtime is not installed.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such model pack")
    folder = path if path.is_dir() else _unpack(path, scratch)
    networks = {model: read_signature(model) for model in sorted(folder.rglob("*.onnx"))}
    found = [model for model, network in networks.items() if fits(network)]
    if len(found) != 1:
        listed = "; ".join(f"{model.relative_to(folder)}: {network}" for model, network in networks.items())
        raise ModelError(
            f"{path}: a model pack has one {wanted}, this one {len(found) or 'none'} ({listed or 'no .onnx files'}); "
            f"give the .onnx file that is meant{otherwise}"
        )
    return found[0], networks[found[0]]


def _tensors(nodes: Any) -> list[TensorSpec]:
    return [TensorSpec(node.name, node.type, list(node.shape)) for node in nodes]


def _unpack(path: Path, scratch: Path) -> Path:
    """The .onnx members of a .zip, in a folder that is called like it, for errors that name it."""
    target = scratch / path.name
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            for member in members:
                # As Windows sees it, which splits at both kinds of slashes and knows drives.
                name = PureWindowsPath(member.filename)
                if name.anchor or ".." in name.parts:
                    raise ModelError(
                        f"{path}: its member {member.filename!r} would lie outside; not a model pack"
                    )
            models = [member for member in members if member.filename.lower().endswith(".onnx")]
            size = sum(member.file_size for member in models)
            if size > LARGEST_PACK:
                raise ModelError(
                    f"{path}: its .onnx files have {size:,} bytes, more than the {LARGEST_PACK:,} of a model pack"
                )
            for member in models:
                archive.extract(member, target)
    except (OSError, RuntimeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{path}: cannot be unpacked ({error})") from error
    return target
