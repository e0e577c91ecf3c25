"""The scores of a recognizer: by name, what holds for all of them, and each but FROQ against a slow loop."""

import math
import sys

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.embedding.recognizer_scores import (
    dropout_stability,
    open_recognizer_scores,
    prune,
    pruning_stability,
    stability,
)
from facerts.errors import Error, MissingExtraError, ModelError
from tests.embedding.recognizers import BIAS, EPSILON, NORM, drawn_crops, flat_pixels, open_model
from tests.evaluation.conftest import Images
from tests.foreign import slow_embedding, weights, write_description, write_embedder

SCALE, SHIFT, MEAN, VARIANCE = NORM
# The embedding of each model for the weight of its linear layer.
EMBED = {
    "matmul": lambda flat, matrix: flat @ matrix,
    "half": lambda flat, matrix: flat @ matrix.astype(np.float16).astype(np.float32),
    "constant": lambda flat, matrix: flat @ matrix,
    "gemm and batch norm": lambda flat, matrix: (
        (flat @ matrix + BIAS - MEAN) / np.sqrt(VARIANCE + EPSILON) * SCALE + SHIFT
    ),
    "unit": lambda flat, matrix: flat @ matrix + BIAS,
    "one image": lambda flat, matrix: flat @ matrix + BIAS,
}


@pytest.mark.parametrize(
    ("name", "possible"),
    [("no layers", ["mirror"]), ("map", ["mirror", "pruning"]), ("quantized", ["mirror", "dropout"])],
)
def test_only_the_scores_that_the_graph_allows_are_opened(tmp_path, drawn_faces, name, possible):
    embedder = open_model(tmp_path, name)
    assert list(open_recognizer_scores(embedder)) == possible
    faces = open_source(drawn_faces)
    assert list(open_recognizer_scores(embedder, calibration=faces)) == [*possible, "froq"]
    for score in {"mirror", "pruning", "dropout"} - set(possible):
        with pytest.raises(ModelError, match=r"m\.onnx"):
            open_recognizer_scores(embedder, [score])


def test_the_seed_is_that_of_the_masks(tmp_path, crops):
    embedder = open_model(tmp_path, "matmul")
    first, other = (open_recognizer_scores(embedder, ["dropout"], seed=seed)["dropout"](crops) for seed in (0, 1))
    assert np.array_equal(open_recognizer_scores(embedder, ["dropout"])["dropout"](crops), first)
    assert not np.array_equal(other, first)


def test_unknown_scores_and_layers_without_faces_are_refused(tmp_path):
    embedder = open_model(tmp_path, "matmul")
    with pytest.raises(Error, match="no score 'droput' of a recognizer, did you mean 'dropout'"):
        open_recognizer_scores(embedder, ["droput"])
    with pytest.raises(Error, match=r"'froq' needs faces .* --calibrate-scores"):
        open_recognizer_scores(embedder, ["froq"])


@pytest.mark.parametrize("name", ["conv and matmul", "unit", "one image"])
@pytest.mark.parametrize("score", ["mirror", "pruning", "dropout", "froq"])
def test_a_score_does_not_depend_on_the_batch(tmp_path, name, score):
    calibration, crops = Images(drawn_crops(10, seed=5)), drawn_crops(11, seed=6)
    tolerance = {"rtol": 1e-6} if score == "froq" else {"atol": 1e-6}
    usual, few = (
        open_recognizer_scores(open_model(tmp_path, name, **options), [score], calibration=calibration)[score]
        for options in ({}, {"batch_size": 5})
    )
    whole = usual(crops)
    np.testing.assert_allclose(few(crops), whole, **tolerance)
    alone = np.concatenate([few(crops[i : i + 1]) for i in reversed(range(len(crops)))])
    np.testing.assert_allclose(alone[::-1], whole, **tolerance)
    assert few(crops[:0]).shape == (0,)
    assert np.ptp(whole) > 1e-4


def test_the_scores_of_our_own_export_are_all_there(exported):
    assert tuple(open_recognizer_scores(load_embedder(exported))) == ("mirror", "pruning", "dropout")


@pytest.mark.parametrize("score", ["pruning", "dropout", "froq"])
def test_a_file_that_is_gone_or_broken_or_has_its_weights_elsewhere_is_refused(tmp_path, drawn_faces, score):
    faces = open_source(drawn_faces)
    embedder = open_model(tmp_path, "matmul")
    model = onnx.load(str(embedder.path))
    onnx.save(model, str(embedder.path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    with pytest.raises(ModelError, match=r"m\.onnx: .* but 'matrix' is in another"):
        open_recognizer_scores(load_embedder(embedder.path), [score], calibration=faces)
    embedder.path.write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"m\.onnx: onnx cannot read it"):
        open_recognizer_scores(embedder, [score], calibration=faces)
    embedder.path.unlink()
    with pytest.raises(ModelError, match=r"m\.onnx: .* it is gone; if it was in a model pack"):
        open_recognizer_scores(embedder, [score], calibration=faces)


def test_only_the_mirror_does_without_onnx(tmp_path, crops, monkeypatch):
    embedder = open_model(tmp_path, "matmul")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert len(open_recognizer_scores(embedder, ["mirror"])["mirror"](crops)) == len(crops)
    for names in (None, ["pruning"], ["dropout"]):
        with pytest.raises(MissingExtraError, match=r"needs onnx: .*pip install '\.\[cpu\]'"):
            open_recognizer_scores(embedder, names)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_the_mirror_is_the_cosine_with_the_mirrored_crop(tmp_path, crops, layout):
    model = write_description(write_embedder(tmp_path / "m.onnx", layout=layout), input_layout=layout)
    scores = open_recognizer_scores(load_embedder(model), ["mirror"])["mirror"](crops)
    a, b = slow_embedding(crops), slow_embedding(np.stack([np.fliplr(crop) for crop in crops]))
    expected = [x @ y / np.sqrt(x @ x * (y @ y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert scores.dtype == np.float32


def slowly_pruned(values, sparsity):
    """Without the values below the quantile of the magnitudes, which lies between two of them."""
    magnitudes = sorted(abs(float(value)) for value in values.flat)
    whole, part = divmod(sparsity * (len(magnitudes) - 1), 1)
    low, high = magnitudes[int(whole)], magnitudes[min(int(whole) + 1, len(magnitudes) - 1)]
    limit = low + part * (high - low)
    pruned = [float(value) if abs(float(value)) >= limit else 0.0 for value in values.flat]
    return np.array(pruned).reshape(values.shape)


@pytest.mark.parametrize("sparsity", [0.25, 0.75])
@pytest.mark.parametrize("name", ["matmul", "half", "constant", "gemm and batch norm"])
def test_pruning_is_minus_the_distance_to_the_embedding_with_pruned_weights(tmp_path, crops, name, sparsity):
    # Biases and BatchNorm are left as they are.
    stored = weights().astype(np.float16 if name == "half" else np.float32)
    vectors, pruned = (EMBED[name](flat_pixels(crops), matrix) for matrix in (stored, slowly_pruned(stored, sparsity)))
    units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (vectors, pruned)]
    expected = -np.linalg.norm(units[0] - units[1], axis=1)
    embedder = open_model(tmp_path, name)
    file, embedding = embedder.path.read_bytes(), embedder(crops).embedding
    scores = pruning_stability(embedder, sparsity)(crops)
    np.testing.assert_allclose(scores, expected, atol=3e-6)
    assert scores.dtype == np.float32
    assert scores.max() < -0.01
    # The file and the embedder are left as they are.
    assert embedder.path.read_bytes() == file
    assert np.array_equal(embedder(crops).embedding, embedding)


def test_each_layer_loses_its_own_smallest_weights():
    small, large = weights(seed=1) / np.float32(1000), weights(seed=2)
    stored = [numpy_helper.from_array(values, "w") for values in (small, large)]
    prune(stored, 0.2)
    for tensor, values in zip(stored, (small, large), strict=True):
        assert np.array_equal(numpy_helper.to_array(tensor), slowly_pruned(values, 0.2).astype(np.float32))


def test_the_share_is_exact_unless_magnitudes_are_equal():
    different, equal = (
        numpy_helper.from_array(np.array(values, dtype=np.float32), "w")
        for values in ([[4, -1, 3, 2], [-5, 6, -8, 7]], [[1, -1, 1, 2], [0, 2, 1, -2]])
    )
    prune([different, equal], 0.5)
    assert numpy_helper.to_array(different).tolist() == [[0, 0, 0, 0], [-5, 6, -8, 7]]
    assert numpy_helper.to_array(equal).tolist() == [[1, -1, 1, 2], [0, 2, 1, -2]]


@pytest.mark.parametrize("sparsity", [-0.1, 1.0, float("nan")])
def test_a_share_that_is_none_is_refused(tmp_path, sparsity):
    with pytest.raises(Error, match="the sparsity must be at least 0 and below 1, not"):
        pruning_stability(open_model(tmp_path, "matmul"), sparsity)


def slow_stability(embeddings):
    units = [vector / math.sqrt(math.fsum(vector**2)) for vector in embeddings]
    distances = [math.sqrt(math.fsum((units[i] - units[j]) ** 2)) for i in range(len(units)) for j in range(i)]
    return 2 / (1 + math.exp(math.fsum(distances) / len(distances)))


@pytest.mark.parametrize("name", EMBED)
@pytest.mark.parametrize(("rate", "seed"), [(0.5, 0), (0.2, 7)])
def test_dropout_is_the_stability_over_explicit_masks(tmp_path, crops, name, rate, seed):
    score = dropout_stability(open_model(tmp_path, name), passes=6, rate=rate, seed=seed)
    drawn = np.random.default_rng(seed).random((6, 147))
    expected = []
    for flat in flat_pixels(crops[:4]):
        passes = []
        for row in drawn:
            kept = [value / (1 - rate) if draw >= rate else 0.0 for value, draw in zip(flat, row, strict=True)]
            passes.append(EMBED[name](np.array(kept), weights()))
        expected.append(slow_stability(passes))
    scores = score(crops[:4])
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert scores.dtype == np.float32
    assert np.ptp(expected) > 1e-3


def test_the_stability_of_many_embeddings_is_that_of_a_loop_over_pairs():
    embeddings = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    assert stability(embeddings) == pytest.approx(slow_stability(list(embeddings.astype(np.float64))), abs=1e-12)
    close = embeddings[:1] + 1e-5 * embeddings
    # In float32, products would lose these distances.
    assert 1 - stability(close) == pytest.approx(1 - slow_stability(list(close.astype(np.float64))), rel=1e-4)
    assert 0 < 1 - stability(close) < 1e-5
    assert stability(np.ones((3, 4), dtype=np.float32)) == pytest.approx(1, abs=1e-7)
    assert stability(np.zeros((3, 4), dtype=np.float32)) < 0.5


LINEAR = "its embedding is not computed by a linear layer from features"


@pytest.mark.parametrize(
    ("score", "name", "reason"),
    [
        ("pruning", "no layers", "has no convolutions or linear layers whose weights could be pruned"),
        ("pruning", "quantized", "the weight 'weights' is not stored in floating point"),
        ("pruning", "double", "the weight 'double' is not stored in floating point"),
        ("dropout", "no layers", LINEAR),
        ("dropout", "layer on the image", LINEAR),
        ("dropout", "map", r"the input 'pooled' of its last linear layer is a map of \(3, 7, 7\) values"),
        (
            "dropout",
            "around",
            "its embedding depends on more than 'flat', the input of its last linear layer",
        ),
        ("dropout", "number of channels", "the layers after 'flat' give another embedding by themselves"),
        ("dropout", "double", "cannot load it"),
    ],
)
def test_a_graph_that_does_not_allow_a_score_is_refused(tmp_path, score, name, reason):
    with pytest.raises(ModelError, match=f"m.onnx: .*{reason}"):
        open_recognizer_scores(open_model(tmp_path, name), [score])
