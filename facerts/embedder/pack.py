"""insightface model packs: which of their files is the recogniser, and how it wants its input.

A pack such as buffalo_l or antelopev2 is a folder or a .zip of ONNX files: detectors, landmarks, gender and age,
and one network that gives embeddings.
"""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any

from facerts.embedder.description import SCHEMA, Description, Input
from facerts.errors import MissingExtraError, ModelError
from facerts.image import CROP_SIZE

# Recognisers of insightface's own packs, whose graphs leave it to the caller to shift and scale the crops.
KNOWN = frozenset({"w600k_r50", "w600k_mbf", "glintr100"})
LEAST_COLUMNS = 128
LARGEST_PACK = 2 << 30


@dataclass(frozen=True)
class _Tensor:
    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class _Network:
    """What a file of a pack takes and gives; nothing where it cannot be loaded."""

    inputs: list[_Tensor]
    outputs: list[_Tensor]

    @property
    def recognises(self) -> bool:
        """Whether it makes embeddings of aligned crops."""
        if len(self.inputs) != 1 or len(self.outputs) != 1:
            return False
        taken, given = self.inputs[0], self.outputs[0]
        if len(taken.shape) != 4 or taken.shape[1:] != [3, CROP_SIZE, CROP_SIZE]:
            return False
        columns = given.shape[1] if len(given.shape) == 2 else None
        return taken.type == "tensor(float)" and isinstance(columns, int) and columns >= LEAST_COLUMNS

    def __str__(self) -> str:
        if not self.inputs:
            return "cannot be loaded"
        return " to ".join(
            " and ".join(str(tensor.shape) for tensor in side) if len(side) < 3 else f"{len(side)} tensors"
            for side in (self.inputs, self.outputs)
        )


def is_pack(path: Path) -> bool:
    """Whether a path is a folder or a .zip, and so no model by itself."""
    return path.is_dir() or path.suffix.lower() == ".zip"


def find_recogniser(path: Path, scratch: Path) -> tuple[Path, Description]:
    """The one file of a pack that makes embeddings, and its description.

    It takes ``(N, 3, 112, 112)`` and gives ``(N, d)`` with d of 128 or more, and nothing else. Crops are RGB (the
    packs' own reader swaps the channels of its BGR pictures), shifted and scaled by 127.5 unless the graph begins
    with doing that itself.

    Args:
        path: the folder or .zip.
        scratch: an empty folder, which gets the ONNX files of a .zip.

    Raises:
        ModelError: no such pack, one that cannot be unpacked safely, or none or several recognisers in it.
        MissingExtraError: ONNX Runtime is not installed; or onnx is not, and the recogniser is none that is known.
    """
    if not path.exists():
        raise ModelError(f"{path}: no such model pack")
    folder = path if path.is_dir() else _unpack(path, scratch)
    networks = {model: _look(model) for model in sorted(folder.rglob("*.onnx"))}
    found = [model for model, network in networks.items() if network.recognises]
    if len(found) != 1:
        listed = "; ".join(f"{model.relative_to(folder)}: {network}" for model, network in networks.items())
        raise ModelError(
            f"{path}: a model pack has one network from (N, 3, {CROP_SIZE}, {CROP_SIZE}) to embeddings, "
            f"this one {len(found) or 'none'} ({listed or 'no .onnx files'}); give the .onnx file that is meant, "
            "with a description beside it"
        )
    model = found[0]
    return model, _describe(model, networks[model])


def _describe(model: Path, network: _Network) -> Description:
    taken, given = network.inputs[0], network.outputs[0]
    batch, columns = taken.shape[0], given.shape[1]
    mean, std = (0.0, 1.0) if _shifts_and_scales(model) else (127.5, 127.5)
    return Description(
        schema=SCHEMA,
        name=model.stem,
        method="arcface",
        embedding_size=columns if isinstance(columns, int) else None,
        input=Input(
            name=taken.name,
            batch=batch if isinstance(batch, int) else None,
            mean=(mean, mean, mean),
            std=(std, std, std),
        ),
        outputs={"embedding": given.name},
        normalise_embedding=True,
        quality="norm",
        terms="insightface model packs are for non-commercial research only",
        source="insightface model pack",
    )


def _shifts_and_scales(model: Path) -> bool:
    """Whether the graph itself begins with what others leave to the caller: insightface's own rule."""
    try:
        import onnx
    except ImportError as error:
        if model.stem in KNOWN:
            return False
        raise MissingExtraError(
            f"{model}: to see how it wants its input needs onnx: pip install onnx; or unpack it, describe it in "
            f"{model.stem}.json beside it (see docs/foreign-models.md), and give the .onnx file"
        ) from error
    graph = onnx.load(str(model), load_external_data=False).graph
    return {"Sub", "Mul"} <= {node.op_type for node in graph.node[:8]}


def _look(model: Path) -> _Network:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "running a model needs ONNX Runtime: pip install 'facerts[cpu]', or 'facerts[gpu]' with a GPU"
        ) from error
    options = onnxruntime.SessionOptions()
    # Only shapes are asked for: no time for optimising, and no complaints about files that are none of ours.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except Exception:  # ONNX Runtime's errors share no base class but Exception; the file is listed as such
        return _Network([], [])
    return _Network(_tensors(session.get_inputs()), _tensors(session.get_outputs()))


def _tensors(nodes: Any) -> list[_Tensor]:
    return [_Tensor(node.name, node.type, list(node.shape)) for node in nodes]


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
