"""A small ONNX embedder whose embedding depends on image quality, as those of trained networks do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from facerts.datasets.synthetic import draw_face
from tests.foreign import write_description

SIZE = 16
FACES = 64


def write_sharp_embedder(path: Path, *, likeness: float = 0.5) -> Path:
    """Write an embedder that projects colors pooled to 7 x 7, provided that edges have the usual strength.

    Embeddings of blurred and noisy images move away instead, each in its own direction and, in proportion to
    ``likeness``, in a common direction.
    """
    faces = np.stack([draw_face(identity, 0, seed=77) for identity in range(FACES)])
    x = (faces.transpose(0, 3, 1, 2).astype(np.float32) - 127.5) / 127.5
    usual = np.abs(_edges(x)).mean()
    colors = x.reshape(FACES, 3, 7, 16, 7, 16).mean(axis=(3, 5)).reshape(FACES, 147)
    matrix = np.random.default_rng(0).normal(size=(147, SIZE)).astype(np.float32) / 4
    shared = np.zeros(SIZE, dtype=np.float32)
    shared[0] = likeness * np.sqrt(SIZE / 2)
    laplacian = np.array([[0, -1, 0], [-1, 4, -1], [0, -1, 0]], dtype=np.float32)
    kept = {
        "kernel": np.repeat(laplacian[None, None], 3, axis=0),
        "usual": np.array(usual, dtype=np.float32),
        "one": np.array(1.0, dtype=np.float32),
        "eight": np.array(8.0, dtype=np.float32),
        "three": np.array(3.0, dtype=np.float32),
        "mean": colors.mean(axis=0),
        "matrix": matrix,
        "shared": shared,
        "many": np.array(50.0, dtype=np.float32),
    }
    steps = [
        ("Conv", ["face", "kernel"], "edges", {"group": 3}),
        ("Abs", ["edges"], "strength", {}),
        ("GlobalAveragePool", ["strength"], "planes", {}),
        ("Flatten", ["planes"], "row", {}),
        ("ReduceMean", ["row"], "sharpness", {"axes": [1], "keepdims": 1}),
        ("Div", ["sharpness", "usual"], "r", {}),
        ("Mul", ["r", "r"], "square", {}),
        ("Add", ["square", "one"], "more", {}),
        ("Div", ["r", "more"], "half", {}),
        ("Pow", ["half", "three"], "peak", {}),
        ("Mul", ["peak", "eight"], "gate", {}),
        ("AveragePool", ["face"], "pooled", {"kernel_shape": [16, 16], "strides": [16, 16]}),
        ("Flatten", ["pooled"], "flat", {}),
        ("Sub", ["flat", "mean"], "centered", {}),
        ("MatMul", ["centered", "matrix"], "seen", {}),
        ("Mul", ["seen", "gate"], "gated", {}),
        ("Mul", ["seen", "many"], "angle", {}),
        ("Sin", ["angle"], "anywhere", {}),
        ("Add", ["anywhere", "shared"], "astray", {}),
        ("Sub", ["one", "gate"], "shut", {}),
        ("Mul", ["astray", "shut"], "lost", {}),
        ("Add", ["gated", "lost"], "vector", {}),
    ]
    nodes = [helper.make_node(kind, inputs, [name], **options) for kind, inputs, name, options in steps]
    graph = helper.make_graph(
        nodes,
        "sharp",
        [helper.make_tensor_value_info("face", TensorProto.FLOAT, ["N", 3, 112, 112])],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["N", SIZE])],
        [numpy_helper.from_array(values, name) for name, values in kept.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))
    write_description(path)
    return path


def _edges(x: NDArray[np.float32]) -> NDArray[np.float32]:
    inner = x[..., 1:-1, 1:-1]
    return 4 * inner - x[..., :-2, 1:-1] - x[..., 2:, 1:-1] - x[..., 1:-1, :-2] - x[..., 1:-1, 2:]
