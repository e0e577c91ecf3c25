"""SER-FIQ of a recognizer, against a loop over explicit masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.embedding.recognizer_scores.dropout import dropout_stability, stability
from facerts.errors import ModelError
from tests.embedding.recognizer_scores.models import BIAS, EPSILON, NORM, flat_pixels, open_model
from tests.foreign import weights

Crops = NDArray[np.uint8]
Floats = NDArray[np.floating]

SCALE, SHIFT, MEAN, VARIANCE = NORM
EMBED: dict[str, Callable[[Floats], Floats]] = {
    "matmul": lambda flat: flat @ weights(),
    "half": lambda flat: flat @ weights().astype(np.float16).astype(np.float32),
    "constant": lambda flat: flat @ weights(),
    "gemm and batch norm": lambda flat: (
        (flat @ weights() + BIAS - MEAN) / np.sqrt(VARIANCE + EPSILON) * SCALE + SHIFT
    ),
    "unit": lambda flat: flat @ weights() + BIAS,
    "one image": lambda flat: flat @ weights() + BIAS,
}


def slow_stability(embeddings: list[Floats]) -> float:
    units = [vector / math.sqrt(math.fsum(vector**2)) for vector in embeddings]
    distances = [
        math.sqrt(math.fsum((units[i] - units[j]) ** 2)) for i in range(len(units)) for j in range(i)
    ]
    return 2 / (1 + math.exp(math.fsum(distances) / len(distances)))


@pytest.mark.parametrize("name", EMBED)
@pytest.mark.parametrize(("rate", "seed"), [(0.5, 0), (0.2, 7)])
def test_it_is_the_stability_over_explicit_masks(
    tmp_path: Path, crops: Crops, name: str, rate: float, seed: int
) -> None:
    score = dropout_stability(open_model(tmp_path, name), passes=6, rate=rate, seed=seed)
    drawn = np.random.default_rng(seed).random((6, 147))
    expected = []
    for flat in flat_pixels(crops[:4]):
        passes = []
        for row in drawn:
            kept = [
                value / (1 - rate) if draw >= rate else 0.0 for value, draw in zip(flat, row, strict=True)
            ]
            passes.append(EMBED[name](np.array(kept)))
        expected.append(slow_stability(passes))
    scores = score(crops[:4])
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert scores.dtype == np.float32
    assert np.ptp(expected) > 1e-3


def test_the_stability_of_many_embeddings_is_that_of_a_loop_over_pairs() -> None:
    embeddings = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    assert stability(embeddings) == pytest.approx(
        slow_stability(list(embeddings.astype(np.float64))), abs=1e-12
    )
    close = embeddings[:1] + 1e-5 * embeddings
    # In float32, products would lose these distances.
    assert 1 - stability(close) == pytest.approx(1 - slow_stability(list(close.astype(np.float64))), rel=1e-4)
    assert 0 < 1 - stability(close) < 1e-5
    assert stability(np.ones((3, 4), dtype=np.float32)) == pytest.approx(1, abs=1e-7)
    assert stability(np.zeros((3, 4), dtype=np.float32)) < 0.5


def test_it_is_the_stability_of_a_training_run() -> None:
    torch = pytest.importorskip("torch")
    from facerts.training.classifier_scores.ser_fiq import stability as of_run

    embeddings = np.random.default_rng(0).normal(size=(20, 3, 16)).astype(np.float32)
    expected = of_run(torch.from_numpy(embeddings)).numpy()
    np.testing.assert_allclose([stability(embeddings[:, image]) for image in range(3)], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no layers", "its embedding is not computed by a linear layer from features"),
        ("layer on the image", "its embedding is not computed by a linear layer from features"),
        ("map", r"the input 'pooled' of its last linear layer is a map of \(3, 7, 7\) values"),
        ("around", "its embedding depends on more than 'flat', the input of its last linear layer"),
        ("number of channels", "the layers after 'flat' give another embedding by themselves"),
        ("double", "cannot load it"),
    ],
)
def test_a_model_that_does_not_end_in_a_linear_layer_is_refused(
    tmp_path: Path, name: str, reason: str
) -> None:
    with pytest.raises(ModelError, match=f"m.onnx: .*{reason}"):
        dropout_stability(open_model(tmp_path, name))
