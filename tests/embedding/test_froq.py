"""FROQ of a recognizer, against its network, labels and greedy choice written out in NumPy."""

import numpy as np
import pytest

from facerts.embedding import load_embedder, recognizer_scores
from facerts.embedding.recognizer_scores import LayerNorms, choose_layers, norms_by_layer
from facerts.errors import DataError, ModelError
from facerts.onnx.graph_edit import load_graph
from tests.embedding.recognizers import (
    FLAT,
    POOLED,
    drawn_crops,
    flat_pixels,
    node,
    open_model,
    write_recognizer,
)
from tests.evaluation.conftest import Images
from tests.foreign import write_description, write_embedder

BRANCHES = 12
WIDTH = 6
RANDOM = np.random.default_rng(8)
KERNELS = RANDOM.normal(size=(BRANCHES, 147, WIDTH)).astype(np.float32)
BIASES = RANDOM.normal(size=(BRANCHES, WIDTH)).astype(np.float32)
LAST = RANDOM.normal(size=(BRANCHES * WIDTH, 8)).astype(np.float32)
BRANCHED = [
    POOLED,
    FLAT,
    *(
        each
        for number in range(BRANCHES)
        for each in (
            node("Gemm", ["flat", f"kernel {number}", f"bias {number}"], f"linear {number}"),
            node("Relu", [f"linear {number}"], f"rectified {number}"),
        )
    ),
    node("Concat", [f"rectified {number}" for number in range(BRANCHES)], "joined", axis=1),
    node("MatMul", ["joined", "last"], "vector"),
]
BRANCHED_TENSORS = {
    "last": LAST,
    **{f"kernel {number}": values for number, values in enumerate(KERNELS)},
    **{f"bias {number}": values for number, values in enumerate(BIASES)},
}


def layers_of(pixels, mean, std, bgr):
    """All layers of the branched network, in the order of its graph, of pixels ``(N, 112, 112, 3)``."""
    x = ((pixels[..., ::-1] if bgr else pixels).astype(np.float64) - mean) / std
    pooled = x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4)).transpose(0, 3, 1, 2)
    flat, layers = pooled.reshape(len(x), 147), {"pooled": pooled}
    for number in range(BRANCHES):
        layers[f"linear {number}"] = flat @ KERNELS[number] + BIASES[number]
        layers[f"rectified {number}"] = np.maximum(layers[f"linear {number}"], 0)
    layers["joined"] = np.concatenate([layers[f"rectified {number}"] for number in range(BRANCHES)], axis=1)
    layers["vector"] = layers["joined"] @ LAST
    return layers


def slow_label(crop, mean, std, bgr):
    """The mean of three mean cosines; noise is mixed into pixels, whose range is −1 to 1 for the authors."""
    masks = np.random.default_rng(0).standard_normal((3, 3, 112, 112), dtype=np.float32)
    masks = masks.transpose(0, 2, 3, 1)[..., :: -1 if bgr else 1]
    pixels = crop.astype(np.float64)
    noisy = [(1 - a) * pixels + a * (127.5 + 127.5 * mask) for a in recognizer_scores.STRENGTHS for mask in masks]
    occluded = []
    for top in range(0, 112, 14):
        for left in range(0, 112, 14):
            image = pixels.copy()
            image[top : top + 14, left : left + 14] = 0
            occluded.append(image)
    x = layers_of(pixels[None], mean, std, bgr)["vector"][0]
    means = []
    for changed in ([pixels[:, ::-1]], noisy, occluded):
        embeddings = layers_of(np.stack(changed), mean, std, bgr)["vector"]
        means.append(np.mean([x @ y / np.sqrt(x @ x * (y @ y)) for y in embeddings]))
    return sum(means) / 3


def slow_choice(norms, labels):
    """The greedy choice by SciPy's correlations; rounded, so that equal ones are equal."""
    stats = pytest.importorskip("scipy.stats")

    def rho(names):
        return round(float(stats.spearmanr(sum(norms[name] for name in names), labels)[0]), 9)

    best_first = [name for _, _, name in sorted((-rho([name]), i, name) for i, name in enumerate(norms))]
    prefixes, left = [best_first[:1]], best_first[1:10]
    while left:
        _, _, name = min((-rho([*prefixes[-1], name]), i, name) for i, name in enumerate(left))
        left.remove(name)
        prefixes.append([*prefixes[-1], name])
    return max(prefixes, key=rho)


@pytest.mark.parametrize("described", [{}, {"input_mean": [0] * 3, "input_std": [255] * 3, "input_color": "BGR"}])
def test_labels_layers_and_scores_are_those_of_a_slow_loop(tmp_path, described, monkeypatch):
    settings = (0.0, 255.0, True) if described else (127.5, 127.5, False)
    embedder = write_recognizer(tmp_path / "m.onnx", BRANCHED, BRANCHED_TENSORS, **described)
    calibration, judged = drawn_crops(24, seed=1), drawn_crops(5, seed=2)
    norms = {
        name: np.array([np.sqrt(np.sum(image**2)) for image in values])
        for name, values in layers_of(calibration, *settings).items()
    }
    assert len(norms) > recognizer_scores.LAYERS_AT_ONCE > recognizer_scores.CANDIDATES
    by_layer = norms_by_layer(embedder, load_graph(embedder.path, ""), calibration)
    assert list(by_layer) == list(norms)
    for name in norms:
        np.testing.assert_allclose(by_layer[name], norms[name], rtol=1e-5, atol=2e-5)
    labels = np.array([slow_label(crop, *settings) for crop in calibration])
    assert np.ptp(labels) > 0.01
    score = LayerNorms(embedder, Images(calibration))
    assert list(score.layers) == slow_choice(norms, labels)
    assert described or len(score.layers) > 1
    layers = layers_of(judged, *settings)
    expected = [np.mean([np.sqrt(np.sum(layers[name][i] ** 2)) for name in score.layers]) for i in range(5)]
    scores = score(judged)
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=2e-5)
    assert scores.dtype == np.float32
    # So strong that the formula of the noise matters.
    monkeypatch.setattr(recognizer_scores, "STRENGTHS", (0.1, 0.6))
    noise, other = (recognizer_scores.noise_masks(embedder, seed) for seed in (0, 1))
    found = [recognizer_scores.pseudo_quality(embedder, crop, noise) for crop in judged]
    np.testing.assert_allclose(found, [slow_label(crop, *settings) for crop in judged], atol=1e-6)
    assert recognizer_scores.pseudo_quality(embedder, judged[0], other) != found[0]


def test_a_fixed_batch_gives_the_same(tmp_path):
    calibration, crops = Images(drawn_crops(10, seed=5)), drawn_crops(7, seed=6)
    of_any, of_four = (
        write_recognizer(tmp_path / f"{batch}.onnx", BRANCHED, BRANCHED_TENSORS, batch) for batch in ("N", 4)
    )
    noise = recognizer_scores.noise_masks(of_any, 0)
    label = recognizer_scores.pseudo_quality(of_any, crops[0], noise)
    assert recognizer_scores.pseudo_quality(of_four, crops[0], noise) == pytest.approx(label, abs=1e-6)
    score, fixed = LayerNorms(of_any, calibration), LayerNorms(of_four, calibration)
    assert fixed.layers == score.layers
    np.testing.assert_allclose(fixed(crops), score(crops), rtol=1e-6)


@pytest.mark.parametrize("seed", range(8))
def test_the_greedy_choice_is_that_of_a_slow_loop(seed):
    random = np.random.default_rng(seed)
    labels = random.normal(size=60)
    norms = {
        str(number): np.exp(random.normal() + labels * random.random() + 2 * random.normal(size=60))
        for number in range(17)
    }
    chosen = list(choose_layers(norms, labels))
    assert chosen == slow_choice(norms, labels)
    assert 1 < len(chosen) < 10


@pytest.mark.parametrize("batch", ["N", 1])
def test_a_tensor_whose_rows_are_not_crops_is_no_layer(tmp_path, batch):
    weights = np.random.default_rng(0).normal(size=(147, 8)).astype(np.float32)
    nodes = [
        POOLED,
        FLAT,
        node("MatMul", ["flat", "weights"], "rows"),
        node("Transpose", ["rows"], "columns", perm=[1, 0]),
        node("Relu", ["columns"], "not rows"),
        node("Transpose", ["not rows"], "back", perm=[1, 0]),
        node("ReduceMax", ["columns"], "number", keepdims=0),
        node("Sigmoid", ["number"], "factor"),
        node("Mul", ["back", "factor"], "vector"),
    ]
    embedder = write_recognizer(tmp_path / "m.onnx", nodes, {"weights": weights}, batch)
    crops = drawn_crops(16, seed=4)
    assert weights.shape[1] == recognizer_scores.BATCH  # as many rows as crops, but in the first batch
    norms = norms_by_layer(embedder, load_graph(embedder.path, ""), crops)
    assert list(norms) == ["pooled", "rows", "vector"]
    np.testing.assert_allclose(norms["rows"], np.linalg.norm(flat_pixels(crops) @ weights, axis=1), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("unit", ["pooled", "linear", "length", "at least", "lengths"]),
        ("one image", ["pooled", "linear"]),
        ("half", ["pooled", "vector"]),
        ("double", ["pooled", "long vector"]),
    ],
)
def test_layers_depend_on_the_image_and_vary_in_norm(tmp_path, name, layers):
    embedder = open_model(tmp_path, name)
    norms = norms_by_layer(embedder, load_graph(embedder.path, ""), drawn_crops(10, seed=5))
    assert list(norms) == layers


def test_layers_of_another_output_take_no_part(tmp_path):
    path = write_description(write_embedder(tmp_path / "m.onnx", quality=True), quality="output:bright")
    embedder = load_embedder(path)
    norms = norms_by_layer(embedder, load_graph(path, ""), drawn_crops(10, seed=5))
    assert list(norms) == ["pooled", "vector"]
    assert len(LayerNorms(embedder, Images(drawn_crops(10, seed=5)))(drawn_crops(2, seed=6))) == 2


def test_only_evenly_spaced_faces_are_used(tmp_path, monkeypatch):
    monkeypatch.setattr(recognizer_scores, "MAX_FACES", 11)
    embedder, crops = open_model(tmp_path, "matmul"), drawn_crops(21, seed=7)
    every, second, first = (LayerNorms(embedder, Images(some)) for some in (crops, crops[::2], crops[:11]))
    assert every.sha256 == second.sha256 != first.sha256


def test_faces_that_cannot_order_layers_are_refused(tmp_path):
    embedder, crops = open_model(tmp_path, "matmul"), drawn_crops(9, seed=7)
    with pytest.raises(DataError, match=r"made: the score 'froq' needs at least 10 faces .* not 9"):
        LayerNorms(embedder, Images(crops))
    score = LayerNorms(embedder, Images(np.repeat(crops[:1], 10, axis=0)))
    with pytest.raises(ModelError, match=r"m\.onnx: .*no layer tells images apart"):
        score(crops)


def test_the_layers_are_chosen_when_they_are_needed(tmp_path, monkeypatch):
    embedder, crops = open_model(tmp_path, "matmul"), drawn_crops(10, seed=7)
    asked = []
    label = recognizer_scores.pseudo_quality
    monkeypatch.setattr(
        recognizer_scores,
        "pseudo_quality",
        lambda model, crop, noise: asked.append(crop) or label(model, crop, noise),
    )
    score = LayerNorms(embedder, Images(crops))
    assert not asked
    score(crops[:1])
    score(crops)
    assert len(asked) == 10
