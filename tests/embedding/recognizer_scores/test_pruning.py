"""Stability of the embedding when the smallest weights are removed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from facerts.embedding.recognizer_scores.pruning import prune, pruning_stability
from facerts.errors import Error, ModelError
from tests.embedding.recognizer_scores.models import BIAS, EPSILON, NORM, flat_pixels, open_model
from tests.foreign import weights

Crops = NDArray[np.uint8]
Floats = NDArray[np.floating]


def slowly_pruned(values: Floats, sparsity: float) -> Floats:
    """Without the values below the quantile of the magnitudes, which lies between two of them."""
    magnitudes = sorted(abs(float(value)) for value in values.flat)
    whole, part = divmod(sparsity * (len(magnitudes) - 1), 1)
    low, high = magnitudes[int(whole)], magnitudes[min(int(whole) + 1, len(magnitudes) - 1)]
    limit = low + part * (high - low)
    pruned = [float(value) if abs(float(value)) >= limit else 0.0 for value in values.flat]
    return np.array(pruned).reshape(values.shape)


def unit(vectors: Floats) -> Floats:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("sparsity", [0.25, 0.75])
@pytest.mark.parametrize("name", ["matmul", "half", "constant", "gemm and batch norm"])
def test_it_is_minus_the_distance_to_the_embedding_with_pruned_weights(
    tmp_path: Path, crops: Crops, name: str, sparsity: float
) -> None:
    def embed(matrix: Floats) -> Floats:
        vectors = flat_pixels(crops) @ matrix
        if name == "gemm and batch norm":  # biases and BatchNorm are left as they are
            scale, shift, mean, variance = NORM
            vectors = (vectors + BIAS - mean) / np.sqrt(variance + EPSILON) * scale + shift
        return unit(vectors)

    stored = weights().astype(np.float16 if name == "half" else np.float32)
    expected = -np.linalg.norm(embed(stored) - embed(slowly_pruned(stored, sparsity)), axis=1)
    scores = pruning_stability(open_model(tmp_path, name), sparsity)(crops)
    np.testing.assert_allclose(scores, expected, atol=3e-6)
    assert scores.dtype == np.float32
    assert scores.max() < -0.01


def test_each_layer_loses_its_own_smallest_weights() -> None:
    small, large = weights(seed=1) / np.float32(1000), weights(seed=2)
    stored = [numpy_helper.from_array(values, "w") for values in (small, large)]
    prune(stored, 0.2)
    for tensor, values in zip(stored, (small, large), strict=True):
        assert np.array_equal(numpy_helper.to_array(tensor), slowly_pruned(values, 0.2).astype(np.float32))


def test_the_share_is_exact_unless_magnitudes_are_equal() -> None:
    different, equal = (
        numpy_helper.from_array(np.array(values, dtype=np.float32), "w")
        for values in ([[4, -1, 3, 2], [-5, 6, -8, 7]], [[1, -1, 1, 2], [0, 2, 1, -2]])
    )
    prune([different, equal], 0.5)
    assert numpy_helper.to_array(different).tolist() == [[0, 0, 0, 0], [-5, 6, -8, 7]]
    assert numpy_helper.to_array(equal).tolist() == [[1, -1, 1, 2], [0, 2, 1, -2]]


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(tmp_path: Path, sparsity: float) -> None:
    with pytest.raises(Error, match="the sparsity must be at least 0 and below 1, not"):
        pruning_stability(open_model(tmp_path, "matmul"), sparsity)


def test_the_file_and_the_embedder_are_left_as_they_are(tmp_path: Path, crops: Crops) -> None:
    embedder = open_model(tmp_path, "conv and matmul")
    file, embedding = embedder.path.read_bytes(), embedder(crops).embedding
    pruning_stability(embedder, 0.5)(crops)
    assert embedder.path.read_bytes() == file
    assert np.array_equal(embedder(crops).embedding, embedding)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no layers", "has no convolutions or linear layers whose weights could be pruned"),
        ("quantized", "the weight 'weights' is not stored in floating point"),
        ("double", "the weight 'double' is not stored in floating point"),
    ],
)
def test_a_model_without_weights_to_prune_is_refused(tmp_path: Path, name: str, reason: str) -> None:
    with pytest.raises(ModelError, match=f"m.onnx: .*{reason}"):
        pruning_stability(open_model(tmp_path, name))
