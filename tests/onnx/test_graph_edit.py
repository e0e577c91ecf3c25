"""Models whose weights are in other files, wherever the graph keeps them."""

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from facerts.errors import ModelError
from facerts.onnx.graph_edit import all_tensors, load_graph
from tests.foreign import write_embedder


def bias(*, external):
    tensor = numpy_helper.from_array(np.ones(8, np.float32), "bias")
    if external:
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value="weights.bin")
    return tensor


def add_bias(model, place, tensor):
    graph = model.graph
    constant = helper.make_node("Constant", [], ["b"], value=tensor)
    inner = helper.make_graph([], "inner", [], [])
    node = helper.make_node("If", ["condition"], ["r"], then_branch=inner, else_branch=inner)
    if place == "initializer":
        graph.initializer.append(tensor)
    elif place == "sparse initializer":
        graph.sparse_initializer.add().values.CopyFrom(tensor)
    elif place == "constant":
        graph.node.append(constant)
    elif place == "tensors of an attribute":
        graph.node.add(op_type="Custom").attribute.append(helper.make_attribute("all", [tensor]))
    elif place == "function":
        model.functions.append(helper.make_function("local", "F", [], ["b"], [constant], [helper.make_opsetid("", 17)]))
    elif place == "initializer of a subgraph":
        node.attribute[1].g.initializer.append(tensor)
        graph.node.append(node)
    elif place == "subgraph of a subgraph":
        node.attribute[1].g.node.add(op_type="Loop").attribute.add(
            name="body", type=AttributeProto.GRAPH
        ).g.node.append(constant)
        graph.node.append(node)


@pytest.mark.parametrize(
    "place",
    [
        *("initializer", "sparse initializer", "constant", "tensors of an attribute", "function"),
        *("initializer of a subgraph", "subgraph of a subgraph"),
    ],
)
def test_weights_in_another_file_are_found_everywhere(place, tmp_path):
    path = write_embedder(tmp_path / "m.onnx")
    for external in (False, True):
        model = onnx.load(str(path))
        add_bias(model, place, bias(external=external))
        changed = tmp_path / "changed.onnx"
        changed.write_bytes(model.SerializeToString())
        if external:
            with pytest.raises(ModelError, match=r"changed\.onnx: joining .* but 'bias' is in another"):
                load_graph(changed, "joining models")
        else:
            found = [tensor.name for tensor in all_tensors(load_graph(changed, "joining models"))]
            assert sorted(found) == ["bias", "matrix"]
