"""Reduce a model to its embedding, for the ArcFace loaders of other packages.

insightface's ``ArcFaceONNX`` and uniface's ``BaseRecognizer`` refuse files with more than one output, normalize RGB
crops as (x − 127.5) / 127.5, and bring the embedding to unit length themselves.
"""

from __future__ import annotations

from pathlib import Path

from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.parity import Parity, check_crops, compare_outputs
from facerts.errors import Error, ModelError
from facerts.io.files import scratch_folder
from facerts.onnx.contract import Description, InputSpec, store_description
from facerts.onnx.graph_edit import keep_outputs, load_graph

SUFFIX = ".onnx"

# If the names of a graph's first 8 nodes include one of each of these prefixes, insightface assumes that the graph
# normalizes its input, and feeds it raw bytes.
INSPECTED_NODES = 8
SUBTRACTION_NAMES, MULTIPLICATION_NAMES = ("Sub", "_minus"), ("Mul", "_mul")


def keep_embedding(model: str | Path, out: str | Path) -> Parity:
    """Write a copy of a model with the embedding as its only output, without the nodes that only other outputs need.

    The description is kept, except for quality, quality thresholds and quantiles. Match thresholds are kept, since the
    embeddings are the same. The model is ours or a foreign one with a description beside it; ``out`` is written only if
    it gives the same embeddings. Returns the largest differences. Does not need PyTorch, and uses the onnx
    package only to read and write files.
    """
    path, out = Path(model), Path(out)
    for file in (path, out):
        if file.suffix.lower() != SUFFIX:
            raise Error(f"{file}: a model of one output must be made from an .onnx file and written to one")
    if out.resolve() == path.resolve():
        raise Error(f"{out}: the model would lose its quality; give another file to write")
    embedder = load_embedder(path)
    _check_input(path, embedder.description.input)
    description = _without_quality(embedder.description)
    with scratch_folder() as scratch:
        part = scratch / path.name
        _write(path, embedder.description.outputs["embedding"], part)
        crops = check_crops()
        written = OnnxEmbedder(out, content=part.read_bytes(), description=description)
        parity = compare_outputs(embedder(crops), written(crops), of=str(path))
        store_description(part, description, out)
    return parity


def _check_input(path: Path, spec: InputSpec) -> None:
    """Check that a model needs the same preprocessing as other packages' ArcFace loaders apply."""
    applied = InputSpec()
    for name in ("size", "layout", "color", "mean", "std"):
        needed, actual = getattr(spec, name), getattr(applied, name)
        if needed != actual:
            raise ModelError(
                f"{path}: the model needs input with {name} {needed}, but other packages' ArcFace loaders use "
                f"{name} {actual}, so it would give wrong embeddings there; no file was written"
            )


def _without_quality(description: Description) -> Description:
    outputs = {"embedding": description.outputs["embedding"]}
    if description.quality == "norm" and description.normalize_embedding:
        return description.model_copy(update={"outputs": outputs})
    changes: dict[str, object] = {"outputs": outputs, "quality": "none", "thresholds": {}}
    if description.calibration is not None:
        changes["calibration"] = description.calibration.model_copy(update={"quantiles": ()})
    return description.model_copy(update=changes)


def _write(path: Path, embedding: str, part: Path) -> None:
    """Write a copy of a model with only the part of the graph that computes the tensor ``embedding``."""
    model = load_graph(path, "removing a model's outputs")
    keep_outputs(model.graph, [embedding])
    for node in model.graph.node[:INSPECTED_NODES]:
        if node.name.startswith(SUBTRACTION_NAMES + MULTIPLICATION_NAMES):
            node.name = f"node_{node.name}"
    part.write_bytes(model.SerializeToString())
