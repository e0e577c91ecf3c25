"""Changes of ONNX files, checked against the onnx package and ONNX Runtime."""

import os
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from google.protobuf.message import DecodeError
from onnx import TensorProto, helper

from facerts.errors import ModelError
from facerts.onnx import wire
from facerts.onnx.wire import make_shape_dynamic, replace_entry
from tests.detectors import write_yunet
from tests.foreign import write_embedder

KEY = "facerts"
VALUE = '{"name": "Gesichter, 顔", "long": "' + "x" * 20_000 + '"}'
ENTRIES = [
    [],
    [(KEY, "old")],
    [("author", "somebody"), (KEY, "old"), ("facerts2", "another"), ("", "no key"), ("empty", "")],
    [(KEY, "first"), ("between", "stays"), (KEY, "second")],
]


def write_model(path, entries):
    """A model with fields before and after its metadata."""
    model = onnx.load(str(write_embedder(path)))
    model.producer_name, model.model_version, model.doc_string = "tests", -3, "ä" * 300
    for key, value in entries:
        model.metadata_props.add(key=key, value=value)
    node, opset = onnx.helper.make_node("Identity", ["x"], ["y"]), onnx.helper.make_opsetid("", 17)
    model.functions.append(onnx.helper.make_function("d", "f", ["x"], ["y"], [node], [opset]))
    model.opset_import.add(domain="d", version=1)
    path.write_bytes(model.SerializeToString())
    return path


def properties(path):
    return [(entry.key, entry.value) for entry in onnx.load(str(path)).metadata_props]


def rest(path):
    """The model without its metadata, as protobuf serializes it."""
    model = onnx.load(str(path))
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


@pytest.mark.parametrize("entries", ENTRIES, ids=len)
@pytest.mark.parametrize("in_place", [True, False])
def test_an_entry_is_replaced_and_everything_else_unchanged(tmp_path, entries, in_place):
    model = write_model(tmp_path / "m.onnx", entries)
    before, untouched = model.read_bytes(), rest(model)
    out = model if in_place else tmp_path / "deep" / "out.onnx"
    replace_entry(model, out, KEY, VALUE)
    others = [entry for entry in entries if entry[0] != KEY]
    index = next((i for i, entry in enumerate(entries) if entry[0] == KEY), len(entries))
    assert properties(out) == [*others[:index], (KEY, VALUE), *others[index:]]
    assert rest(out) == untouched
    onnx.checker.check_model(str(out))
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert session.get_modelmeta().custom_metadata_map[KEY] == VALUE
    if not in_place:
        assert model.read_bytes() == before
    if not entries:
        assert out.read_bytes().startswith(before)
    # Restoring the old value restores the file byte for byte.
    if [key for key, _ in entries].count(KEY) == 1:
        replace_entry(out, out, KEY, dict(entries)[KEY])
        assert out.read_bytes() == before
    assert not list(tmp_path.rglob("*.part"))


def test_a_cut_at_any_byte_is_named_with_file_and_offset_and_nothing_is_written(tmp_path):
    cut = write_model(tmp_path / "cut.onnx", ENTRIES[2])
    whole, out = cut.read_bytes(), tmp_path / "out.onnx"
    refused = 0
    # All bytes inside the graph are treated alike.
    cuts = [size for size in range(len(whole)) if size < 400 or size > len(whole) - 300 or size % 50 == 0]
    for size in reversed(cuts):
        os.truncate(cut, size)
        parsed = onnx.ModelProto()
        try:
            parsed.ParseFromString(whole[:size])
        except DecodeError:
            refused += 1
            with pytest.raises(ModelError, match=r"cut\.onnx: .* at byte (\d+) .*truncated") as error:
                replace_entry(cut, out, KEY, VALUE)
            assert int(re.findall(r"at byte (\d+)", str(error.value))[0]) <= size
            assert not out.exists()
        else:
            if parsed.HasField("graph"):
                replace_entry(cut, out, KEY, VALUE)
                out.unlink()
            else:
                with pytest.raises(ModelError, match="contains no graph"):
                    replace_entry(cut, out, KEY, VALUE)
    assert refused > 0.9 * len(cuts)


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    model = write_model(tmp_path / "m.onnx", ENTRIES[1])
    before = model.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("facerts.io.files.os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        replace_entry(model, model, KEY, VALUE)
    assert model.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


GRAPH = b"\x3a\x00"  # field 7, empty


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "it contains no graph"),
        (b"hello, not a model here", "byte 2 .kind 4"),
        (GRAPH + b"\x72\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00", "field 14 at byte 2 needs 9,223,372"),
        (GRAPH + b"\xff" * 20, "no number ends within 10 bytes of byte 2"),
        (GRAPH + b"\x72\x80", "number at byte 3 is incomplete"),
        (GRAPH + b"\x73", r"no field .* at byte 2 \(kind 3\)"),
        (GRAPH + b"\x02\x00", r"no field .* at byte 2 \(number 0\)"),
        (GRAPH + b"\x70\x05", "field 14 at byte 2 is not metadata"),
        (GRAPH + b"\x72\x03\x0a\x09k", "field 1 at byte 4 needs 9 bytes, but only 1"),
        (GRAPH + b"\x09\x00\x00", "field 1 at byte 2 needs 8 bytes"),
    ],
)
def test_hostile_bytes_are_refused_with_a_clear_error(tmp_path, data, words):
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    with pytest.raises(ModelError, match=rf"m\.onnx: .*{words}"):
        replace_entry(path, path, KEY, VALUE)
    assert path.read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_a_file_cannot_make_the_reader_exceed_its_limits(tmp_path, monkeypatch):
    model = write_model(tmp_path / "m.onnx", [(KEY, VALUE)])
    with monkeypatch.context() as limits:
        limits.setattr(wire, "MAX_FIELDS", 5)
        with pytest.raises(ModelError, match="more than 5 fields by byte"):
            replace_entry(model, model, KEY, VALUE)
    with monkeypatch.context() as limits:
        limits.setattr(wire, "MAX_FILE", model.stat().st_size)
        with pytest.raises(ModelError, match="limited to 2 GiB"):
            replace_entry(model, model, KEY, VALUE + " ")


OPSET = helper.make_opsetid("", 17)


def model(*sides):
    """A model with a node, the shapes of its input and output, and one between them."""
    shapes = {"input": (1, 3, *sides), "output": (1, 6400, 4), "between": (1, 16, 80, 80)}
    image, output, between = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
    )
    node = helper.make_node("Relu", ["input"], ["output"])
    graph = helper.make_graph([node], "graph", [image], [output], value_info=[between])
    return helper.make_model(graph, opset_imports=[OPSET], ir_version=8).SerializeToString()


def test_only_the_sides_and_the_shapes_that_depend_on_them_are_removed():
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


def test_a_side_that_is_already_dynamic_is_unchanged():
    original = model("H", "W")
    assert make_shape_dynamic(original, where="m.onnx") == original
    dims = onnx.load_from_string(make_shape_dynamic(model("H", 640), where="m.onnx")).graph.input[0]
    height, width = dims.type.tensor_type.shape.dim[2:]
    assert height.dim_param == "H"
    assert width.WhichOneof("value") is None


def test_a_network_made_dynamic_runs_at_other_sizes_without_warnings(tmp_path, capfd):
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
def test_data_that_is_not_a_network_is_refused(data, words):
    with pytest.raises(ModelError, match=rf"^m\.onnx: (.*: )?{words}"):
        make_shape_dynamic(data, where="m.onnx")


def test_unknown_fields_of_every_wire_type_are_skipped():
    others = b"\x09" + b"\x3a" * 8 + b"\x15" + b"\x3a" * 4
    assert make_shape_dynamic(others + model(640, 640), where="m.onnx") == others + make_shape_dynamic(
        model(640, 640), where="m.onnx"
    )
