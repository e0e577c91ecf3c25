"""A model without everything but its embedding, as other packages' ArcFace loaders want it.

insightface's ``ArcFaceONNX`` and uniface's ``BaseRecognizer`` refuse files with more than one output, feed RGB crops
as (x − 127.5) / 127.5, and bring the embedding to unit length themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from facerts.data.drawn import draw_face, draw_non_face
from facerts.embedder import OnnxEmbedder, load_embedder
from facerts.embedder.description import Description, Input, store_description
from facerts.errors import Error, MissingExtraError, ModelError

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

SUFFIX = ".onnx"
LEAST_COSINE = 0.99999
CHECKED_FACES, CHECKED_THINGS = 16, 8

# insightface takes a graph whose first 8 nodes have names that begin like these, one of each, for one that shifts and
# scales by itself, and feeds it bytes.
LOOKED_AT = 8
SHIFTS, SCALES = ("Sub", "_minus"), ("Mul", "_mul")


@dataclass(frozen=True)
class Kept:
    """How far the new file's embeddings are from the old one's.

    Attributes:
        crops: compared.
        cosine: the smallest between the two embeddings of a crop.
    """

    crops: int
    cosine: float


def keep_embedding(model: str | Path, out: str | Path) -> Kept:
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
        kept = _compare(embedder, OnnxEmbedder(part, description=description), path)
        store_description(part, description, out)
    return kept


def _check_input(path: Path, told: Input) -> None:
    """
    Raises:
        ModelError: the model would be fed something else than it wants, without anybody noticing.
    """
    fed = Input()
    for name in ("size", "layout", "colour", "mean", "std"):
        wants, gets = getattr(told, name), getattr(fed, name)
        if wants != gets:
            raise ModelError(
                f"{path}: the model wants its input with {name} {wants}, and other packages' ArcFace loaders would "
                f"feed {name} {gets}, so that it would give wrong embeddings there; no file was written"
            )


def _without_quality(told: Description) -> Description:
    outputs = {"embedding": told.outputs["embedding"]}
    if told.quality == "norm" and told.normalise_embedding:
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


def _compare(before: OnnxEmbedder, after: OnnxEmbedder, path: Path) -> Kept:
    faces = [draw_face(number, 0) for number in range(CHECKED_FACES)]
    crops = np.stack(faces + [draw_non_face(number) for number in range(CHECKED_THINGS)])
    wanted, got = before(crops).embedding.astype(np.float64), after(crops).embedding
    cosine = float(np.einsum("nd,nd->n", wanted, got).min())
    if not cosine >= LEAST_COSINE:
        raise ModelError(
            f"{path}: without its other outputs the model gives other embeddings: on {len(crops)} crops the smallest "
            f"cosine is {cosine:.7f}, and at least {LEAST_COSINE} is wanted; no file was written"
        )
    return Kept(len(crops), cosine)
