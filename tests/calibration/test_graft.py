"""Recognizers joined with the quality of another model."""

import json

import cv2
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper, version_converter

import facerts
from facerts.calibration import graft
from facerts.calibration.graft import graft_quality
from facerts.embedding import load_embedder
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.errors import Error, ModelError
from facerts.hub.registry import find_shipped
from facerts.onnx.contract import InputSpec
from facerts.onnx.crop_nodes import prepend_preprocessing
from tests.embedding.test_embedding_only import outputs
from tests.embedding.test_onnx_embedder import IMAGENET
from tests.foreign import (
    quality_description,
    slow_embedding,
    slow_quality,
    write_description,
    write_embedder,
    write_quality,
)
from tests.matching import HASH, matching
from tests.shipped import write_model

CALIBRATED = {
    "thresholds": {"0.95": {"quality": 3.5, "data_sha256": HASH}},
    "calibration": {
        "data": "faces",
        "data_sha256": HASH,
        "faces": 200,
        "identities": 20,
        "quantiles": list(range(101)),
        "matching": matching(thresholds={}),
    },
}


@pytest.fixture
def theirs(tmp_path):
    about = {"license": "free", "terms": "ask", "source": "a friend", "training_data": "friends"}
    return write_description(write_embedder(tmp_path / "theirs.onnx"), **about)


def quality_model(folder, size=96, **changes):
    model = write_quality(folder / "quality.onnx", size=size)
    model.with_suffix(".json").write_text(json.dumps(quality_description(size, **changes)))
    return model


@pytest.mark.parametrize(
    ("embedder", "description", "oracle"),
    [
        ({}, {}, {}),
        ({}, IMAGENET, {"mean": IMAGENET["input_mean"], "std": IMAGENET["input_std"]}),
        ({"layout": "NHWC"}, {"input_layout": "NHWC", "input_color": "BGR"}, {"bgr": True}),
        ({"batch": 4}, {"input_batch": 4, "input_color": "BGR"}, {"bgr": True}),
    ],
    ids=["alike", "imagenet", "nhwc-bgr", "batches of 4"],
)
@pytest.mark.parametrize("size", [96, 112])
def test_the_file_has_their_embedding_and_the_quality_of_the_same_crops(
    size, embedder, description, oracle, tmp_path, crops
):
    model = write_description(write_embedder(tmp_path / "theirs.onnx", **embedder), **description)
    quality = quality_model(tmp_path, size)
    joined = graft_quality(model, quality, tmp_path / "joined.onnx")
    assert (joined.parity.quality_error, joined.parity.crops) == (0, 32)
    got = load_embedder(tmp_path / "joined.onnx")(crops)
    raw = slow_embedding(crops, **oracle)
    np.testing.assert_allclose(got.embedding, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=2e-6)
    np.testing.assert_allclose(got.quality, slow_quality(crops, size), atol=2e-4)
    np.testing.assert_array_equal(got.quality, OnnxQuality(quality)(crops))


@pytest.mark.parametrize("size", [(56, 56), (64, 96), (128, 120), (224, 224)])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_crops_are_resized_in_the_graph_to_the_level(layout, size, crops, tmp_path):
    ours = InputSpec(name="x", size=size, layout=layout, mean=(0, 0, 0), std=(1, 1, 1))
    theirs = InputSpec(name="y", color="BGR", mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
    noise = np.random.default_rng(1).integers(0, 256, (4, 112, 112, 3), dtype=np.uint8)
    crops = np.concatenate([crops, noise])
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["out"])],
        "resized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 4)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, [None] * 4)],
    )
    name = prepend_preprocessing(graph, ours, theirs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    bgr = (crops[..., ::-1].astype(np.float32) - np.float32(theirs.mean)) / np.float32(theirs.std)
    (got,) = session.run(None, {name: bgr.transpose(0, 3, 1, 2)})
    expected = np.stack([cv2.resize(crop, size[::-1], interpolation=cv2.INTER_LINEAR) for crop in crops])
    np.testing.assert_array_equal(got if layout == "NHWC" else got.transpose(0, 2, 3, 1), expected)


def test_the_description_states_both_sources(theirs, tmp_path):
    quality = write_model(tmp_path / "ours.onnx", polarity="lower_is_better", training_data="drawn", **CALIBRATED)
    graft_quality(theirs, quality, tmp_path / "new" / "joined.onnx")
    joined, recognizer = load_embedder(tmp_path / "new" / "joined.onnx"), load_embedder(theirs)
    description = joined.description
    assert joined.name == "joined"
    assert description.method == "unknown, quality of ours (rts)"
    assert (description.quality, description.polarity) == ("output:quality", "lower_is_better")
    assert description.outputs == {"embedding": "vector", "quality": "quality"}
    assert description.input == recognizer.description.input
    assert description.training_data == "recognizer: friends; quality: drawn"
    assert description.terms == "recognizer: ask; quality: none"
    assert description.license == "recognizer: free"
    for model, sha256 in (("theirs", recognizer.sha256), ("ours", load_embedder(quality).sha256)):
        assert f"{model} (SHA-256 {sha256})" in description.source
    assert "a friend" in description.source
    # The quality is the same on the same crops, but nothing is known of the recognizer's similarities.
    assert description.thresholds["0.95"].quality == 3.5
    assert description.calibration.quantiles == tuple(range(101))
    assert description.calibration.matching is None
    assert any("Match thresholds are missing" in note for note in description.calibration.notes)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["joined.onnx"]


def test_match_thresholds_are_the_recognizers_own(tmp_path):
    pairs = {"genuine": 9, "fnmr": 0.1, "ci95": [0, 0.3]}
    match = {"similarity": 0.3, "achieved_fmr": 0.001, "impostors": 1000, "kept": {"0.95": pairs}, **pairs}
    calibration = json.loads(json.dumps(CALIBRATED["calibration"]))
    calibration["matching"]["thresholds"] = {"0.001": match}
    own = CALIBRATED["thresholds"] | {"0.5": {"quality": 9.0, "data_sha256": "0" * 64}}
    theirs = write_model(tmp_path / "theirs.onnx", calibration=calibration, thresholds=own)
    ours = write_model(tmp_path / "ours.onnx", **CALIBRATED)
    description = graft_quality(theirs, ours, tmp_path / "joined.onnx").description
    assert list(description.thresholds) == ["0.95"]
    (kept,) = description.calibration.matching.thresholds.values()
    assert (kept.similarity, kept.fnmr) == (0.3, 0.1)
    assert kept.kept == {}  # those were error rates after rejecting faces by another quality
    assert facerts.load(tmp_path / "joined.onnx").match_rule().threshold == 0.3


def test_names_of_the_recognizer_do_not_change_and_clashes_are_prefixed(tmp_path, crops):
    theirs = write_model(tmp_path / "theirs.onnx", terms="ask")
    once, twice = tmp_path / "once.onnx", tmp_path / "twice.onnx"
    graft_quality(theirs, quality_model(tmp_path), once)
    graft_quality(once, theirs, twice)
    session = onnxruntime.InferenceSession(str(twice), providers=["CPUExecutionProvider"])
    assert [tensor.name for tensor in session.get_inputs()] == ["face"]
    assert outputs(twice) == ["vector", "bright", "quality", "posthoc_quality"]
    first, last = load_embedder(once)(crops), load_embedder(twice)(crops)
    np.testing.assert_array_equal(first.quality, OnnxQuality(tmp_path / "quality.onnx")(crops))
    np.testing.assert_array_equal(last.quality, load_embedder(theirs)(crops).quality)


@pytest.mark.slow
def test_the_shipped_quality_without_its_embedding(theirs, tmp_path, crops):
    """Of a model without a probe for non-faces, which may need the embedding."""
    shipped = find_shipped("facerts-small-noteacher")
    graft_quality(theirs, "facerts-small-noteacher", tmp_path / "joined.onnx")
    got = load_embedder(tmp_path / "joined.onnx")(crops)
    expected = load_embedder(shipped)(crops)
    np.testing.assert_array_equal(got.quality, expected.quality)
    np.testing.assert_array_equal(got.uncertainty, expected.uncertainty)
    before, after = onnx.load(str(shipped)).graph, onnx.load(str(tmp_path / "joined.onnx")).graph
    size = load_embedder(shipped).description.embedding_size
    (layer,) = (weight for weight in before.initializer if len(weight.dims) == 2 and size in weight.dims)
    assert not any(weight.name.endswith(layer.name) for weight in after.initializer)
    assert (tmp_path / "joined.onnx").stat().st_size < shipped.stat().st_size - 0.9 * len(layer.raw_data)


@pytest.mark.parametrize("normalized", [False, True], ids=["norm from the embedding", "output"])
def test_the_norm_can_be_the_quality(normalized, theirs, tmp_path, crops):
    quality = write_embedder(tmp_path / "ours.onnx", quality=True, seed=5)
    changes = {"normalize_embedding": False, "outputs": {"embedding": "vector", "norm": "bright"}}
    write_description(quality, **(changes if normalized else {}))
    graft_quality(theirs, quality, tmp_path / "joined.onnx")
    got = load_embedder(tmp_path / "joined.onnx")(crops)
    np.testing.assert_allclose(got.quality, load_embedder(quality)(crops).norm, rtol=1e-6)


def in_16_bits_and_another_opset(model):
    model = version_converter.convert_version(model, 13)
    (matrix,) = model.graph.initializer
    matrix.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(matrix).astype(np.float16), "half"))
    model.graph.node.insert(0, helper.make_node("Cast", ["half"], ["matrix"], to=TensorProto.FLOAT))
    return model


def with_a_function(model):
    relu = helper.make_node("Relu", ["x"], ["y"])
    function = helper.make_function("local", "Own", ["x"], ["y"], [relu], [helper.make_opsetid("", 17)])
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.graph.node[-1].output[0] = "before"
    model.graph.node.append(helper.make_node("Own", ["before"], ["vector"], domain="local"))
    return model


@pytest.mark.parametrize("change", [in_16_bits_and_another_opset, with_a_function])
def test_a_recognizer_may_be_built_in_other_ways(change, theirs, tmp_path, crops):
    onnx.save(change(onnx.load(str(theirs))), str(theirs))
    graft_quality(theirs, quality_model(tmp_path), tmp_path / "joined.onnx")
    got, before = load_embedder(tmp_path / "joined.onnx")(crops), load_embedder(theirs)(crops)
    np.testing.assert_array_equal(got.embedding, before.embedding)
    np.testing.assert_allclose(got.quality, slow_quality(crops, 96), atol=2e-4)


def test_errors_about_the_new_file_name_it(theirs, tmp_path, monkeypatch):
    monkeypatch.setattr(graft, "append", lambda *_: {"quality": "missing"})
    with pytest.raises(ModelError, match=f"^{tmp_path}/joined.onnx: no output 'missing'"):
        graft_quality(theirs, quality_model(tmp_path), tmp_path / "joined.onnx")


def fixed_batch(quality, batch):
    model = onnx.load(str(quality))
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = batch
    onnx.save(model, str(quality))
    description = quality_description()
    description["input"]["batch"] = batch
    quality.with_suffix(".json").write_text(json.dumps(description))


def test_a_fixed_batch_of_the_quality_is_that_of_the_file(theirs, tmp_path, crops):
    quality = quality_model(tmp_path)
    fixed_batch(quality, 2)
    assert graft_quality(theirs, quality, tmp_path / "joined.onnx").description.input.batch == 2
    got = load_embedder(tmp_path / "joined.onnx")(crops[:5])
    np.testing.assert_allclose(got.quality, slow_quality(crops[:5], 96), atol=2e-4)


def test_a_file_with_another_quality_is_not_written(theirs, tmp_path, monkeypatch):
    def wrong(graph, ours, theirs):
        return prepend_preprocessing(graph, ours.model_copy(update={"color": theirs.color}), theirs)

    monkeypatch.setattr(graft, "prepend_preprocessing", wrong)
    with pytest.raises(ModelError, match=r"theirs with the quality of quality: .*no file was written"):
        graft_quality(theirs, quality_model(tmp_path), tmp_path / "joined.onnx")
    assert not (tmp_path / "joined.onnx").exists()


def test_what_cannot_be_joined_is_refused(theirs, tmp_path):
    without = write_description(write_embedder(tmp_path / "plain.onnx"), quality="none")
    with pytest.raises(ModelError, match=r"plain\.onnx: the model has no quality"):
        graft_quality(theirs, without, tmp_path / "joined.onnx")
    with pytest.raises(Error, match=r"theirs\.onnx: it is one of the two models"):
        graft_quality(theirs, quality_model(tmp_path), theirs)
    with pytest.raises(Error, match=r"joined\.bin: a joined model is written as \.onnx"):
        graft_quality(theirs, quality_model(tmp_path), tmp_path / "joined.bin")
    fours = write_description(write_embedder(tmp_path / "fours.onnx", batch=4), input_batch=4)
    fixed_batch(quality_model(tmp_path), 2)
    with pytest.raises(ModelError, match=r"fours takes batches of 4 crops and quality batches of 2"):
        graft_quality(fours, tmp_path / "quality.onnx", tmp_path / "joined.onnx")
    assert not (tmp_path / "joined.onnx").exists()
