"""Small networks with the interfaces of SCRFD and YuNet, and a slow reference implementation of the former.

In the SCRFD network red produces faces at stride 8, green at 16 and blue at 32: an anchor's score is the brightness of
its cell of the image in that color, times 1 for a location's first anchor and ``SECOND`` for the other. Boxes and
points are always at ``distances`` and ``POINTS`` relative to the location, in strides.

In the YuNet network blue produces faces at stride 8, green at 16 and red at 32; brighter cells give higher scores,
larger boxes, and boxes further from the cell's corner. OpenCV can run it too.
"""

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


def cells(stride):
    """Attributes of a pooling over the cells of a stride."""
    return {"kernel_shape": [stride, stride], "strides": [stride, stride]}


def write_scrfd(
    path,
    *,
    sides=("H", "W"),
    batch=1,
    batch_axis=False,
    order=range(9),
    strides=STRIDES,
    outputs=9,
    points=5,
    distances=DISTANCES,
    not_a_number=False,
):
    """Write the SCRFD network.

    Args:
        sides: height and width of the input.
        batch_axis: whether outputs are (1, A, C) rather than (A, C).
        order: order of the outputs; by default the scores of all strides come first, then boxes, then points.
        points: number of points per face.
        distances: (stride, anchor, side).
    """
    nodes, weights = [], {}
    names = {"score": [], "box": [], "points": []}
    landmarks = np.resize(POINTS, (points, 2))
    for level, stride in enumerate(strides):
        weights[f"channel{level}"] = np.array([level], dtype=np.int64)
        nodes += [
            helper.make_node("Gather", ["image", f"channel{level}"], [f"plane{level}"], axis=1),
            helper.make_node("AveragePool", [f"plane{level}"], [f"pool{level}"], **cells(stride)),
        ]
        # Brightness from 0 to 1 of an input normalized as (x - 127.5) / 128.
        score = np.array([1, SECOND], dtype=np.float32)
        score = score * np.float32(np.nan) if not_a_number else score
        maps = {
            "score": (score * np.float32(128 / 255), score / 2, 1),
            "box": (np.zeros(8, np.float32), distances[level].reshape(-1), 4),
            "points": (np.zeros(4 * points, np.float32), np.tile(landmarks.reshape(-1), 2), 2 * points),
        }
        for kind, (factor, offset, columns) in maps.items():
            name = f"{kind}{level}"
            weights[f"factor_{name}"] = factor.reshape(-1, 1, 1, 1)
            weights[f"offset_{name}"] = offset
            weights[f"shape_{name}"] = np.array([1, -1, columns][not batch_axis :], dtype=np.int64)
            nodes += [
                helper.make_node("Conv", [f"pool{level}", f"factor_{name}", f"offset_{name}"], [f"map_{name}"]),
                helper.make_node("Transpose", [f"map_{name}"], [f"last_{name}"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", [f"last_{name}", f"shape_{name}"], [f"out_{name}"]),
            ]
            names[kind].append(f"out_{name}")
    columns = {"score": 1, "box": 4, "points": 2 * points}
    listed = [(name, columns[kind]) for kind, of_kind in names.items() for name in of_kind]
    output_infos = []
    for index in list(order)[:outputs]:
        name, width = listed[index]
        shape = [1, "A", width][not batch_axis :]
        output_infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    input_info = helper.make_tensor_value_info("image", TensorProto.FLOAT, [batch, 3, *sides])
    initial = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    graph = helper.make_graph(nodes, "scrfd", [input_info], output_infos, initial)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def write_yunet(path, *, sides=(64, 64), columns=(1, 1, 4, 10), level=0.0, largest=1.0, intermediate_shapes=True):
    """Write the YuNet network, with the names of YuNet's outputs.

    Args:
        sides: height and width of the input.
        columns: number of columns of cls, obj, bbox and kps.
        level: added to cls.
        largest: logarithm of a side of the brightest box, in strides.
        intermediate_shapes: whether the file has the shapes of intermediate tensors, as exporters write them.
    """
    nodes, weights, output_infos = [], {}, []
    landmarks = np.resize(POINTS, columns[3])
    # Factor and offset of the brightness from 0 to 1, by kind of output.
    maps = [
        (np.full(columns[0], 1.2), np.full(columns[0], level)),
        (np.full(columns[1], 0.8), np.full(columns[1], 0.15)),
        (np.resize([0.9, 0.4, largest, 0.7], columns[2]), np.resize([0.1, 0.3, 0.2, -0.2], columns[2])),
        (landmarks * 0.5, landmarks),
    ]
    for kind, (factor, offset) in zip(("cls", "obj", "bbox", "kps"), maps, strict=True):
        for number, stride in enumerate(STRIDES):
            name = f"{kind}_{stride}"
            weights[f"channel_{name}"] = np.zeros((len(factor), 3, 1, 1))
            weights[f"channel_{name}"][:, number, 0, 0] = factor / 255
            weights[f"offset_{name}"] = offset
            inputs = [f"pool_{name}", f"channel_{name}", f"offset_{name}"]
            nodes += [
                helper.make_node("AveragePool", ["input"], [f"pool_{name}"], **cells(stride)),
                helper.make_node("Conv", inputs, [f"map_{name}"], kernel_shape=[1, 1]),
                helper.make_node("Transpose", [f"map_{name}"], [f"last_{name}"], perm=[0, 2, 3, 1]),
                helper.make_node("Reshape", [f"last_{name}", f"shape_{name}"], [name]),
            ]
            count = int(np.prod(sides)) // stride**2 if isinstance(sides[0], int) else f"cells_{stride}"
            shape = [1, count, len(factor)]
            output_infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))
    initial = [numpy_helper.from_array(values.astype(np.float32), name) for name, values in weights.items()]
    initial += [
        numpy_helper.from_array(np.array([1, -1, len(factor)]), f"shape_{kind}_{stride}")
        for kind, (factor, _) in zip(("cls", "obj", "bbox", "kps"), maps, strict=True)
        for stride in STRIDES
    ]
    input_info = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, *sides])
    graph = helper.make_graph(nodes, "yunet", [input_info], output_infos, initial)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    onnx.save(onnx.shape_inference.infer_shapes(model) if intermediate_shapes else model, str(path))
    return path


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
