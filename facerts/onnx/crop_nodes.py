"""ONNX nodes that turn one model's input tensor into another's, as ``to_input`` would from the crops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.onnx.contract import InputSpec

if TYPE_CHECKING:
    from onnx import GraphProto

# Earliest opset with all operators used here.
OPSET = 13
# Name of a graph's new input.
CROPS = "facerts_crops"
# The arithmetic of OpenCV's bilinear resize of 8-bit images: weights in units of 1 / 2048, whole-number divisions.
WEIGHT_UNITS, ROW_DIVISOR, PRODUCT_DIVISOR, SUM_DIVISOR = 1 << 11, 1 << 4, 1 << 16, 1 << 2


def prepend_preprocessing(graph: GraphProto, ours: InputSpec, theirs: InputSpec) -> str:
    """Let a graph read the input tensor of another model.

    The nodes restore the 8-bit crop and repeat the arithmetic of ``to_input``, so that the graph sees the same numbers,
    also if it needs the crop resized. No nodes are added if both inputs are the same. The graph, of opset 13 or later,
    is changed in place; ``theirs``, which it is to read, is of 112 x 112. Returns the name of the graph's new input.
    """
    if all(getattr(ours, name) == getattr(theirs, name) for name in ("size", "layout", "color", "mean", "std")):
        return ours.name
    nodes = _Nodes()
    crop = nodes.bytes_of(CROPS, theirs)
    if ours.color != theirs.color:
        crop = nodes.add("Gather", crop, nodes.constant(np.array([2, 1, 0])), axis=1)
    if ours.size != theirs.size:
        crop = nodes.resized(crop, theirs.size, ours.size)
    nodes.normalized(crop, ours)
    nodes.entries[-1].output[0] = ours.name
    own = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes.entries, *own])
    graph.initializer.extend(nodes.constants)
    (crops,) = (value for value in graph.input if value.name == ours.name)
    crops.name = CROPS
    return CROPS


class _Nodes:
    """Nodes in order, and the constants that they read."""

    def __init__(self) -> None:
        self.entries: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"facerts_{kind}_{len(self.entries)}"
        self.entries.append(helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def constant(self, values: NDArray[Any]) -> str:
        from onnx import numpy_helper

        name = f"facerts_constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(values, name))
        return name

    def per_channel(self, values: NDArray[Any], layout: str) -> str:
        return self.constant(values.reshape(3, 1, 1) if layout == "NCHW" else values)

    def bytes_of(self, tensor: str, spec: InputSpec) -> str:
        """``(N, 3, h, w) float32``, the whole numbers from 0 to 255 behind an input tensor."""
        mean, std = _statistics(spec)
        scaled = self.add("Mul", tensor, self.per_channel(std, spec.layout))
        levels = self.add("Round", self.add("Add", scaled, self.per_channel(mean, spec.layout)))
        return levels if spec.layout == "NCHW" else self.add("Transpose", levels, perm=[0, 3, 1, 2])

    def resized(self, crop: str, size: Sequence[int], new_size: Sequence[int]) -> str:
        """``(N, 3, h', w')`` from ``(N, 3, h, w)``, to the very level that ``cv2.resize`` gives."""
        from onnx import TensorProto

        columns = self.constant(_column_weights(size[1], new_size[1]))
        wide = self.add("MatMul", crop, columns)  # exact: below 2 ** 24
        rows = self.add("Cast", wide, to=TensorProto.INT32)
        rows = self.add("Div", rows, self._whole(ROW_DIVISOR))
        products = []
        for index, weight in _row_weights(size[0], new_size[0]):
            row = self.add("Gather", rows, self.constant(index), axis=2)
            product = self.add("Mul", row, self.constant(weight.reshape(-1, 1)))
            products.append(self.add("Div", product, self._whole(PRODUCT_DIVISOR)))
        total = self.add("Add", self.add("Add", *products), self._whole(SUM_DIVISOR // 2))
        return self.add("Cast", self.add("Div", total, self._whole(SUM_DIVISOR)), to=TensorProto.FLOAT)

    def normalized(self, crop: str, spec: InputSpec) -> str:
        """The input tensor of a model from ``(N, 3, h, w)`` levels, with the order of operations of ``to_input``."""
        mean, std = _statistics(spec)
        if spec.layout == "NHWC":
            pixels = self.add("Transpose", crop, perm=[0, 2, 3, 1])
            centered = self.add("Sub", pixels, self.per_channel(mean, spec.layout))
            return self.add("Div", centered, self.per_channel(std, spec.layout))
        scaled = self.add("Mul", crop, self.per_channel(1 / std, spec.layout))
        return self.add("Sub", scaled, self.per_channel(mean / std, spec.layout))

    def _whole(self, value: int) -> str:
        return self.constant(np.array(value, dtype=np.int32))


def _statistics(spec: InputSpec) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return np.array(spec.mean, dtype=np.float32), np.array(spec.std, dtype=np.float32)


def _column_weights(size: int, new_size: int) -> NDArray[np.float32]:
    """``(size, new_size)`` weights of the columns in OpenCV's bilinear resize, in its fixed-point units."""
    identity = np.eye(size, dtype=np.float32)
    resized = cv2.resize(identity, (new_size, size), interpolation=cv2.INTER_LINEAR)
    return np.rint(resized * WEIGHT_UNITS).astype(np.float32)


def _row_weights(size: int, new_size: int) -> list[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """``(new_size,)`` indices and weights of the row above and the row below; at an edge, both are the same row."""
    position = ((np.arange(new_size) + 0.5) * (size / new_size) - 0.5).astype(np.float32)
    above = np.floor(position).astype(np.int64)
    share = position - above.astype(np.float32)
    return [
        (np.clip(index, 0, size - 1), np.rint(weight * np.float32(WEIGHT_UNITS)).astype(np.int32))
        for index, weight in ((above, 1 - share), (above + 1, share))
    ]
