from functools import partial

import cv2
import numpy as np
import pytest
import skimage.data
from onnx import TensorProto, helper, save

from facerts.datasets import open_images
from facerts.datasets.synthetic import draw_face
from facerts.detection import YuNet
from facerts.errors import ModelError
from facerts.hub.fetch import find_file
from facerts.images import decode
from tests.detectors import write_scrfd, write_yunet
from tests.foreign import write_embedder


def opencv_faces(model, image, threshold):
    """``(F, 15)`` from OpenCV's own detector: left, top, width, height, five points, score."""
    height, width = image.shape[:2]
    detector = cv2.FaceDetectorYN.create(str(model), "", (width, height), threshold, 0.3, 5000)
    _, found = detector.detect(cv2.cvtColor(image, cv2.COLOR_RGB2BGR))
    return np.empty((0, 15), np.float32) if found is None else found


def assert_as_in_opencv(model, found, image, threshold):
    """Check that OpenCV finds the same faces, in any order, and return their number."""
    expected = opencv_faces(model, image, threshold)
    assert len(found) == len(expected)
    rows = np.array(
        [[*face.box[:2], *(face.box[2:] - face.box[:2]), *face.points.ravel(), face.score] for face in found]
    ).reshape(-1, 15)
    distances = np.abs(rows[:, None] - expected[None]).max(axis=2)
    nearest = distances.argmin(axis=1) if len(found) else np.empty(0, int)
    assert sorted(nearest) == list(range(len(expected)))
    np.testing.assert_allclose(rows[:, :14], expected[nearest, :14], atol=0.01)
    np.testing.assert_allclose(rows[:, 14], expected[nearest, 14], atol=1e-4)
    areas = [face.area for face in found]
    assert areas == sorted(areas, reverse=True)
    return len(found)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_yunet(tmp_path_factory.mktemp("yunet") / "synthetic.onnx")


def draw_squares(height, width, seed=0):
    """Squares of 8 pixels in random colors."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (-(-height // 8), -(-width // 8), 3), dtype=np.uint8)
    return np.ascontiguousarray(small.repeat(8, axis=0).repeat(8, axis=1)[:height, :width])


@pytest.mark.parametrize("threshold", [0.02, 0.4, 0.6, 0.9])
@pytest.mark.parametrize(
    ("height", "width"), [(64, 64), (250, 250), (600, 40), (33, 97), (20, 30), (1, 1), (5, 700)], ids=str
)
def test_a_synthetic_network_gives_the_same_faces_as_opencv(model, height, width, threshold):
    image = draw_squares(height, width)
    found = YuNet(model, threshold=threshold)(image)
    assert assert_as_in_opencv(model, found, image, threshold) >= (threshold <= 0.4 and height * width > 1)


@pytest.mark.slow
def test_only_the_best_candidates_go_on_to_nms(tmp_path):
    # Cells of 16 and 32 pixels mix several brightnesses, so their scores are never as high as the others'.
    wide = write_yunet(tmp_path / "m.onnx", largest=2.0)
    image = draw_squares(512, 640)
    found = YuNet(wide, threshold=0.02)(image)
    assert 64 * 80 + 32 * 40 + 16 * 20 > 5000
    assert_as_in_opencv(wide, found, image, 0.02)


def test_a_file_with_a_fixed_size_gives_the_same_faces(tmp_path, model):
    image = draw_squares(100, 180)
    image.setflags(write=False)
    dynamic = write_yunet(tmp_path / "dynamic.onnx", sides=("H", "W"))
    bare = write_yunet(tmp_path / "bare.onnx", sides=(64, 96), infer_shapes=False)
    expected = [(*face.box, *face.points.ravel(), face.score) for face in YuNet(model)(image)]
    assert expected
    for other in (dynamic, bare):
        assert [(*face.box, *face.points.ravel(), face.score) for face in YuNet(other)(image)] == expected


def test_the_requested_threads_and_providers_are_used(model):
    session = YuNet(model, threads=3, providers=["CPUExecutionProvider"])._session
    assert session.get_session_options().intra_op_num_threads == 3
    # Otherwise memory would grow with the number of different photo sizes.
    assert not session.get_session_options().enable_mem_pattern
    assert session.get_providers() == ["CPUExecutionProvider"]


def write_older(path):
    """A network with the outputs of YuNet 2022mar."""
    input_info = helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 120, 160])
    names = {"loc": 14, "conf": 2, "iou": 1}
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]
    nodes = [helper.make_node("ReduceMean", ["input"], [name]) for name in names]
    graph = helper.make_graph(nodes, "older", [input_info], outputs)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=6), str(path))
    return path


OTHERS = {
    "2022mar": (write_older, "not YuNet, since its inputs and outputs are .* names loc, conf, iou"),
    "embedder": (write_embedder, "not YuNet, since its inputs and outputs are .* names vector"),
    "SCRFD": (write_scrfd, "not YuNet, since its inputs and outputs are .* names out_score0"),
    "classes": (partial(write_yunet, columns=(2, 1, 4, 10)), r"its outputs have the shapes \[\(42, 2\)"),
    "six points": (partial(write_yunet, columns=(1, 1, 4, 12)), r"its outputs have the shapes .*\(42, 12\)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_networks_are_refused_with_the_expected_interface(tmp_path, name):
    write, words = OTHERS[name]
    expected = rf"m\.onnx: .*{words}.*; YuNet 2023mar takes .* the one that ships is the detector yunet"
    with pytest.raises(ModelError, match=expected):
        YuNet(write(tmp_path / "m.onnx"))


def sample_images():
    """Name, image, and the minimum number of faces in it."""
    photo = skimage.data.astronaut()
    face = photo[20:220, 130:330]
    yield "whole", photo, 1
    yield "wide", photo[40:200], 1
    yield "tiny", cv2.resize(face, (20, 24), interpolation=cv2.INTER_AREA), 0
    crowd = np.full((420, 700, 3), 90, dtype=np.uint8)
    for number, side in enumerate((200, 150, 110, 80, 60, 40)):
        left = 20 + 110 * number
        small = cv2.resize(face, (side, side), interpolation=cv2.INTER_AREA)
        crowd[10 : 10 + side, left : left + side] = small[:, : 700 - left]
        crowd[400 - side : 400, left : left + side] = small[:, ::-1][:, : 700 - left]
    yield "crowd", crowd, 6
    yield "synthetic", draw_face(1, 0), 0


@pytest.mark.parametrize("threshold", [0.1, 0.6])
@pytest.mark.parametrize(
    ("image", "minimum"),
    [pytest.param(np.ascontiguousarray(image), minimum, id=name) for name, image, minimum in sample_images()],
)
def test_the_published_network_gives_the_same_faces_as_opencv(image, minimum, threshold):
    if min(image.shape[:2]) <= 32 and cv2.__version__.startswith("4."):
        pytest.skip("OpenCV 4.10 is not deterministic for images with a side of 32 pixels or less")
    published = find_file("yunet")
    found = YuNet(published, threads=1, threshold=threshold)(image)
    assert assert_as_in_opencv(published, found, image, threshold) >= (minimum if threshold <= 0.6 else 0)


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["lfw", "various"])
def test_on_real_photos_it_finds_the_same_faces_as_opencv(facerts_data, folder):
    published, source = find_file("yunet"), open_images(facerts_data / "photos" / folder)
    detector = YuNet(published, threads=1)
    faces = 0
    for index in range(len(source)):
        image = decode(source.read(index), where=source.location(index))
        faces += assert_as_in_opencv(published, detector(image), image, 0.6)
    assert faces >= len(source)
