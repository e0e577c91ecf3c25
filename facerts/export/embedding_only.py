"""A model without everything but its embedding, as other packages' ArcFace loaders want it.

insightface's ``ArcFaceONNX`` and uniface's ``BaseRecognizer`` refuse files with more than one output, feed RGB crops
as (x − 127.5) / 127.5, and bring the embedding to unit length themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from facerts.embedding import FaceOutputs, OnnxEmbedder, load_embedder
from facerts.errors import Error, MissingExtraError, ModelError
from facerts.export.parity import Parity, check_crops, compare_outputs
from facerts.onnx.contract import Description, InputSpec, store_description

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

SUFFIX = ".onnx"

# insightface takes a graph whose first 8 nodes have names that begin like these, one of each, for one that shifts and
# scales by itself, and feeds it bytes.
LOOKED_AT = 8
SHIFTS, SCALES = ("Sub", "_minus"), ("Mul", "_mul")


def keep_embedding(model: str | Path, out: str | Path) -> Parity:
    """Write a model with its embedding as the only output, and without what only the others needed.

    The description stays, without what it says of the quality: thresholds and quantiles. Match thresholds stay, as
    embeddings do. Needs no PyTorch, and of the package onnx only what reads and writes files.

    Args:
        model: an .onnx embedder, ours or a foreign one with its description beside it.
        out: the .onnx file; it appears only if it gives the same embeddings.

    Raises:
        ModelError: the model cannot be opened, wants another input than other packages feed, or the new file gives
            other embeddings.
        Error: ``out`` is no .onnx file, or the model itself.
        MissingExtraError: onnx or ONNX Runtime is not installed.
    """
    path, out = Path(model), Path(out)
    for file in (path, out):
        if file.suffix.lower() != SUFFIX:
            raise Error(f"{file}: a model of one output is made from an .onnx file and written to one")
    if out.resolve() == path.resolve():
        raise Error(f"{out}: the model would lose its quality; give another file to write")
    embedder = load_embedder(path)
    told = embedder.description
    _check_input(path, told.input)
    description = _without_quality(told)
    with TemporaryDirectory() as scratch:
        part = Path(scratch) / path.name
        _write(path, told, part)
        crops = check_crops()
        parity = _check(path, embedder(crops), OnnxEmbedder(part, description=description)(crops))
        store_description(part, description, out)
    return parity


def _check_input(path: Path, told: InputSpec) -> None:
    """
    Raises:
        ModelError: the model would be fed something else than it wants, without anybody noticing.
    """
    fed = InputSpec()
    for name in ("size", "layout", "color", "mean", "std"):
        wants, gets = getattr(told, name), getattr(fed, name)
        if wants != gets:
            raise ModelError(
                f"{path}: the model wants its input with {name} {wants}, and other packages' ArcFace loaders would "
                f"feed {name} {gets}, so that it would give wrong embeddings there; no file was written"
            )


def _without_quality(told: Description) -> Description:
    outputs = {"embedding": told.outputs["embedding"]}
    if told.quality == "norm" and told.normalize_embedding:
        return told.model_copy(update={"outputs": outputs})
    changes: dict[str, Any] = {"outputs": outputs, "quality": "none", "thresholds": {}}
    if told.calibration is not None:
        changes["calibration"] = told.calibration.model_copy(update={"quantiles": ()})
    return told.model_copy(update=changes)


def _write(path: Path, told: Description, part: Path) -> None:
    """The part of the graph that leads from the input to the embedding; all else in the file stays as it is."""
    try:
        import onnx
    except ImportError as error:
        raise MissingExtraError(
            "to take outputs from a model needs onnx: pip install onnx (also part of 'facerts[train]')"
        ) from error
    model = onnx.load(str(path))
    _prune(model.graph, told.outputs["embedding"])
    for node in model.graph.node[:LOOKED_AT]:
        if node.name.startswith(SHIFTS + SCALES):
            node.name = f"node_{node.name}"
    onnx.save(model, str(part))


def _prune(graph: GraphProto, tensor: str) -> None:
    """Leave one output, and what it is computed from."""
    needed = {tensor}
    for node in reversed(graph.node):  # which stand behind those whose tensors they read
        if needed.intersection(node.output):
            needed.update(_reads(node))
    _keep(graph.node, lambda node: bool(needed.intersection(node.output)))
    _keep(graph.output, lambda output: output.name == tensor)
    _keep(graph.initializer, lambda weight: weight.name in needed)
    _keep(graph.value_info, lambda value: value.name in needed)


def _keep(entries: Any, wanted: Callable[[Any], bool]) -> None:
    kept = [entry for entry in entries if wanted(entry)]
    del entries[:]
    entries.extend(kept)


def _reads(node: NodeProto) -> Iterator[str]:
    """Names of the tensors that a node, or the graphs inside it, may read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)


def _check(path: Path, before: FaceOutputs, after: FaceOutputs) -> Parity:
    try:
        return compare_outputs(before, after)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
