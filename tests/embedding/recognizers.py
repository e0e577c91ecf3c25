"""Small recognizers whose last layers are built in different ways, for the tests."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from facerts.embedding import load_embedder
from tests.foreign import SIZE, weights, write_description

POOLED = helper.make_node("AveragePool", ["face"], ["pooled"], kernel_shape=[16, 16], strides=[16, 16])
FLAT = helper.make_node("Flatten", ["pooled"], ["flat"])
BIAS = np.random.default_rng(1).normal(size=SIZE).astype(np.float32)
# BatchNorm's scale, shift, mean and variance.
NORM = np.abs(np.random.default_rng(2).normal(size=(4, SIZE))).astype(np.float32) + np.float32(0.5)
EPSILON = 1e-5
BLUR = np.random.default_rng(3).normal(size=(3, 3, 5, 5)).astype(np.float32)


def node(kind, inputs, output, **attributes):
    return helper.make_node(kind, inputs, [output], **attributes)


TENSORS = {
    "matrix": weights(),
    "transposed": weights().T,
    "half": weights().astype(np.float16),
    "pointwise": weights().T[:, :, None, None],
    "kernel": BLUR,
    "bias": BIAS,
    "scale": NORM[0],
    "shift": NORM[1],
    "mean": NORM[2],
    "variance": NORM[3],
    "one row": np.array([1, SIZE]),
    "four axes": np.array([0, 147, 1, 1]),
    "size": np.array([SIZE]),
    "axis": np.array([1]),
    "tiny": np.array(1e-12, dtype=np.float32),
    "few": np.ones((3, SIZE), dtype=np.float32),
    "quantized": np.clip(weights() * 40, -127, 127).astype(np.int8),
    "step": np.array(1 / 40, dtype=np.float32),
    "double": weights().astype(np.float64),
}


# From the pooled image, (N, 3, 7, 7), to "vector".
LINEAR = node("MatMul", ["flat", "matrix"], "vector")
GEMM = node("Gemm", ["flat", "transposed", "bias"], "linear", transB=1)
BATCH_NORM = node("BatchNormalization", ["linear", "scale", "shift", "mean", "variance"], "vector", epsilon=EPSILON)
BEFORE = node("Conv", ["face", "kernel"], "filtered", pads=[2, 2, 2, 2])
AFTER = node("AveragePool", ["filtered"], "pooled", kernel_shape=[16, 16], strides=[16, 16])
MODELS = {
    "matmul": [POOLED, FLAT, LINEAR],
    "conv and matmul": [BEFORE, AFTER, FLAT, LINEAR],
    "gemm and batch norm": [POOLED, FLAT, GEMM, BATCH_NORM],
    "half": [
        POOLED,
        FLAT,
        node("Cast", ["half"], "cast", to=TensorProto.FLOAT),
        node("MatMul", ["flat", "cast"], "vector"),
    ],
    "constant": [
        POOLED,
        FLAT,
        helper.make_node("Constant", [], ["stored"], value=numpy_helper.from_array(weights())),
        node("MatMul", ["flat", "stored"], "vector"),
    ],
    # As PyTorch exports a unit embedding: the batch size is that of the image.
    "unit": [
        POOLED,
        FLAT,
        GEMM,
        node("ReduceL2", ["linear"], "length", axes=[1], keepdims=1),
        node("Max", ["length", "tiny"], "at least"),
        node("Shape", ["face"], "rows", start=0, end=1),
        node("Concat", ["rows", "size"], "shape", axis=0),
        node("Expand", ["at least", "shape"], "lengths"),
        node("Div", ["linear", "lengths"], "vector"),
    ],
    # A convolution of one position is a linear layer; its last layer knows that there is one image.
    "one image": [
        POOLED,
        FLAT,
        node("Reshape", ["flat", "four axes"], "map"),
        node("Conv", ["map", "pointwise", "bias"], "linear"),
        node("Reshape", ["linear", "one row"], "vector"),
    ],
    "no layers": [POOLED, FLAT, node("Identity", ["flat"], "vector")],
    "layer on the image": [
        node("Conv", ["face", "kernel"], "filtered"),
        node("GlobalAveragePool", ["filtered"], "color"),
        node("Flatten", ["color"], "vector"),
    ],
    "map": [
        BEFORE,
        AFTER,
        node("Conv", ["pooled", "kernel"], "smaller"),
        node("GlobalAveragePool", ["smaller"], "color"),
        node("Flatten", ["color"], "vector"),
    ],
    "around": [
        POOLED,
        FLAT,
        node("MatMul", ["flat", "matrix"], "linear"),
        node("ReduceMean", ["face"], "brightness", axes=[1, 2, 3], keepdims=1),
        node("Flatten", ["brightness"], "bright"),
        node("Add", ["linear", "bright"], "vector"),
    ],
    "number of channels": [
        POOLED,
        FLAT,
        node("MatMul", ["flat", "matrix"], "linear"),
        node("Shape", ["face"], "channels", start=1, end=2),
        node("Cast", ["channels"], "shift by", to=TensorProto.FLOAT),
        node("Add", ["linear", "shift by"], "vector"),
    ],
    "quantized": [
        POOLED,
        FLAT,
        node("DequantizeLinear", ["quantized", "step"], "weights"),
        node("MatMul", ["flat", "weights"], "vector"),
    ],
    "double": [
        POOLED,
        FLAT,
        node("Cast", ["flat"], "long", to=TensorProto.DOUBLE),
        node("MatMul", ["long", "double"], "long vector"),
        node("Cast", ["long vector"], "vector", to=TensorProto.FLOAT),
    ],
}


def write_recognizer(path, nodes, tensors, batch="N", **described):
    read = {name for each in nodes for name in each.input}
    graph = helper.make_graph(
        nodes,
        "recognizer",
        [helper.make_tensor_value_info("face", TensorProto.FLOAT, [batch, 3, 112, 112])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, None)],
        [
            numpy_helper.from_array(np.ascontiguousarray(values), name)
            for name, values in tensors.items()
            if name in read
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    write_description(path, **described, **({"input_batch": batch} if isinstance(batch, int) else {}))
    return load_embedder(path)


def open_model(folder, name, **options):
    path = folder / "m.onnx"
    write_recognizer(path, MODELS[name], TENSORS, 1 if name == "one image" else "N")
    return load_embedder(path, **options)


def flat_pixels(crops):
    """The tensor "flat" of the models without a convolution before it."""
    x = (crops.astype(np.float64) - 127.5) / 127.5
    pooled = x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4))
    return pooled.transpose(0, 3, 1, 2).reshape(len(x), -1)


def drawn_crops(count, seed):
    """Crops of 7 x 7 squares of any color and contrast."""
    random = np.random.default_rng(seed)
    squares = random.integers(0, 256, (count, 7, 7, 3)) * random.random((count, 1, 1, 1))
    return np.repeat(np.repeat(squares, 16, axis=1), 16, axis=2).astype(np.uint8)
