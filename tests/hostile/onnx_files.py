"""ONNX embedders that contradict their descriptions or cannot run, and invalid descriptions."""

import json

import onnx
from onnx import TensorProto, helper

from facerts.onnx.wire import replace_entry
from tests.foreign import write_description, write_embedder

GOOD = {
    "schema": "facerts.model/1",
    "input": {"name": "face"},
    "outputs": {"embedding": "vector"},
    "normalize_embedding": True,
    "quality": "norm",
}


def _nested(depth):
    return b"[" * depth + b"]" * depth


def described(**fields):
    return json.dumps({**GOOD, **fields}).encode()


# Each is to lie beside a good model.
DESCRIPTIONS = {
    "nothing": b"",
    "not UTF-8": b'{"schema": "\xff"}',
    "nested 100,000 deep": _nested(100_000),
    "an endless number": b'{"schema": ' + b"1" * 10_000 + b"}",
    "a list": b"[]",
    "a batch of 10^9": described(input={"name": "face", "batch": 10**9}),
    "a batch of 10^30": described(input={"name": "face", "batch": 10**30}),
    "a negative batch": described(input={"name": "face", "batch": -1}),
    "sides of 10^6": described(input={"name": "face", "size": [10**6, 10**6]}),
    "sides of nothing": described(input={"name": "face", "size": [0, 0]}),
    "many large images": described(input={"name": "face", "size": [1024, 1024], "batch": 1024}),
    "an embedding of 512": described(embedding_size=512),
    "an embedding of 10^30": described(embedding_size=10**30),
    "a number that is not finite": json.dumps({**GOOD, "input": {"name": "face", "mean": [float("nan")] * 3}}).encode(),
    "a surrogate": described(name="\ud800"),
    "another tensor": described(outputs={"embedding": "gone"}),
}


def _nodes(path, nodes, outputs, **also):
    face = helper.make_tensor_value_info("face", TensorProto.FLOAT, ["N", 3, 112, 112])
    graph = helper.make_graph(nodes, "g", [face], outputs, also.get("weights", []))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    write_description(path)


def _vector(*shape, kind=TensorProto.FLOAT):
    return [helper.make_tensor_value_info("vector", kind, list(shape))]


def _metadata(key, value):
    def write(path):
        write_embedder(path)
        entry = b"".join(bytes([tag]) + bytes([len(text)]) + text for tag, text in ((0x0A, key), (0x12, value)))
        with path.open("ab") as file:
            file.write(b"\x72" + bytes([len(entry)]) + entry)

    return write


def _nested_metadata(path):
    write_embedder(path)
    replace_entry(path, path, "facerts", _nested(100_000).decode())


def _fails_at_run_time(path):
    shape = onnx.helper.make_tensor("shape", TensorProto.INT64, [2], [7, 11])
    _nodes(path, [helper.make_node("Reshape", ["face", "shape"], ["vector"])], _vector("N", "D"), weights=[shape])


def _one_row_for_all(path):
    nodes = [helper.make_node("ReduceMean", ["face"], ["vector"], axes=[0, 2, 3], keepdims=0)]
    _nodes(path, nodes, _vector("N"))


def _a_single_number(path):
    _nodes(
        path,
        [helper.make_node("ReduceMean", ["face"], ["vector"], keepdims=0)],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, None)],
    )


def _no_numbers(path):
    nodes = [
        helper.make_node("Flatten", ["face"], ["flat"]),
        helper.make_node("Cast", ["flat"], ["vector"], to=TensorProto.STRING),
    ]
    _nodes(path, nodes, _vector("N", 37632, kind=TensorProto.STRING))


def _a_sequence(path):
    vectors = helper.make_tensor_sequence_value_info("vector", TensorProto.FLOAT, None)
    _nodes(path, [helper.make_node("SequenceConstruct", ["face"], ["vector"])], [vectors])


def _an_empty_embedding(path):
    starts, ends, axes = (
        onnx.helper.make_tensor(name, TensorProto.INT64, [1], [value])
        for name, value in (("starts", 0), ("ends", 0), ("axes", 1))
    )
    nodes = [
        helper.make_node("Flatten", ["face"], ["flat"]),
        helper.make_node("Slice", ["flat", "starts", "ends", "axes"], ["vector"]),
    ]
    _nodes(path, nodes, _vector("N", "D"), weights=[starts, ends, axes])


def _bytes(content):
    def write(path):
        path.write_bytes(content)

    return write


def _a_name_that_is_not_text(path):
    write_embedder(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b"vector", b"v\xffctor"))
    write_description(path)


# Each writes a model, with a description beside it unless it has one inside.
MODELS = {
    "metadata that is not UTF-8": _metadata(b"facerts", b"\xff\xfe"),
    "a key that is not UTF-8": _metadata(b"\xff\xfe", b"x"),
    "metadata nested 100,000 deep": _nested_metadata,
    "it fails at run time": _fails_at_run_time,
    "one row for all": _one_row_for_all,
    "a single number": _a_single_number,
    "no numbers": _no_numbers,
    "a sequence": _a_sequence,
    "an empty embedding": _an_empty_embedding,
    "a name that is not text": _a_name_that_is_not_text,
    "not a model": _bytes(b"<html>"),
    "nothing": _bytes(b""),
}
