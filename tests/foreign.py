"""Small ONNX embedders and quality models, as others might distribute them, for the tests."""

import json

import cv2
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 8


def weights(size=SIZE, seed=0):
    return np.random.default_rng(seed).normal(size=(147, size)).astype(np.float32)


def write_embedder(
    path,
    *,
    batch="N",
    layout="NCHW",
    quality=False,
    inputs=1,
    unread=0,
    dtype=TensorProto.FLOAT,
    not_a_number=False,
    size=SIZE,
    seed=0,
):
    """Average pooling to 7 x 7, then a linear layer; ``quality`` adds the mean brightness as an output.

    Args:
        inputs: of the network, the crops included.
        unread: further inputs that no node reads.
    """
    shape = [batch, 3, 112, 112] if layout == "NCHW" else [batch, 112, 112, 3]
    matrix = weights(size, seed)
    if not_a_number:
        matrix[0, 0] = np.nan
    nodes = []
    pooled = "face"
    if dtype != TensorProto.FLOAT:
        nodes.append(helper.make_node("Cast", ["face"], ["cast"], to=TensorProto.FLOAT))
        pooled = "cast"
    if layout == "NHWC":
        nodes.append(helper.make_node("Transpose", [pooled], ["planes"], perm=[0, 3, 1, 2]))
        pooled = "planes"
    nodes += [
        helper.make_node("AveragePool", [pooled], ["pooled"], kernel_shape=[16, 16], strides=[16, 16]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
    ]
    flat = "flat"
    for number in range(1, inputs):
        nodes.append(helper.make_node("Add", [flat, f"extra{number}"], [f"flat{number}"]))
        flat = f"flat{number}"
    nodes.append(helper.make_node("MatMul", [flat, "matrix"], ["vector"]))
    outputs = [helper.make_tensor_value_info("vector", TensorProto.FLOAT, [batch, size])]
    if quality:
        nodes.append(helper.make_node("ReduceMean", ["flat"], ["bright"], axes=[1], keepdims=0))
        outputs.append(helper.make_tensor_value_info("bright", TensorProto.FLOAT, [batch]))
    given = [helper.make_tensor_value_info("face", dtype, shape)]
    for number in range(1, inputs + unread):
        given.append(helper.make_tensor_value_info(f"extra{number}", TensorProto.FLOAT, [1]))
    graph = helper.make_graph(nodes, "embedder", given, outputs, [numpy_helper.from_array(matrix, "matrix")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def quality_weights(size):
    """``(size, size, 3)`` for RGB crops of that size."""
    drawn = np.random.default_rng(1).normal(size=(size, size, 3)) / size
    return drawn.astype(np.float32)


def write_quality(path, *, size=96, numbers=1):
    """A quality-only model with output (N, 1): a weighted sum of the values of a BGR crop of that size."""
    flat = quality_weights(size)[:, :, ::-1].transpose(2, 0, 1).reshape(-1, 1)
    matrix = numpy_helper.from_array(np.repeat(flat, numbers, axis=1), "matrix")
    nodes = [
        helper.make_node("Flatten", ["crop"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["confidence"]),
    ]
    given = helper.make_tensor_value_info("crop", TensorProto.FLOAT, ["N", 3, size, size])
    output = helper.make_tensor_value_info("confidence", TensorProto.FLOAT, ["N", numbers])
    graph = helper.make_graph(nodes, "quality", [given], [output], [matrix])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    return path


def slow_quality(crops, size=96):
    """The quality of the model from ``write_quality``, computed in NumPy."""
    resized = np.stack([cv2.resize(crop, (size, size)) for crop in crops]).astype(np.float64)
    return np.einsum("nhwc,hwc->n", (resized - 128) / 128, quality_weights(size).astype(np.float64))


def quality_description(size=96, **changes):
    """The description of a model from ``write_quality``."""
    return {
        "schema": "facerts.model/1",
        "input": {
            "name": "crop",
            "size": [size, size],
            "color": "BGR",
            "mean": [128, 128, 128],
            "std": [128, 128, 128],
        },
        "quality": "output:confidence",
        **changes,
    }


def write_description(model, **changes):
    """Write the description beside a model, and return the model's path.

    Keyword arguments replace fields of the description, ``input_…`` those of its input.
    """
    description = {
        "schema": "facerts.model/1",
        "input": {"name": "face"},
        "outputs": {"embedding": "vector"},
        "normalize_embedding": True,
        "quality": "norm",
    }
    for key, value in changes.items():
        if key.startswith("input_"):
            description["input"][key.removeprefix("input_")] = value
        else:
            description[key] = value
    model.with_suffix(".json").write_text(json.dumps(description))
    return model


def slow_embedding(crops, mean=127.5, std=127.5, bgr=False, size=SIZE):
    """The embedding of the model, computed in NumPy, before normalization."""
    if bgr:
        crops = crops[..., ::-1]
    x = (crops.astype(np.float64) - mean) / std
    pooled = x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4))
    return pooled.transpose(0, 3, 1, 2).reshape(len(x), -1) @ weights(size)


def joined_embeddings(models, crops):
    """``(B, D)`` unit embeddings of several models, side by side, so that their cosine is the mean of the models'."""
    found = [model(crops).embedding for model in models]
    return np.concatenate(found, axis=1) / np.sqrt(len(found)).astype(np.float32)
