"""FROQ: the mean norm of those layers whose norms follow how robustly the recognizer embeds calibration faces."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding.onnx_embedder import Floats, OnnxEmbedder, OnnxModel, batches_of, to_input
from facerts.embedding.outputs import Scores
from facerts.errors import DataError, ModelError
from facerts.images import CROP_SIZE
from facerts.io.progress import track
from facerts.metrics.reliability import spearman
from facerts.onnx.graph_edit import constant_names, keep_outputs, load_graph
from facerts.onnx.session import open_session, run_session

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto

PURPOSE = "the score 'froq'"
# Fewer faces do not order layers; more than the most take long, at 75 forward passes each.
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

Norms = NDArray[np.float64]


class LayerNorms:
    """``(N,)`` mean norm of those layers' outputs that calibration faces choose; higher is better, one forward pass.

    Babnik, Jain, Peer, Štruc: "FROQ: Observing Face Recognition Models for Efficient Quality Assessment", IJCB 2025
    (arXiv:2509.17689). As in the authors' code, but for these differences: a layer is the output of an operator of the
    graph on the way to the embedding, not of a PyTorch module; operators that leave the norm as it is and layers of
    constant norm are left out; noise has 3 masks instead of 10, drawn from the seed.

    The layers are chosen when they are first needed, so that scores in a cache take no forward pass.

    Args:
        embedder: the recognizer; its file is read again.
        calibration: aligned faces, at least 10, whose identities do not matter; at most 500, evenly spaced, are used.

    Attributes:
        sha256: SHA-256 of the crops by which the layers are chosen.

    Raises:
        ModelError: the file cannot be read; or, when layers are chosen, no layer's norm tells images apart.
        MissingExtraError: onnx is not installed.
        DataError: there are too few faces, or one cannot be read.
    """

    def __init__(self, embedder: OnnxEmbedder, calibration: Source, *, seed: int = 0) -> None:
        if len(calibration) < MIN_FACES:
            raise DataError(
                f"{calibration.name}: {PURPOSE} needs at least {MIN_FACES} faces to choose layers, "
                f"not {len(calibration)}"
            )
        load_graph(embedder.path, PURPOSE)  # its errors come now, not in the middle of an evaluation
        rows = np.linspace(0, len(calibration) - 1, min(MAX_FACES, len(calibration))).astype(int)
        self._crops = np.stack([calibration.crop(int(row)) for row in rows])
        self._embedder, self._seed = embedder, seed
        self.sha256 = hashlib.sha256(self._crops.tobytes()).hexdigest()

    def __call__(self, crops: NDArray[np.uint8]) -> Scores:
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
        norms = norms_by_layer(embedder, load_graph(embedder.path, PURPOSE), self._crops)
        if not norms or not np.ptp(labels):
            raise ModelError(f"{embedder.path}: the model cannot give {PURPOSE}: no layer tells images apart")
        return choose_layers(norms, labels)

    @cached_property
    def _model(self) -> OnnxModel:
        """The recognizer up to the chosen layers."""
        embedder = self._embedder
        outputs = {f"layer {number}": name for number, name in enumerate(self.layers)}
        return OnnxModel(
            embedder.path,
            content=_with_outputs(load_graph(embedder.path, PURPOSE), self.layers),
            description=embedder.description.model_copy(update={"outputs": outputs, "quality": "none"}),
            providers=embedder.providers,
            threads=embedder.threads,
            batch_size=embedder.batch_size,
        )


def noise_masks(embedder: OnnxEmbedder, seed: int) -> Floats:
    """Standard normal noise ``(MASKS, …)`` in the model's input, on the scale where black is −1 and white is 1."""
    ends = np.zeros((2, CROP_SIZE, CROP_SIZE, 3), dtype=np.uint8)
    ends[1] = 255
    black, white = to_input(ends, embedder.description.input)
    drawn = np.random.default_rng(seed).standard_normal((MASKS, *black.shape), dtype=np.float32)
    noise: Floats = (white + black) / 2 + drawn * (white - black) / 2
    return noise


def pseudo_quality(embedder: OnnxEmbedder, crop: NDArray[np.uint8], noise: Floats) -> float:
    """Mean of three mean cosines of a crop's embedding: with the mirrored, the occluded and the noisy crops.

    Args:
        noise: masks n; a noisy input is (1 − α) x + α n.
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
    vectors = np.concatenate(outputs).reshape(len(inputs), -1).astype(np.float64)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    changes = np.split(vectors[1:] @ vectors[0], [1, 1 + len(occluded)])
    return float(np.mean([cosines.mean() for cosines in changes]))


def norms_by_layer(embedder: OnnxEmbedder, model: ModelProto, crops: NDArray[np.uint8]) -> dict[str, Norms]:
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
        found: dict[str, list[Norms]] = {
            output.name: [] for output in session.get_outputs() if output.type in FLOATS
        }
        # One crop first: rows that are something else, such as attention heads, cannot be as many as the crops twice.
        for part in (crops[:1], crops[1:]) if found else ():
            for batch, count in batches_of(to_input(part, spec), spec.batch, BATCH):
                values = run_session(session, embedder.path, list(found), {spec.name: batch})
                for name, value in zip(found, values, strict=True):
                    if value.ndim and len(value) == len(batch):
                        found[name].append(norms_of(value[:count]))
        joined = {name: np.concatenate([np.empty(0), *parts]) for name, parts in found.items()}
        norms |= {
            name: every for name, every in joined.items() if len(every) == len(crops) and _varies(every)
        }
    return norms


def choose_layers(norms: Mapping[str, Norms], labels: Sequence[float] | Norms) -> tuple[str, ...]:
    """The layers whose mean norm agrees best with the labels, found greedily among the best single ones.

    Args:
        norms: ``(N,)`` by layer, at least one.
        labels: ``(N,)``.
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


def _varies(norms: Norms) -> bool:
    return bool(np.isfinite(norms).all() and np.ptp(norms) > MIN_RANGE * norms.max())


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
