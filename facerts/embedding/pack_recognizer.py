"""The recognizer of a model pack: how to find it, and its description."""

from __future__ import annotations

from pathlib import Path

from facerts.errors import MissingExtraError
from facerts.images import CROP_SIZE
from facerts.onnx.contract import SCHEMA, Description, InputSpec
from facerts.onnx.model_pack import ModelSignature, find_in_pack

# Recognizers of insightface's own packs, whose graphs do not normalize the crops themselves.
KNOWN = frozenset({"w600k_r50", "w600k_mbf", "glintr100"})
MIN_EMBEDDING_SIZE = 128


def find_recognizer(path: Path, scratch: Path) -> tuple[Path, Description]:
    """The only recognizer in a pack, and its description.

    A recognizer takes ``(N, 3, 112, 112)`` and outputs only ``(N, d)`` with d of 128 or more. Crops are RGB (the packs'
    own reader swaps the channels of its BGR images), normalized as (x − 127.5) / 127.5 unless the graph does so itself.

    Returns:
        The .onnx file, and its description.

    Raises:
        ModelError: there is no such pack, it cannot be unpacked safely, or it has no recognizer or several.
        MissingExtraError: ONNX Runtime is not installed; or onnx is not, and the recognizer is not a known one.
    """
    model, signature = find_in_pack(
        path,
        scratch,
        _is_recognizer,
        wanted=f"network from (N, 3, {CROP_SIZE}, {CROP_SIZE}) to embeddings",
        otherwise=", with a description beside it",
    )
    return model, _describe(model, signature)


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
    batch, size = crops.shape[0], embedding.shape[1]
    mean, std = (0.0, 1.0) if _normalizes_crops(model) else (127.5, 127.5)
    return Description(
        schema=SCHEMA,
        name=model.stem,
        method="arcface",
        embedding_size=size if isinstance(size, int) else None,
        input=InputSpec(
            name=crops.name,
            batch=batch if isinstance(batch, int) else None,
            mean=(mean, mean, mean),
            std=(std, std, std),
        ),
        outputs={"embedding": embedding.name},
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
            f"{model}: finding out its preprocessing needs onnx: pip install onnx; or unpack it, write a description "
            f"in {model.stem}.json beside it (see docs/foreign-models.md), and give the .onnx file"
        ) from error
    graph = onnx.load(str(model), load_external_data=False).graph
    return {"Sub", "Mul"} <= {node.op_type for node in graph.node[:8]}
