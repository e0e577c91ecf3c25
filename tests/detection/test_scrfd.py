import shutil
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_images
from facerts.detection import SCRFD, PhotoSearch, open_detector
from facerts.errors import ModelError
from facerts.images import decode
from tests.detectors import POINTS, SECOND, iou, reference_faces, write_scrfd
from tests.foreign import write_embedder

SIZE = 160


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_scrfd(tmp_path_factory.mktemp("scrfd") / "scrfd.onnx")


def draw_squares(seed=0, squares=12, size=SIZE):
    """A few bright cells of all strides, some of them adjacent, each of a different brightness."""
    rng = np.random.default_rng(seed)
    image = np.zeros((size, size, 3), dtype=np.uint8)
    for number in range(squares):
        channel = number % 3
        stride = (8, 16, 32)[channel]
        top, left = rng.integers(0, size // stride, 2) * stride
        image[top : top + stride, left : left + stride, channel] = 140 + 9 * number
    return image


def assert_same(found, expected, atol=1e-3):
    """Check that both are the same faces, in any order."""

    def order(face):
        return (round(face.score, 4), *np.round(face.box, 1))

    assert len(found) == len(expected)
    for face, other in zip(sorted(found, key=order), sorted(expected, key=order), strict=True):
        np.testing.assert_allclose(face.box, other.box, atol=atol)
        np.testing.assert_allclose(face.points, other.points, atol=atol)
        assert face.score == pytest.approx(other.score, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threshold", [0.5, 0.25])
def test_detections_match_a_slow_reference(model, seed, threshold):
    image = draw_squares(seed)
    found = SCRFD(model, threshold=threshold)(image)
    expected = reference_faces(image, threshold)
    assert len(expected) >= 8
    assert any(face.score < SECOND for face in expected) == (threshold < SECOND)
    assert_same(found, expected)
    areas = [face.area for face in found]
    assert areas == sorted(areas, reverse=True)


@pytest.mark.parametrize(
    "form",
    [
        {"batch_axis": True},
        {"order": [8, 0, 3, 6, 1, 4, 7, 2, 5]},
        {"order": [6, 7, 8, 3, 4, 5, 0, 1, 2]},
        {"order": [2, 1, 0, 5, 4, 3, 8, 7, 6], "batch_axis": True},
        {"sides": (SIZE, SIZE), "batch_axis": True},
        {"sides": (SIZE, "W"), "batch": "N"},
    ],
    ids=str,
)
def test_outputs_are_assigned_by_their_shapes(tmp_path, form):
    image = draw_squares()
    detector = SCRFD(write_scrfd(tmp_path / "m.onnx", **form))
    assert_same(detector(image), reference_faces(image, 0.5))


@pytest.mark.parametrize(("height", "width"), [(97, 160), (203, 131), (1000, 333), (45, 77), (64, 640)], ids=str)
def test_photos_of_any_size_give_boxes_in_their_own_pixels(model, height, width):
    # Each box is a cell of the input, so the boxes together cover the bright area.
    lit = [0.25 * width, 0.25 * height, 0.75 * width, 0.75 * height]
    image = np.zeros((height, width, 3), dtype=np.uint8)
    left, top, right, bottom = (round(side) for side in lit)
    image[top:bottom, left:right, 0] = 255
    faces = PhotoSearch(SCRFD(model), SIZE)(image)
    boxes = np.array([face.box for face in faces])
    cell = 8 * max(height, width) / SIZE
    covered = [*boxes[:, :2].min(axis=0), *boxes[:, 2:].max(axis=0)]
    np.testing.assert_allclose(covered, lit, atol=0.51 * cell + 1)
    for face in faces:
        np.testing.assert_allclose(face.box[2:] - face.box[:2], cell, rtol=0.05)
        np.testing.assert_allclose((face.points - face.box[:2]) / cell, POINTS, rtol=0.05)
    # Each side has its own factor: 333 x 10 pixels become 160 x 5 after rounding.
    face = PhotoSearch(SCRFD(model), SIZE)(np.full((10, 333, 3), 255, dtype=np.uint8))[-1]
    np.testing.assert_allclose(face.box[2:] - face.box[:2], [8 * 333 / 160, 8 * 10 / 5])


def test_images_smaller_than_a_stride_are_accepted(model):
    detector = PhotoSearch(SCRFD(model), SIZE)
    for shape in ((1, 1), (3, 5), (7, 7), (1, 2000), (2000, 1)):
        assert detector(np.zeros((*shape, 3), dtype=np.uint8)) == []
        faces = detector(np.full((*shape, 3), 255, dtype=np.uint8))
        assert np.isfinite([face.box for face in faces]).all()
        assert bool(faces) == (min(shape) > 1 or shape == (1, 1))


def test_the_padding_beside_the_photo_is_black_and_not_a_face(model):
    assert SCRFD(model)(np.full((107, 160, 3), 120, dtype=np.uint8)) == []
    # At this threshold a cell that is partly padding is not a face.
    faces = SCRFD(model, threshold=0.7)(np.full((52, SIZE, 3), 255, dtype=np.uint8))
    assert max(face.box[3] for face in faces) == 48


@pytest.mark.parametrize("works_at_any_size", [True, False])
def test_a_fixed_input_determines_the_default_size(tmp_path, model, monkeypatch, works_at_any_size):
    fixed = write_scrfd(tmp_path / "fixed.onnx", sides=(SIZE, SIZE))
    if not works_at_any_size:
        monkeypatch.setattr("facerts.detection.scrfd.make_shape_dynamic", lambda content, where: content)
    image = draw_squares()
    assert_same(SCRFD(fixed)(image), reference_faces(image, 0.5))
    assert (SCRFD(fixed).size, SCRFD(model).size) == (SIZE, 640)
    assert SCRFD(fixed).tile == (None if works_at_any_size else (SIZE, SIZE))
    # A larger photo is searched in parts.
    large = np.zeros((600, 900, 3), dtype=np.uint8)
    large[320:328, 640:648, 0] = 255
    boxes = np.array([face.box for face in PhotoSearch(SCRFD(fixed), "full")(large)])
    assert (np.abs(boxes - [640, 320, 648, 328]) < 8).all()
    assert len(boxes)
    # It need not be square.
    wide = SCRFD(write_scrfd(tmp_path / "wide.onnx", sides=(64, SIZE)))
    assert_same(wide(image[:64]), reference_faces(image[:64], 0.5))


@pytest.fixture
def pack(tmp_path):
    folder = tmp_path / "buffalo_s"
    folder.mkdir()
    write_scrfd(folder / "det_500m.onnx")
    write_embedder(folder / "w600k_mbf.onnx", size=128)
    write_embedder(folder / "genderage.onnx")
    return folder


def test_the_detector_of_a_pack_is_found(pack, tmp_path, monkeypatch):
    packed = Path(shutil.make_archive(str(pack), "zip", pack))
    home = tmp_path / "temporary"
    home.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(home))
    image = draw_squares()
    for path in (pack, packed):
        assert_same(SCRFD(path)(image), reference_faces(image, 0.5))
    assert list(home.iterdir()) == []
    # One without lists what is in it.
    (pack / "det_500m.onnx").unlink()
    with pytest.raises(ModelError, match=r"one SCRFD detector with five points, but this one has none") as error:
        SCRFD(pack)
    assert "w600k_mbf.onnx: ['N', 3, 112, 112] to ['N', 128]" in str(error.value)


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"order": range(6)}, "not SCRFD, since its inputs and outputs are"),
        ({"points": 6}, "not SCRFD, since its inputs and outputs are"),
        ({"strides": (16, 32, 64)}, r"for \(1, 3, 640, 640\) its outputs are .*, and none is \(12800, 1\)"),
        ({"strides": (8, 8, 16)}, r"none is \(800, 1\)"),
        ({"sides": (100, 100)}, "not SCRFD, since its inputs and outputs are"),
        ({"batch": 4}, "not SCRFD, since its inputs and outputs are"),
    ],
    ids=str,
)
def test_other_networks_are_refused_with_the_expected_interface(tmp_path, form, words):
    with pytest.raises(ModelError, match=rf"m\.onnx: .*{words}.*; SCRFD takes \(1, 3, H, W\) .* points \(A, 10\)"):
        SCRFD(write_scrfd(tmp_path / "m.onnx", **form))


@pytest.mark.slow
def test_scrfd_agrees_with_yunet_on_real_photos(reference_models, facerts_data):
    scrfd = SCRFD(reference_models / "scrfd_500m_kps.onnx", threads=1)
    yunet = open_detector("yunet")
    source = open_images(facerts_data / "photos" / "lfw")
    distances = []
    for index in range(min(len(source), 40)):
        photo = decode(source.read(index), where=source.location(index))
        ours = scrfd(photo)
        assert ours
        theirs = yunet(photo)[0]
        same = max(ours, key=lambda face: iou(face.box, theirs.box))
        assert iou(same.box, theirs.box) > 0.5
        eyes = np.linalg.norm(theirs.points[1] - theirs.points[0])
        distances.append(np.linalg.norm(same.points - theirs.points, axis=1).mean() / eyes)
    # Points in the wrong order, of another stride or scale, or with left and right swapped are at least 0.3 apart.
    assert np.median(distances) < 0.15
