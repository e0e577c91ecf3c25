"""The recognizer of a model pack: which of its files it is, and how it wants its input."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import MissingExtraError
from facerts.images import CROP_SIZE
from facerts.onnx.contract import SCHEMA, Description, InputSpec
from facerts.onnx.packs import ModelSignature, find_in_pack

# Recognizers of insightface's own packs, whose graphs leave it to the caller to shift and scale the crops.
KNOWN = frozenset({"w600k_r50", "w600k_mbf", "glintr100"})
LEAST_COLUMNS = 128


def find_recognizer(path: Path, scratch: Path) -> tuple[Path, Description]:
    """The one file of a pack that makes embeddings, and its description.

    It takes ``(N, 3, 112, 112)`` and gives ``(N, d)`` with d of 128 or more, and nothing else. Crops are RGB (the
    packs' own reader swaps the channels of its BGR pictures), shifted and scaled by 127.5 unless the graph begins
    with doing that itself.

    Args:
        path: the folder or .zip.
        scratch: an empty folder, which gets the ONNX files of a .zip.

    Raises:
        ModelError: no such pack, one that cannot be unpacked safely, or none or several recognizers in it.
        MissingExtraError: ONNX Runtime is not installed; or onnx is not, and the recognizer is none that is known.
    """
    model, network = find_in_pack(
        path,
        scratch,
        _recognizes,
        wanted=f"network from (N, 3, {CROP_SIZE}, {CROP_SIZE}) to embeddings",
        otherwise=", with a description beside it",
    )
    return model, _describe(model, network)


def _recognizes(network: ModelSignature) -> bool:
    """Whether it makes embeddings of aligned crops."""
    if len(network.inputs) != 1 or len(network.outputs) != 1:
        return False
    taken, given = network.inputs[0], network.outputs[0]
    if len(taken.shape) != 4 or taken.shape[1:] != [3, CROP_SIZE, CROP_SIZE]:
        return False
    columns = given.shape[1] if len(given.shape) == 2 else None
    return taken.type == "tensor(float)" and isinstance(columns, int) and columns >= LEAST_COLUMNS


def _describe(model: Path, network: ModelSignature) -> Description:
    taken, given = network.inputs[0], network.outputs[0]
    batch, columns = taken.shape[0], given.shape[1]
    mean, std = (0.0, 1.0) if _shifts_and_scales(model) else (127.5, 127.5)
    return Description(
        schema=SCHEMA,
        name=model.stem,
        method="arcface",
        embedding_size=columns if isinstance(columns, int) else None,
        input=InputSpec(
            name=taken.name,
            batch=batch if isinstance(batch, int) else None,
            mean=(mean, mean, mean),
            std=(std, std, std),
        ),
        outputs={"embedding": given.name},
        normalize_embedding=True,
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
