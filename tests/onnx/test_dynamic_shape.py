from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from facerts.errors import ModelError
from facerts.onnx.wire import make_shape_dynamic
from tests.detectors import write_yunet

OPSET = helper.make_opsetid("", 17)


def model(*sides: int | str) -> bytes:
    """A model with a node, the shapes of its input and output, and one between them."""
    shapes = {"input": (1, 3, *sides), "output": (1, 6400, 4), "between": (1, 16, 80, 80)}
    image, output, between = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    node = helper.make_node("Relu", ["input"], ["output"])
    graph = helper.make_graph([node], "graph", [image], [output], value_info=[between])
    content: bytes = helper.make_model(graph, opset_imports=[OPSET], ir_version=8).SerializeToString()
    return content


def test_only_the_sides_and_the_shapes_that_depend_on_them_are_removed() -> None:
    original = model(640, 96)
    dynamic = make_shape_dynamic(original, where="m.onnx")
    assert len(dynamic) == len(original)
    assert sum(one != other for one, other in zip(original, dynamic, strict=True)) == 4
    read, before = onnx.load_from_string(dynamic), onnx.load_from_string(original)
    dims = read.graph.input[0].type.tensor_type.shape.dim
    assert [dim.WhichOneof("value") for dim in dims] == ["dim_value", "dim_value", None, None]
    assert [dim.dim_value for dim in dims[:2]] == [1, 3]
    assert not read.graph.output[0].type.tensor_type.HasField("shape")
    assert len(read.graph.value_info) == 0
    assert (read.ir_version, read.opset_import[0].version) == (8, 17)
    assert read.graph.node == before.graph.node
    assert (read.graph.name, read.graph.input[0].name, read.graph.output[0].name) == (
        "graph",
        "input",
        "output",
    )


def test_a_side_that_is_already_dynamic_is_unchanged() -> None:
    original = model("H", "W")
    assert make_shape_dynamic(original, where="m.onnx") == original
    dims = onnx.load_from_string(make_shape_dynamic(model("H", 640), where="m.onnx")).graph.input[0]
    height, width = dims.type.tensor_type.shape.dim[2:]
    assert height.dim_param == "H"
    assert width.WhichOneof("value") is None


def test_a_network_made_dynamic_runs_at_other_sizes_without_warnings(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fixed = write_yunet(tmp_path / "m.onnx", sides=(64, 64)).read_bytes()
    assert len(onnx.load_from_string(fixed).graph.value_info) >= 36
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 2
    dynamic = onnxruntime.InferenceSession(make_shape_dynamic(fixed, where="m.onnx"), options)
    image = np.random.default_rng(0).uniform(0, 255, (1, 3, 96, 160)).astype(np.float32)
    values = dynamic.run(["cls_8"], {"input": image})[0]
    places = image[0, 0].reshape(12, 8, 20, 8).mean(axis=(1, 3))
    np.testing.assert_allclose(values[0, :, 0], 1.2 * places.ravel() / 255, rtol=1e-4)
    small = image[:, :, :64, :64]
    before = onnxruntime.InferenceSession(fixed).run(None, {"input": small})
    for one, other in zip(dynamic.run(None, {"input": small}), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert capfd.readouterr().err == ""


def test_a_truncated_file_is_named() -> None:
    original = model(640, 640)
    whole = make_shape_dynamic(original, where="m.onnx")
    after_the_graph = len(original) - len(OPSET.SerializeToString()) - 2
    for length in range(len(original)):
        if length == after_the_graph:
            assert make_shape_dynamic(original[:length], where="m.onnx") == whole[:length]
            continue
        with pytest.raises(ModelError, match=r"^m\.onnx: .*(truncated|has no shape)"):
            make_shape_dynamic(original[:length], where="m.onnx")


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an ONNX model, or one whose input has no shape"),
        # A graph with an input that has a name alone.
        (b"\x3a\x07\x5a\x05\x0a\x03xyz", "not an ONNX model, or one whose input has no shape"),
        (b"\x38\x05", "the field at byte 0 is not a message"),
        # A second graph, whose input is a number.
        (model(640, 640) + b"\x3a\x05\x5d\0\0\0\0", "the field at byte [0-9]+ is not a message"),
        (b"\x89PNG\r\n\x1a\n", "field 1281 at byte 0 needs 8 bytes"),
    ],
)
def test_data_that_is_not_a_network_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(ModelError, match=rf"^m\.onnx: (.*: )?{words}"):
        make_shape_dynamic(data, where="m.onnx")


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    others = b"\x09" + b"\x3a" * 8 + b"\x15" + b"\x3a" * 4
    assert make_shape_dynamic(others + model(640, 640), where="m.onnx") == others + make_shape_dynamic(
        model(640, 640), where="m.onnx"
    )
