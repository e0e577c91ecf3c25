"""Small networks with the interfaces of SCRFD and YuNet, and a slow reference implementation of the former.

In the SCRFD network red produces faces at stride 8, green at 16 and blue at 32: an anchor's score is the brightness of
its cell of the image in that color, times 1 for a location's first anchor and ``SECOND`` for the other. Boxes and
points are always at ``distances`` and ``POINTS`` relative to the location, in strides.

In the YuNet network blue produces faces at stride 8, green at 16 and red at 32; brighter cells give higher scores,
larger boxes, and boxes further from the cell's corner. OpenCV can run it too.
"""

from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from facerts.detection import Detection
from facerts.images.align import TEMPLATE

STRIDES = (8, 16, 32)
SECOND = 0.4
# By stride and anchor: left, top, right, bottom. The box of a first anchor is its own cell.
DISTANCES = np.array([[[0, 0, 1, 1], [1, 0.5, 2, 3]]] * 3, dtype=np.float32)
POINTS = np.array([[0.2, 0.3], [0.8, 0.3], [0.5, 0.5], [0.3, 0.8], [0.7, 0.8]], dtype=np.float32)


def face_at(left, top, side=112.0, score=0.9):
    """A face whose crop is a square of the photo, in pixels."""
    corner = np.array([left, top], dtype=np.float64)
    return Detection(np.concatenate([corner, corner + side]), TEMPLATE * side / 112 + corner, score)


class Finds:
    """A detector that finds the same faces in each image, or in those that ``where`` is true of."""

    identity = "finds"

    def __init__(self, *faces, where=lambda _: True):
        self._faces, self._where = faces, where

    def __call__(self, image):
        return [*self._faces] if self._where(image) else []


# Two faces in wide images and none in others.
TWO_FACES = Finds(face_at(0, 0), face_at(112, 0), where=lambda image: image.shape[1] >= 224)


class Tiles:
    """Finds a face in each square of the top row of a photo, from left to right, but none in a single square.

    Args:
        side: side of a square in pixels.
        lit: whether there is a face in a square.
        shift: moves the boxes, as another detector would.
    """

    def __init__(self, side=112, *, lit=lambda _: True, shift=0.0):
        self.identity = f"tiles {side} {shift}"
        self._side, self._lit, self._shift = side, lit, shift

    def __call__(self, image):
        if image.shape[1] == self._side:
            return None
        starts = range(0, image.shape[1] - self._side + 1, self._side)
        lit = [start for start in starts if self._lit(image[: self._side, start : start + self._side])]
        faces = [face_at(start, 0, self._side) for start in lit]
        return [replace(face, box=face.box + self._shift) for face in faces]


def _write(path, name, heads, *, sides, batch=1, infer_shapes=True):
    """Write a network whose outputs are linear in the mean brightness of the cells of an image in one of its channels.

    Args:
        heads: by output its shape, and stride, channel, factor ``(C,)`` and offset ``(C,)``.
    """
    nodes, weights, infos = [], {}, []
    for output, (shape, stride, channel, factor, offset) in heads.items():
        kernel = np.zeros((len(factor), 3, 1, 1), np.float32)
        kernel[:, channel, 0, 0] = factor
        weights[f"factor_{output}"], weights[f"offset_{output}"] = kernel, np.asarray(offset, np.float32)
        weights[f"shape_{output}"] = np.array([*shape[:-2], -1, shape[-1]])
        cells = {"kernel_shape": [stride, stride], "strides": [stride, stride]}
        linear = [f"pool_{output}", f"factor_{output}", f"offset_{output}"]
        nodes += [
            helper.make_node("AveragePool", ["input"], [f"pool_{output}"], **cells),
            helper.make_node("Conv", linear, [f"map_{output}"], kernel_shape=[1, 1]),
            helper.make_node("Transpose", [f"map_{output}"], [f"last_{output}"], perm=[0, 2, 3, 1]),
            helper.make_node("Reshape", [f"last_{output}", f"shape_{output}"], [output]),
        ]
        infos.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))
    image = helper.make_tensor_value_info("input", TensorProto.FLOAT, [batch, 3, *sides])
    initial = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, name, [image], infos, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    onnx.save(onnx.shape_inference.infer_shapes(model) if infer_shapes else model, str(path))
    return path


def write_scrfd(
    path, *, sides=("H", "W"), batch=1, batch_axis=False, order=range(9), strides=STRIDES, points=5, second=SECOND
):
    """Write the SCRFD network.

    Args:
        sides: height and width of the input.
        batch_axis: whether outputs are (1, A, C) rather than (A, C).
        order: the outputs; by default the scores of all strides come first, then boxes, then points.
        points: number of points per face.
        second: score of a location's second anchor in a bright cell.
    """
    score = np.array([1, second])
    landmarks = np.resize(POINTS, 2 * points)
    heads = []
    for kind, columns in (("score", 1), ("box", 4), ("points", 2 * points)):
        for level, stride in enumerate(strides):
            # Brightness from 0 to 1 of an input normalized as (x - 127.5) / 128.
            factor, offset = {
                "score": (score * 128 / 255, score / 2),
                "box": (np.zeros(8), DISTANCES[level].ravel()),
                "points": (np.zeros(4 * points), np.tile(landmarks, 2)),
            }[kind]
            shape = [1, "A", columns][not batch_axis :]
            heads.append((f"out_{kind}{level}", (shape, stride, level, factor, offset)))
    return _write(path, "scrfd", dict(heads[index] for index in order), sides=sides, batch=batch)


def write_yunet(path, *, sides=(64, 64), columns=(1, 1, 4, 10), level=0.0, largest=1.0, infer_shapes=True):
    """Write the YuNet network, with the names of YuNet's outputs.

    Args:
        sides: height and width of the input.
        columns: number of columns of cls, obj, bbox and kps.
        level: added to cls.
        largest: logarithm of a side of the brightest box, in strides.
        infer_shapes: whether the file has the shapes of intermediate tensors, as exporters write them.
    """
    landmarks = np.resize(POINTS, columns[3])
    # Factor and offset of the brightness from 0 to 1, by kind of output.
    maps = {
        "cls": (np.full(columns[0], 1.2), np.full(columns[0], level)),
        "obj": (np.full(columns[1], 0.8), np.full(columns[1], 0.15)),
        "bbox": (np.resize([0.9, 0.4, largest, 0.7], columns[2]), np.resize([0.1, 0.3, 0.2, -0.2], columns[2])),
        "kps": (landmarks * 0.5, landmarks),
    }
    heads = {}
    for kind, (factor, offset) in maps.items():
        for channel, stride in enumerate(STRIDES):
            count = int(np.prod(sides)) // stride**2 if isinstance(sides[0], int) else f"cells_{stride}"
            heads[f"{kind}_{stride}"] = [1, count, len(factor)], stride, channel, factor / 255, offset
    return _write(path, "yunet", heads, sides=sides, infer_shapes=infer_shapes)


def reference_faces(canvas, threshold, max_iou=0.4):
    """The faces that the SCRFD network must detect in an image of the input's size, best first."""
    candidates = []
    for level, stride in enumerate(STRIDES):
        for row in range(canvas.shape[0] // stride):
            for column in range(canvas.shape[1] // stride):
                top, left = row * stride, column * stride
                square = canvas[top : top + stride, left : left + stride, level]
                for anchor in range(2):
                    score = float(square.mean()) / 255 * (1, SECOND)[anchor]
                    if score < threshold:
                        continue
                    distance = DISTANCES[level, anchor].astype(np.float64) * stride
                    box = np.array([left, top, left, top]) + distance * [-1, -1, 1, 1]
                    candidates.append(Detection(box, np.array([left, top]) + POINTS * stride, score))
    candidates.sort(key=lambda face: -face.score)
    kept = []
    for face in candidates:
        if all(iou(face.box, better.box) <= max_iou for better in kept):
            kept.append(face)
    return kept


def iou(box, other):
    """Intersection over union; 0 if both boxes are empty."""
    width = min(box[2], other[2]) - max(box[0], other[0])
    height = min(box[3], other[3]) - max(box[1], other[1])
    shared = max(width, 0) * max(height, 0)
    sizes = [max(each[2] - each[0], 0) * max(each[3] - each[1], 0) for each in (box, other)]
    return float(shared / (sum(sizes) - shared)) if sum(sizes) else 0.0
