"""SER-FIQ: stability of the embedding when features before the last linear layer are dropped at random."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.onnx_embedder import Floats, OnnxEmbedder, OnnxModel
from facerts.embedding.outputs import CropScore, Scores
from facerts.errors import ModelError
from facerts.images import CROP_SIZE
from facerts.onnx.graph_edit import WEIGHTED, constant_names, keep_outputs, load_graph, reads
from facerts.onnx.session import open_session, run_session

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

PURPOSE = "the score 'dropout'"
PASSES, RATE = 100, 0.5
FEATURES = "features"
# The cosine of an embedding computed at once and in two parts; lower, the cut is wrong.
MIN_AGREEMENT = 0.9999

# From features under dropout, ``(T, …)``, to embeddings ``(T, d)`` of any norm.
Tail = Callable[[Floats], Floats]


def dropout_stability(
    embedder: OnnxEmbedder, *, passes: int = PASSES, rate: float = RATE, seed: int = 0
) -> CropScore:
    """``(N,)`` 2 σ(−mean_{i<j} ‖y_i − y_j‖) of T unit embeddings under dropout, in (0, 1].

    Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
    Stochastic Embedding Robustness", CVPR 2020. The number of passes and the rate are those of the authors' code, and
    dropout is applied in the same place: before the last linear layer, whatever the recognizer was trained with. One
    difference: all images go through the same masks, so that a score depends on nothing but the image and the seed.
    ``facerts.training.classifier_scores`` computes the same for a training run.

    Args:
        embedder: the recognizer; its file is read again.
        passes: T, at least 2.
        rate: share of the features that a pass drops; the others are divided by 1 − rate.

    Returns:
        The score; it takes one forward pass, and T of the layers after the dropout.

    Raises:
        ModelError: the file cannot be read, or the embedding is not computed by a linear layer from one vector of
            features.
        MissingExtraError: onnx is not installed.
    """
    trunk, tail = _split(embedder)

    def of_crops(crops: NDArray[np.uint8]) -> Scores:
        scores: list[float] = []
        for start in range(0, len(crops), embedder.batch_size):
            features = trunk.tensors(crops[start : start + embedder.batch_size])[FEATURES]
            kept = keyed_masks(passes, features[0].size, rate, seed).reshape(passes, *features.shape[1:])
            scaled = features / np.float32(1 - rate)
            scores += [stability(tail(image * kept)) for image in scaled]
        return np.array(scores, dtype=np.float32)

    return of_crops


@lru_cache(maxsize=4)
def keyed_masks(passes: int, features: int, rate: float, seed: int) -> NDArray[np.bool_]:
    """The features that each pass keeps, ``(passes, features)``."""
    return np.random.default_rng(seed).random((passes, features)) >= rate


def stability(embeddings: Floats) -> float:
    """2 σ(−mean_{i<j} ‖y_i − y_j‖) of the unit vectors of T embeddings, ``(T, d)`` of any norm."""
    vectors = embeddings.astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    # In float64, products are exact enough for the distances of almost equal embeddings, and need no (T, T, d).
    upper = np.triu_indices(len(vectors), 1)
    squared = 2 - 2 * (vectors @ vectors.T)[upper]
    distance = np.sqrt(np.maximum(squared, 0)).mean()
    return float(2 / (1 + np.exp(distance)))


def _split(embedder: OnnxEmbedder) -> tuple[OnnxModel, Tail]:
    """The recognizer up to the input of its last linear layer, and the rest of it."""
    model = load_graph(embedder.path, PURPOSE)
    tap = _last_linear_input(model.graph, embedder.description.outputs["embedding"])
    if tap in (None, embedder.description.input.name):
        raise _cannot(embedder, "its embedding is not computed by a linear layer from features")
    trunk, tail = _trunk(embedder, model, tap), _tail(embedder, model, tap)
    crops = np.random.default_rng(0).integers(0, 256, (2, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    features = trunk.tensors(crops)[FEATURES]
    if features[0].size != max(features.shape[1:]):
        raise _cannot(
            embedder,
            f"the input {tap!r} of its last linear layer is a map of {features.shape[1:]} values, not a vector",
        )
    parts, whole = tail(features), embedder(crops).embedding
    parts /= np.maximum(np.linalg.norm(parts, axis=1, keepdims=True), 1e-12)
    if parts.shape != whole.shape or np.einsum("nd,nd->n", parts, whole).min() < MIN_AGREEMENT:
        raise _cannot(embedder, f"the layers after {tap!r} give another embedding by themselves")
    return trunk, tail


def _last_linear_input(graph: GraphProto, embedding: str) -> str | None:
    """The input of the last layer with a constant weight on the way to a tensor; None if there is none."""
    constant, needed = constant_names(graph), {embedding}
    for node in reversed(graph.node):
        if needed.isdisjoint(node.output):
            continue
        if node.op_type in WEIGHTED and node.input[1] in constant and node.input[0] not in constant:
            return str(node.input[0])
        needed.update(reads(node))
    return None


def _trunk(embedder: OnnxEmbedder, model: ModelProto, tap: str) -> OnnxModel:
    """The layers up to a tensor."""
    from onnx import ModelProto, TensorProto, helper

    part = ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:]
    part.graph.output.append(helper.make_tensor_value_info(tap, TensorProto.FLOAT, None))
    keep_outputs(part.graph, [tap])
    return OnnxModel(
        embedder.path,
        content=part.SerializeToString(),
        description=embedder.description.model_copy(update={"outputs": {FEATURES: tap}, "quality": "none"}),
        providers=embedder.providers,
        threads=embedder.threads,
        batch_size=embedder.batch_size,
    )


def _tail(embedder: OnnxEmbedder, model: ModelProto, tap: str) -> Tail:
    """The layers from a tensor to the embedding."""
    from onnx import ModelProto, TensorProto, helper

    image, embedding = embedder.description.input.name, embedder.description.outputs["embedding"]
    part = ModelProto()
    part.CopyFrom(model)
    graph = part.graph
    # Exported networks take the batch size from the shape of the image; here it is that of the features.
    for node in graph.node:
        if node.op_type == "Shape" and node.input[0] == image:
            node.input[0] = tap
    if image in keep_outputs(graph, [embedding], inputs=[tap]):
        raise _cannot(
            embedder, f"its embedding depends on more than {tap!r}, the input of its last linear layer"
        )
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(tap, TensorProto.FLOAT, None))
    session = open_session(
        embedder.path,
        content=part.SerializeToString(),
        providers=embedder.providers,
        threads=embedder.threads,
    )

    def of_features(features: Floats) -> Floats:
        # A model with a fixed batch size may have it in its last layers, too.
        step = embedder.description.input.batch or len(features)
        batches = (features[start : start + step] for start in range(0, len(features), step))
        outputs = [run_session(session, embedder.path, [embedding], {tap: batch})[0] for batch in batches]
        return np.concatenate(outputs).reshape(len(features), -1)

    return of_features


def _cannot(embedder: OnnxEmbedder, reason: str) -> ModelError:
    return ModelError(f"{embedder.path}: the model cannot give {PURPOSE}: {reason}")
