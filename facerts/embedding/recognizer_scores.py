"""Quality scores that a recognizer itself gives, by forward passes alone and without training.

Each is a function of crops; higher is better. The embedding's norm is one too; the embedder outputs it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding.onnx_embedder import Floats, OnnxEmbedder, OnnxModel, batches_of, to_input
from facerts.embedding.outputs import CropScore, Embedder, Scores
from facerts.errors import DataError, Error, ModelError, did_you_mean
from facerts.images import CROP_SIZE
from facerts.io.progress import track
from facerts.metrics.reliability import spearman
from facerts.onnx.graph_edit import WEIGHTED, constant_names, constants, keep_outputs, load_graph, reads
from facerts.onnx.session import open_session, run_session

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, TensorProto

Norms = NDArray[np.float64]
Crops = NDArray[np.uint8]

# As errors call them.
PRUNING, DROPOUT, FROQ = "the score 'pruning'", "the score 'dropout'", "the score 'froq'"

# Share of the weights that pruning removes; chosen on held-out people, see docs/results/your_recognizer.md.
SPARSITY = 0.2

# Passes of dropout, the share of the features that each drops, and the role of the tensor that they are taken from.
PASSES, RATE, FEATURES = 100, 0.5, "features"
# The cosine of an embedding computed at once and in two parts; lower, the cut is wrong.
MIN_AGREEMENT = 0.9999

# FROQ: fewer faces do not order layers; more than the most take long, at 75 forward passes each.
MIN_FACES, MAX_FACES = 10, 500
# The changes of a crop: a square at a time, and strengths of noise, each with the same masks.
SQUARE, STRENGTHS, MASKS = 14, (0.001, 0.002, 0.005), 3
CANDIDATES = 10
# Outputs of layers are large: so many crops and layers are in memory at a time.
BATCH, LAYERS_AT_ONCE = 8, 20
# Operators that move values but leave the norm as it is, and so would only repeat another layer.
MOVES = frozenset(("Cast", "Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
FLOATS = frozenset(f"tensor({kind})" for kind in ("float", "float16", "double"))
# The norm of a layer of unit vectors differs between images by rounding only.
MIN_RANGE = 1e-5


def open_recognizer_scores(
    embedder: OnnxEmbedder,
    names: Sequence[str] | None = None,
    *,
    seed: int = 0,
    calibration: Source | None = None,
) -> dict[str, CropScore]:
    """Open the scores of a recognizer.

    Args:
        embedder: the recognizer; all scores but "mirror" read its file again, for which onnx must be installed.
        names: names from ``RECOGNIZER_SCORES``; None for all that its graph allows, "froq" only with ``calibration``.
        calibration: aligned faces by which "froq" chooses layers, apart from those that are judged.
    """
    scores = {}
    possible = [name for name in RECOGNIZER_SCORES if name != "froq" or calibration is not None]
    for name in possible if names is None else names:
        if name not in RECOGNIZER_SCORES:
            hint = did_you_mean(name, RECOGNIZER_SCORES) or f"; available: {', '.join(RECOGNIZER_SCORES)}"
            raise Error(f"no score {name!r} of a recognizer{hint}")
        try:
            scores[name] = RECOGNIZER_SCORES[name](embedder, seed, calibration)
        except ModelError:
            if names is not None:
                raise
    return scores


def mirror_agreement(embedder: Embedder) -> CropScore:
    """``(N,)`` cosine of the embeddings of each crop and its mirror image, from −1 to 1; two forward passes.

    This is the symmetry estimation of FaceQAN: Babnik, Peer, Štruc, "FaceQAN: Face Image Quality Assessment Through
    Adversarial Noise Exploration", ICPR 2022, as in the authors' code. There it is one factor of the score, next to the
    response to adversarial noise, which needs gradients; here it stands alone.
    """

    def of_crops(crops: Crops) -> Scores:
        mirrored = embedder(crops[:, :, ::-1])
        cosine: Scores = np.einsum("nd,nd->n", embedder(crops).embedding, mirrored.embedding)
        return cosine

    return of_crops


def pruning_stability(embedder: OnnxEmbedder, sparsity: float = SPARSITY) -> CropScore:
    """``(N,)`` minus the distance between the unit embeddings of a recognizer and of its pruned copy, from −2 to 0.

    Kolf, Ozgur, Atzori, Babnik, Štruc, Damer, Boutros: "PreFIQs: Face Image Quality Is What Survives Pruning", CVPR
    Workshops 2026 (arXiv:2605.13396). The distance is the paper's. Our choices are what is pruned (the weights of
    convolutions and linear layers, within each layer the smallest by magnitude) and the default sparsity, the share of
    the weights of each layer that are set to zero, at least 0 and below 1. Takes two forward passes.
    """
    if not 0 <= sparsity < 1:
        raise Error(f"the sparsity must be at least 0 and below 1, not {sparsity:g}")
    model = load_graph(embedder.path, PRUNING)
    prune(_weights(model.graph, embedder.path), sparsity)
    pruned = embedder.with_graph(model.SerializeToString())

    def of_crops(crops: Crops) -> Scores:
        distance: Scores = np.linalg.norm(embedder(crops).embedding - pruned.outputs(crops).embedding, axis=1)
        return -distance

    return of_crops


def prune(weights: Sequence[TensorProto], sparsity: float) -> None:
    """Set the smallest of each layer's weights to zero, a share of them; fewer, rather than tell equal ones apart."""
    from onnx import numpy_helper

    for tensor in weights:
        values = numpy_helper.to_array(tensor)
        if not values.size:
            continue
        magnitudes = np.abs(values).astype(np.float32)
        pruned = np.where(magnitudes < np.quantile(magnitudes, sparsity), values.dtype.type(0), values)
        tensor.CopyFrom(numpy_helper.from_array(pruned, tensor.name))


def _weights(graph: GraphProto, path: Path) -> list[TensorProto]:
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


def dropout_stability(embedder: OnnxEmbedder, *, passes: int = PASSES, rate: float = RATE, seed: int = 0) -> CropScore:
    """``(N,)`` SER-FIQ: ``stability`` of T embeddings whose features are dropped at random, in (0, 1].

    Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
    Stochastic Embedding Robustness", CVPR 2020. The number of passes and the rate are those of the authors' code, and
    dropout is applied in the same place: before the last linear layer, whatever the recognizer was trained with. One
    difference: all images go through the same masks, so that a score depends on nothing but the image and the seed.
    Takes one forward pass, and T of the layers after the dropout.

    Args:
        passes: T, at least 2.
        rate: share of the features that a pass drops; the others are divided by 1 − rate.
    """
    trunk, tail = _split(embedder)

    def of_crops(crops: Crops) -> Scores:
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


def stability(embeddings: NDArray[np.floating]) -> float:
    """2 σ(−mean_{i<j} ‖y_i − y_j‖) of the unit vectors of T embeddings, ``(T, d)`` of any norm, in (0, 1].

    The mean is over the pairs, as in the authors' code.
    """
    vectors = _unit(embeddings)
    # In float64, products are exact enough for the distances of almost equal embeddings, and need no (T, T, d).
    upper = np.triu_indices(len(vectors), 1)
    squared = 2 - 2 * (vectors @ vectors.T)[upper]
    distance = np.sqrt(np.maximum(squared, 0)).mean()
    return float(2 / (1 + np.exp(distance)))


def _split(embedder: OnnxEmbedder) -> tuple[OnnxModel, Callable[[Floats], Floats]]:
    """The recognizer up to the input of its last linear layer, and the rest of it, to embeddings of any norm."""
    model = load_graph(embedder.path, DROPOUT)
    tap = _last_linear_input(model.graph, embedder.description.outputs["embedding"])
    if tap is None or tap == embedder.description.input.name:
        raise _cannot(embedder, "its embedding is not computed by a linear layer from features")
    trunk = embedder.with_graph(_with_outputs(model, [tap]), {FEATURES: tap})
    tail = _tail(embedder, model, tap)
    crops = np.random.default_rng(0).integers(0, 256, (2, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    features = trunk.tensors(crops)[FEATURES]
    if features[0].size != max(features.shape[1:]):
        raise _cannot(
            embedder,
            f"the input {tap!r} of its last linear layer is a map of {features.shape[1:]} values, not a vector",
        )
    parts, whole = _unit(tail(features)), embedder(crops).embedding
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


def _tail(embedder: OnnxEmbedder, model: ModelProto, tap: str) -> Callable[[Floats], Floats]:
    """The layers from a tensor to the embedding."""
    from onnx import TensorProto, helper

    image, embedding = embedder.description.input.name, embedder.description.outputs["embedding"]
    graph = model.graph
    # Exported networks take the batch size from the shape of the image; here it is that of the features.
    for node in graph.node:
        if node.op_type == "Shape" and node.input[0] == image:
            node.input[0] = tap
    if image in keep_outputs(graph, [embedding], inputs=[tap]):
        raise _cannot(embedder, f"its embedding depends on more than {tap!r}, the input of its last linear layer")
    del graph.input[:]
    graph.input.append(helper.make_tensor_value_info(tap, TensorProto.FLOAT, None))
    session = open_session(
        embedder.path,
        content=model.SerializeToString(),
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


def _cannot(embedder: OnnxEmbedder, reason: str, score: str = DROPOUT) -> ModelError:
    return ModelError(f"{embedder.path}: the model cannot give {score}: {reason}")


class LayerNorms:
    """``(N,)`` FROQ: mean norm of those layers whose norms follow how robustly the recognizer embeds calibration faces.

    Babnik, Jain, Peer, Štruc: "FROQ: Observing Face Recognition Models for Efficient Quality Assessment", IJCB 2025
    (arXiv:2509.17689). As in the authors' code, but for these differences: a layer is the output of an operator of the
    graph on the way to the embedding, not of a PyTorch module; operators that leave the norm as it is and layers of
    constant norm are left out; noise has 3 masks instead of 10, drawn from the seed.

    Takes one forward pass. The layers are chosen when they are first needed, so that scores in a cache take none.

    Args:
        calibration: aligned faces, at least 10, whose identities do not matter; at most 500, evenly spaced, are used.

    Attributes:
        sha256: SHA-256 of the crops by which the layers are chosen.
    """

    def __init__(self, embedder: OnnxEmbedder, calibration: Source, *, seed: int = 0) -> None:
        if len(calibration) < MIN_FACES:
            raise DataError(
                f"{calibration.name}: {FROQ} needs at least {MIN_FACES} faces to choose layers, not {len(calibration)}"
            )
        load_graph(embedder.path, FROQ)  # its errors come now, not in the middle of an evaluation
        rows = np.linspace(0, len(calibration) - 1, min(MAX_FACES, len(calibration))).astype(int)
        self._crops = np.stack([calibration.crop(int(row)) for row in rows])
        self._embedder, self._seed = embedder, seed
        self.sha256 = hashlib.sha256(self._crops.tobytes()).hexdigest()

    def __call__(self, crops: Crops) -> Scores:
        scores: list[Norms] = [np.empty(0)]
        step = self._embedder.description.input.batch or BATCH
        for start in range(0, len(crops), step):
            tensors = self._model.tensors(crops[start : start + step])
            scores.append(np.mean([norms_of(values) for values in tensors.values()], axis=0))
        return np.concatenate(scores).astype(np.float32)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Names of the chosen layers' tensors, in the order in which they were chosen."""
        embedder, noise = self._embedder, noise_masks(self._embedder, self._seed)
        crops = track(self._crops, f"choosing layers of {embedder.name}")
        labels = [pseudo_quality(embedder, crop, noise) for crop in crops]
        norms = norms_by_layer(embedder, load_graph(embedder.path, FROQ), self._crops)
        if not norms or not np.ptp(labels):
            raise _cannot(embedder, "no layer tells images apart", FROQ)
        return choose_layers(norms, labels)

    @cached_property
    def _model(self) -> OnnxModel:
        """The recognizer up to the chosen layers."""
        graph = load_graph(self._embedder.path, FROQ)
        outputs = {f"layer {number}": name for number, name in enumerate(self.layers)}
        return self._embedder.with_graph(_with_outputs(graph, self.layers), outputs)


def noise_masks(embedder: OnnxEmbedder, seed: int) -> Floats:
    """Standard normal noise ``(MASKS, …)`` in the model's input, on the scale where black is −1 and white is 1."""
    ends = np.zeros((2, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    ends[1] = 255
    black, white = to_input(ends, embedder.description.input)
    drawn = np.random.default_rng(seed).standard_normal((MASKS, *black.shape), dtype=np.float32)
    noise: Floats = (white + black) / 2 + drawn * (white - black) / 2
    return noise


def pseudo_quality(embedder: OnnxEmbedder, crop: Crops, noise: Floats) -> float:
    """Mean of three mean cosines of a crop's embedding: with the mirrored, the occluded and the noisy crops.

    A noisy input is (1 − α) x + α n, with a mask n of ``noise``.
    """
    starts = range(0, CROP_SIZE, SQUARE)
    occluded = np.repeat(crop[None], len(starts) ** 2, axis=0)
    for image, (top, left) in zip(occluded, ((y, x) for y in starts for x in starts), strict=True):
        image[top : top + SQUARE, left : left + SQUARE] = 0
    spec = embedder.description.input
    images = to_input(np.concatenate([crop[None], crop[None, :, ::-1], occluded]), spec)
    noisy = [(1 - alpha) * images[:1] + alpha * noise for alpha in STRENGTHS]
    inputs = np.concatenate([images, *noisy])
    embedding = [embedder.description.outputs["embedding"]]
    outputs = [
        run_session(embedder.session, embedder.path, embedding, {spec.name: batch})[0][:count]
        for batch, count in batches_of(inputs, spec.batch, embedder.batch_size)
    ]
    vectors = _unit(np.concatenate(outputs).reshape(len(inputs), -1))
    changes = np.split(vectors[1:] @ vectors[0], [1, 1 + len(occluded)])
    return float(np.mean([cosines.mean() for cosines in changes]))


def norms_by_layer(embedder: OnnxEmbedder, model: ModelProto, crops: Crops) -> dict[str, Norms]:
    """Norms ``(N,)`` of each layer that has one row per crop, in the order of the graph, unless they are constant."""
    names = _layers(model.graph, embedder.description.outputs["embedding"])
    spec = embedder.description.input
    norms: dict[str, Norms] = {}
    for start in track(range(0, len(names), LAYERS_AT_ONCE), f"layers of {embedder.name}", unit="groups"):
        session = open_session(
            embedder.path,
            content=_with_outputs(model, names[start : start + LAYERS_AT_ONCE]),
            providers=embedder.providers,
            threads=embedder.threads,
        )
        found: dict[str, list[Norms]] = {output.name: [] for output in session.get_outputs() if output.type in FLOATS}
        # One crop first: rows that are something else, such as attention heads, cannot be as many as the crops twice.
        for part in (crops[:1], crops[1:]) if found else ():
            for batch, count in batches_of(to_input(part, spec), spec.batch, BATCH):
                values = run_session(session, embedder.path, list(found), {spec.name: batch})
                for name, value in zip(found, values, strict=True):
                    if value.ndim and len(value) == len(batch):
                        found[name].append(norms_of(value[:count]))
        joined = {name: np.concatenate([np.empty(0), *parts]) for name, parts in found.items()}
        for name, every in joined.items():
            if len(every) == len(crops) and np.isfinite(every).all() and np.ptp(every) > MIN_RANGE * every.max():
                norms[name] = every
    return norms


def choose_layers(norms: Mapping[str, Norms], labels: Sequence[float] | Norms) -> tuple[str, ...]:
    """The layers whose mean norm agrees best with the labels, found greedily among the best single ones.

    Norms, of at least one layer, and labels are ``(N,)``.
    """

    def agreement(*layers: str) -> float:
        return spearman(np.mean([norms[layer] for layer in layers], axis=0), labels)

    candidates = sorted(norms, key=agreement, reverse=True)[:CANDIDATES]
    chosen: list[str] = []
    reached: list[float] = []
    while candidates:
        best = max(candidates, key=lambda layer: agreement(*chosen, layer))
        candidates.remove(best)
        chosen.append(best)
        reached.append(agreement(*chosen))
    return tuple(chosen[: 1 + int(np.argmax(reached))])


def norms_of(values: NDArray[np.floating]) -> Norms:
    """L2 norm ``(N,)`` of each row of a tensor ``(N, …)``."""
    norms: Norms = np.linalg.norm(values.reshape(len(values), -1).astype(np.float64), axis=1)
    return norms


def _unit(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.maximum(norms_of(vectors), 1e-12)[:, None])


def _layers(graph: GraphProto, embedding: str) -> list[str]:
    """The tensors on the way to the embedding that depend on the image, without those that repeat another's norm."""
    needed = type(graph)()
    needed.CopyFrom(graph)
    keep_outputs(needed, [embedding])
    constant = constant_names(graph) | {""}
    computed = [name for node in needed.node if node.op_type not in MOVES for name in node.output]
    return [name for name in computed if name not in constant]


def _with_outputs(model: ModelProto, names: Sequence[str]) -> bytes:
    """A copy of a model that computes and outputs only these tensors."""
    from onnx import ModelProto, ValueInfoProto

    part = ModelProto()
    part.CopyFrom(model)
    del part.graph.output[:]
    # ONNX Runtime infers their types.
    part.graph.output.extend(ValueInfoProto(name=name) for name in names)
    keep_outputs(part.graph, names)
    content: bytes = part.SerializeToString()
    return content


def _froq(embedder: OnnxEmbedder, seed: int, calibration: Source | None) -> CropScore:
    if calibration is None:
        raise Error(
            "the score 'froq' needs faces to choose a recognizer's layers by: name some, apart from those that are "
            "judged, with --calibrate-scores (in Python: calibration=open_images(...))"
        )
    return LayerNorms(embedder, calibration, seed=seed)


# How each is opened with a seed and calibration faces, by its name in results, in the order of tables.
RECOGNIZER_SCORES: dict[str, Callable[[OnnxEmbedder, int, Source | None], CropScore]] = {
    "mirror": lambda embedder, _seed, _faces: mirror_agreement(embedder),
    "pruning": lambda embedder, _seed, _faces: pruning_stability(embedder),
    "dropout": lambda embedder, seed, _faces: dropout_stability(embedder, seed=seed),
    "froq": _froq,
}
