"""Exports that store or compute in fewer bits, compared with the float32 export of the same run."""

import shutil

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import FaceOutputs, load_embedder
from facerts.embedding.parity import compare_outputs
from facerts.errors import DataError, ModelError
from facerts.training import export as export_module
from facerts.training.checkpoint import load_network
from facerts.training.export import TOLERANCES, check_parity, export_run
from facerts.training.quantize import quantize, store_weights_as_float16
from tests.foreign import write_embedder


@pytest.fixture(scope="module", autouse=True)
def _written_already(exported):
    """Reuse the network that PyTorch's exporter, the slowest part of an export, has already written."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(export_module, "write_module", lambda *inputs: shutil.copy(exported, inputs[-1]))
        yield


@pytest.fixture(scope="module")
def half(trained_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("half") / "m.onnx"
    return path, export_run(trained_run, path, precision="fp16").parity


@pytest.fixture(scope="module")
def eighth(trained_run, tmp_path_factory):
    path = tmp_path_factory.mktemp("eighth") / "m.onnx"
    return path, export_run(trained_run, path, precision="int8").parity


def tensors(path):
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(str(path)).graph.initializer}


def weights(path):
    """Names of the weights of the convolutions and linear layers in the float32 export."""
    graph = onnx.load(str(path)).graph
    return {node.input[1] for node in graph.node if node.op_type in {"Conv", "Gemm", "MatMul"}}


def cosines(one, other):
    return np.sum(one.embedding.astype(np.float64) * other.embedding, axis=1)


def test_fp16_rounds_the_weights_and_leaves_the_rest_unchanged(exported, half):
    before, after, halved = tensors(exported), tensors(half[0]), weights(exported)
    assert len(halved) >= 40
    for name, values in before.items():
        if name in halved:
            np.testing.assert_array_equal(after[f"{name}_fp16"], values.astype(np.float16), strict=True)
            assert name not in after
        else:
            np.testing.assert_array_equal(after[name], values, strict=True)
    assert len(after) == len(before)
    saved = exported.stat().st_size - half[0].stat().st_size
    # Only Cast nodes are added.
    assert saved > 2 * sum(before[name].size for name in halved) - 200 * len(halved) > 0


@pytest.mark.slow
def test_fp16_computes_in_float32_and_the_casts_are_folded(exported, half, tmp_path):
    model = onnx.shape_inference.infer_shapes(onnx.load(str(half[0])), strict_mode=True)
    onnx.checker.check_model(model, full_check=True)
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        assert value.type.tensor_type.elem_type in {TensorProto.FLOAT, TensorProto.INT64}, value.name

    def opened(path):
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "opened.onnx")
        options.log_severity_level = 3
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return sorted(node.op_type for node in onnx.load(str(tmp_path / "opened.onnx")).graph.node)

    assert sum(node.op_type == "Cast" for node in graph.node) >= 40
    assert opened(half[0]) == opened(exported)


def test_int8_quantizes_convolutions_but_not_the_heads(exported, eighth):
    model = onnx.load(str(eighth[0]))
    onnx.checker.check_model(model, full_check=True)
    maker = {output: node for node in model.graph.node for output in node.output}
    stored, before = tensors(eighth[0]), tensors(exported)
    convolutions = [node for node in model.graph.node if node.op_type == "Conv"]
    assert len(convolutions) == 49
    for node in convolutions:
        image, weight = maker[node.input[0]], maker[node.input[1]]
        assert image.op_type == weight.op_type == "DequantizeLinear"
        assert stored[image.input[2]].dtype == np.uint8
        integers, scale = stored[weight.input[0]], stored[weight.input[1]]
        assert integers.dtype == np.int8
        assert np.abs(integers.astype(int)).max() <= 64  # 7 bits
        assert scale.shape == integers.shape[:1]  # a scale for each output channel
        original = before[node.input[1].removesuffix("_DequantizeLinear_Output")]
        step = scale[:, None, None, None]
        assert np.abs(integers * step - original).max() <= step.max() / 2 + 1e-6
    # After the flattening: the nodes of the float32 export, with weights stored as in fp16.
    behind = [node.op_type for node in model.graph.node[-20:] if "Quantize" not in node.op_type]
    assert behind.count("Gemm") == 2
    for node in model.graph.node:
        if node.op_type == "Gemm":
            cast = maker[node.input[1]]
            assert cast.op_type == "Cast"
            np.testing.assert_array_equal(stored[cast.input[0]], before[node.input[1]].astype(np.float16), strict=True)
            assert maker[node.input[0]].op_type == "Reshape"
            assert before[node.input[2]].dtype == stored[node.input[2]].dtype == np.float32


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_the_description_and_the_parity_report_the_precision(precision, half, eighth, exported, crops):
    path, parity = half if precision == "fp16" else eighth
    assert load_embedder(path).description.precision == precision
    assert load_embedder(exported).description.precision == "fp32"
    assert parity.crops == 16 + 8 + 8 + 64
    # The twelve crops are among those checked, or similar.
    expected, got = load_embedder(exported)(crops), load_embedder(path)(crops)
    assert parity.cosine <= cosines(expected, got).mean()
    # It is not the float32 file.
    assert np.abs(expected.embedding - got.embedding).max() > 1e-6
    if precision == "fp16":
        assert cosines(expected, got).min() >= 0.9999
        assert np.abs(expected.quality - got.quality).max() <= 0.1 * np.std(expected.quality)
    assert parity.quality_error is not None
    assert 0 < parity.quality_error <= TOLERANCES[precision].quality_spreads * (parity.quality_spread or 0) + 1e-3


def outputs(quality, angle=0.0):
    """Unit embeddings in the plane, rotated by an angle."""
    angles = np.arange(len(quality)) + angle
    embedding = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    return FaceOutputs(embedding, quality=np.array(quality, dtype=np.float32))


@pytest.mark.parametrize(
    ("precision", "angle", "error", "passes"),
    [
        # Qualities 0 and 20 have a standard deviation of 10; cos 0.01 = 0.99995, cos 0.02 = 0.9998.
        ("fp32", 0.0, 0.0009, True),
        ("fp32", 0.0, 0.0012, False),
        ("fp32", 0.01, 0.0, False),
        ("fp16", 0.01, 0.09, True),
        ("fp16", 0.0, 0.11, False),
        ("fp16", 0.02, 0.0, False),
        ("int8", np.arccos(0.951), 9.9, True),
        ("int8", 0.0, 10.1, False),
        ("int8", np.arccos(0.949), 0.0, False),
        ("int8", np.nan, 0.0, False),
    ],
)
def test_each_precision_has_its_limits(precision, angle, error, passes):
    expected, got = outputs([0, 20]), outputs([0, 20 + error], angle)
    if passes:
        parity = compare_outputs(expected, got, TOLERANCES[precision])
        assert parity.quality_spread == pytest.approx(10)
        assert parity.quality_error == pytest.approx(error, abs=1e-5)
    else:
        with pytest.raises(ModelError, match="no file was written"):
            compare_outputs(expected, got, TOLERANCES[precision])


def test_with_nearly_constant_quality_a_thousandth_is_still_allowed():
    expected = outputs([1.0, 1.0])
    assert compare_outputs(expected, outputs([1.0, 1.0009]), TOLERANCES["fp16"]).quality_spread == 0
    with pytest.raises(ModelError, match=r"qualities differ by up to 0\.0012 \(at most 0\.001\)"):
        compare_outputs(expected, outputs([1.0, 1.0012]), TOLERANCES["fp16"])


@pytest.mark.slow
def test_a_network_that_cannot_be_quantized_leaves_no_file(trained_run, tmp_path, monkeypatch):
    def on_the_dark_side(path, faces):
        quantize(path, np.zeros_like(faces))  # ranges that do not fit any face

    monkeypatch.setattr(export_module, "quantize", on_the_dark_side)
    with pytest.raises(ModelError, match=r"no file was written: the network does not tolerate int8; export it as"):
        export_run(trained_run, tmp_path / "m.onnx", precision="int8")
    assert list(tmp_path.iterdir()) == []


def test_limits_depend_on_the_precision(half, trained_run, crops):
    trained = load_network(trained_run)
    check_parity(trained, load_embedder(half[0]), crops)
    trained.network.heads["log_scale"][1].bias.data.add_(0.01)
    with pytest.raises(ModelError, match="does not tolerate fp16"):
        check_parity(trained, load_embedder(half[0]), crops)


def test_int8_without_faces_is_refused(trained_run, tmp_path, monkeypatch):
    write_synthetic_faces(tmp_path / "few", identities=3, images=5)
    with pytest.raises(DataError, match=r"needs at least 16 faces .* there are only 15"):
        export_run(trained_run, tmp_path / "m.onnx", precision="int8", data=[str(tmp_path / "few")])
    monkeypatch.setattr(export_module, "_held_out", lambda trained: (None, "nobody"))
    monkeypatch.setattr(export_module, "_training_images", lambda trained: None)
    with pytest.raises(DataError, match=r"recipe's images are not available; give some as data"):
        export_run(trained_run, tmp_path / "m.onnx", precision="int8")
    assert not (tmp_path / "m.onnx").exists()


def test_a_weight_beyond_float16_is_refused(tmp_path):
    path = write_embedder(tmp_path / "m.onnx")
    model = onnx.load(str(path))
    (matrix,) = model.graph.initializer
    matrix.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(matrix) * np.float32(1e5), matrix.name))
    onnx.save(model, str(path))
    before = path.read_bytes()
    with pytest.raises(ModelError, match=r"the weight matrix has a value of .* beyond the range of float16"):
        store_weights_as_float16(path)
    assert path.read_bytes() == before
