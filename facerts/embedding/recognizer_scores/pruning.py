"""Stability of the embedding when the recognizer's smallest weights are removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import OnnxEmbedder
from facerts.embedding.outputs import CropScore, Scores
from facerts.errors import Error, ModelError
from facerts.onnx.graph_edit import WEIGHTED, constant_names, constants, load_graph

if TYPE_CHECKING:
    from onnx import GraphProto, TensorProto

# Chosen on held-out people; see docs/results/quality.md.
SPARSITY = 0.2


def pruning_stability(embedder: OnnxEmbedder, sparsity: float = SPARSITY) -> CropScore:
    """``(N,)`` minus the distance between the unit embeddings of a recognizer and of its pruned copy, from −2 to 0.

    Kolf, Ozgur, Atzori, Babnik, Štruc, Damer, Boutros: "PreFIQs: Face Image Quality Is What Survives Pruning", CVPR
    Workshops 2026 (arXiv:2605.13396). The distance is the paper's. Our choices are what is pruned (the weights of
    convolutions and linear layers, within each layer the smallest by magnitude) and the default sparsity.

    Args:
        embedder: the recognizer; its file is read again.
        sparsity: share of the weights of each layer that are set to zero.

    Returns:
        The score; it takes two forward passes.

    Raises:
        ModelError: the file cannot be read, or its weights are not stored in floating point.
        MissingExtraError: onnx is not installed.
        Error: the sparsity is not a share below 1.
    """
    if not 0 <= sparsity < 1:
        raise Error(f"the sparsity must be at least 0 and below 1, not {sparsity:g}")
    model = load_graph(embedder.path, "the score 'pruning'")
    prune(_weights(model.graph, embedder.path), sparsity)
    pruned = OnnxEmbedder(
        embedder.path,
        content=model.SerializeToString(),
        description=embedder.description,
        providers=embedder.providers,
        threads=embedder.threads,
        batch_size=embedder.batch_size,
    )

    def of_crops(crops: NDArray[np.uint8]) -> Scores:
        distance: Scores = np.linalg.norm(embedder(crops).embedding - pruned(crops).embedding, axis=1)
        return -distance

    return of_crops


def prune(weights: Sequence[TensorProto], sparsity: float) -> None:
    """Set the smallest weights of each layer to zero.

    Args:
        sparsity: share of the weights of each layer to set to zero; fewer, where weights of the same magnitude would
            have to be told apart.
    """
    from onnx import numpy_helper

    for tensor in weights:
        values = numpy_helper.to_array(tensor)
        if not values.size:
            continue
        magnitudes = np.abs(values).astype(np.float32)
        pruned = np.where(magnitudes < np.quantile(magnitudes, sparsity), values.dtype.type(0), values)
        tensor.CopyFrom(numpy_helper.from_array(pruned, tensor.name))


def _weights(graph: GraphProto, path: Path) -> list[TensorProto]:
    """The weights of convolutions and linear layers."""
    from onnx import TensorProto

    stored, constant = constants(graph), constant_names(graph)
    casts = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "Cast"}
    weights = {}
    for node in graph.node:
        if node.op_type not in WEIGHTED or node.input[1] not in constant:
            continue
        name = casts.get(node.input[1], node.input[1])
        tensor = stored.get(name)
        if tensor is None or tensor.data_type not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            raise ModelError(
                f"{path}: the weight {name!r} is not stored in floating point, so it cannot be pruned; give the "
                "model as it was before quantization"
            )
        weights[name] = tensor
    if not weights:
        raise ModelError(f"{path}: it has no convolutions or linear layers whose weights could be pruned")
    return list(weights.values())
