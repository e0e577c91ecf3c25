import pickle

import cv2
import numpy as np
import pytest

from facerts.detection import Detection, PhotoSearch
from facerts.errors import Error
from facerts.images.align import align

# Eyes, nose and corners of the mouth in a box of side 1.
POINTS = np.array([[0.3, 0.35], [0.7, 0.35], [0.5, 0.55], [0.35, 0.75], [0.65, 0.75]])


class Squares:
    """Finds red rectangles of 10 to 400 pixels, those whose upper half is green, too, with a better score.

    Larger ones give boxes of parts of them, as real networks do.
    """

    identity, size, max_iou, sure = "squares", 1024, 0.3, 0.9

    def __init__(self, *, enlarges=False, tile=None, part_score=0.65):
        self.enlarges, self.tile, self.part_score = enlarges, tile, part_score
        self.passes = []

    def __call__(self, image):
        self.passes.append(image.shape[:2])
        assert self.tile is None or all(np.array(image.shape[:2]) <= self.tile)
        count, _, stats, _ = cv2.connectedComponentsWithStats((image[..., 0] > 128).astype(np.uint8))
        faces = []
        for left, top, width, height, _ in stats[1:count]:
            if min(width, height) >= 10:
                half = image[top + height // 8 : top + 3 * height // 8, left : left + width, 1]
                score = 0.95 if half.mean() > 128 else 0.7
                parts = [(left, top, width, height, score)]
                if max(width, height) > 400:
                    parts = [
                        (left + 20, top + 20, 200, 220, self.part_score),
                        (left + 240, top + 100, 150, 150, self.part_score),
                    ]
                faces += [_detection(*part) for part in parts]
        return faces


def _detection(left, top, width, height, score=1.0):
    corner, side = np.array([left, top], dtype=float), np.array([width, height], dtype=float)
    return Detection(np.concatenate([corner, corner + side]), corner + POINTS * side, score)


def draw(height, width, *boxes):
    """A dark photo with upright faces at the boxes: left, top, width and height."""
    photo = np.zeros((height, width, 3), dtype=np.uint8)
    for left, top, across, down in boxes:
        photo[top : top + down, left : left + across, 0] = 255
        photo[top : top + down // 2, left : left + across, 1] = 255
    return photo


def assert_found(faces, boxes, atol):
    expected = np.array([(left, top, left + across, top + down) for left, top, across, down in boxes])
    found = np.array([face.box for face in faces]).reshape(-1, 4)
    assert len(found) == len(expected)
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(expected, axis=0), atol=atol)


@pytest.mark.parametrize(
    ("shape", "size", "longest"),
    [
        ((250, 250), "auto", [250]),
        ((500, 400), "auto", [500]),
        ((1000, 800), "auto", [1000, 256]),
        ((2000, 1500), "auto", [1024, 256]),
        ((3000, 4000), "auto", [1600, 1024, 256]),
        # A panorama is searched as finely as a photo of 1,500 x 1,000.
        ((1000, 8000), "auto", [5461, 1365, 1024, 256]),
        # Nor a longer one in more than 12 million pixels.
        ((600, 65000), "auto", [36056, 9014, 2254, 1024, 256]),
        ((3000, 2000), "full", [3000, 1024, 256]),
        ((3000, 2000), 1500, [1500, 1024, 256]),
        ((3000, 2000), 300, [300]),
        ((300, 200), 5000, [300]),
    ],
    ids=str,
)
def test_photos_are_searched_at_the_scales_that_they_need(shape, size, longest):
    levels = PhotoSearch(Squares(), size)._levels(np.zeros((*shape, 3), dtype=np.uint8))
    assert [max(level.image.shape) for level in levels] == longest
    for level in levels:
        np.testing.assert_allclose(level.pixel * level.image.shape[1::-1], shape[::-1])


def test_a_network_that_wants_small_photos_enlarged_gets_them():
    levels = PhotoSearch(Squares(enlarges=True))._levels(np.zeros((150, 300, 3), dtype=np.uint8))
    assert [level.image.shape for level in levels] == [(512, 1024, 3), (128, 256, 3)]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tile", [None, (640, 640)])
def test_each_face_is_found_once_wherever_tiles_cut_it(seed, tile):
    rng = np.random.default_rng(seed)
    boxes = []
    for row in range(4):
        for column in range(6):
            side, down = rng.integers(12, 380, 2) if seed else rng.integers(12, 40, 2)
            left, top = 800 * column + rng.integers(1, 410), 800 * row + rng.integers(1, 410)
            boxes.append((int(left), int(top), int(max(side, down // 2)), int(max(down, side // 2))))
    network = Squares(tile=tile)
    faces = PhotoSearch(network, "full")(draw(3200, 4800, *boxes))
    assert_found(faces, boxes, atol=16)
    assert [face.area for face in faces] == sorted((face.area for face in faces), reverse=True)
    assert max(height * width for height, width in network.passes) <= 4_000_000
    # Small ones are found at the finest scale alone, so their boxes are exact.
    if not seed:
        assert_found(faces, boxes, atol=1e-9)


def test_a_face_that_fills_a_large_photo_is_found_without_parts_of_it():
    whole = (150, 100, 2600, 2700)
    assert_found(PhotoSearch(Squares())(draw(3000, 3000, whole)), [whole], atol=20)
    # Faces with better scores are no parts of it.
    assert len(PhotoSearch(Squares(part_score=0.96))(draw(3000, 3000, whole))) > 1


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_a_photo_on_its_side_gives_the_faces_of_the_upright_one(turns):
    boxes = [(100, 50, 60, 80), (300, 200, 90, 120)]
    photo = draw(400, 600, *boxes)
    upright = PhotoSearch(Squares())(photo)
    lying = np.ascontiguousarray(np.rot90(photo, turns))
    found = PhotoSearch(Squares())(lying)
    assert [face.rotation for face in found] == [90 * turns] * 2
    for face, other in zip(found, upright, strict=True):
        left, top, right, bottom = face.box.astype(int)
        assert lying[top:bottom, left:right, 0].all()
        assert lying[..., 0].sum() == photo[..., 0].sum()
        assert face.area == other.area
        np.testing.assert_allclose(align(lying, face.points), align(photo, other.points), atol=2)
        assert face.pose[:2] == pytest.approx(other.pose[:2])
        # Turned counterclockwise with the photo.
        assert np.cos(np.radians(face.pose[2] - other.pose[2] + 90 * turns)) == pytest.approx(1)
    # Without turns it is what the network says of the photo as it is.
    assert [face.rotation for face in PhotoSearch(Squares(), rotate=False)(lying)] == [0, 0]


def test_a_turned_face_is_where_the_photo_shows_it():
    rng = np.random.default_rng(0)
    for turns in range(4):
        height, width = 40, 70
        x, y = int(rng.integers(width)), int(rng.integers(height))
        photo = np.zeros((height, width), dtype=np.uint8)
        photo[y, x] = 1
        ((row, column),) = np.argwhere(np.rot90(photo, turns))
        corner = np.array([column, row], dtype=float)
        face = Detection(np.array([*corner, *corner + 1]), np.tile(corner, (5, 1)), 0.5)
        back = face.unturned(turns, height, width)
        np.testing.assert_allclose(back.points, np.tile([x, y], (5, 1)), atol=1e-9)
        np.testing.assert_allclose(back.box, [x, y, x + 1, y + 1], atol=1e-9)
        assert (back.rotation + 360 - 90 * (4 - turns)) % 360 == 0


def test_only_photos_without_a_sure_face_are_turned():
    def passes(photo, **options):
        network = Squares()
        PhotoSearch(network, **options)(photo)
        return network.passes

    face, shape = (100, 50, 60, 80), (400, 500)
    assert passes(draw(*shape, face)) == [shape]
    assert passes(draw(*shape)) == [shape, shape[::-1], shape, shape[::-1]]
    assert passes(draw(*shape), rotate=False) == [shape]
    # A doubtful face is looked at by itself in each turn, where this network doubts it, too.
    doubtful = draw(*shape, face)
    doubtful[..., 1] = 0
    assert passes(doubtful) == [shape, (256, 256), shape[::-1], shape, shape[::-1]]


def test_an_upright_face_that_a_closer_look_confirms_is_kept_without_turning_the_photo():
    class Unsure(Squares):
        def __call__(self, image):
            found = super().__call__(image)
            whole = image.shape[0] > 256
            return [Detection(face.box, face.points, face.score - 0.2 * whole) for face in found]

    network = Unsure()
    (face,) = PhotoSearch(network)(draw(400, 500, (100, 50, 60, 80)))
    assert (face.rotation, len(network.passes)) == (0, 2)


@pytest.mark.parametrize("corner", [(-500.0, -500.0), (900.0, 100.0), (1e30, 0.0)], ids=str)
def test_a_box_beyond_the_photo_costs_nothing_but_the_turns(corner):
    class Lost(Squares):
        def __call__(self, image):
            super().__call__(image)
            return [_detection(*corner, 80, 90, 0.7)]

    network = Lost()
    assert len(PhotoSearch(network)(draw(400, 500))) == 1
    assert len(network.passes) == 4


@pytest.mark.parametrize("size", ["auto", "full"])
@pytest.mark.parametrize("shape", [(1, 20_000_000), (3_000_000, 3)], ids=str)
def test_a_line_of_pixels_takes_no_more_memory_or_time_than_a_photo(shape, size):
    network = Squares()
    PhotoSearch(network, size, rotate=False)(np.zeros((*shape, 3), dtype=np.uint8))
    padded = [max(height, 32) * max(width, 32) for height, width in network.passes]
    assert max(padded) <= 4_000_000
    assert sum(padded) <= 30_000_000


def test_frames_are_searched_in_bounded_time_unless_it_was_asked_otherwise():
    frame = np.zeros((2160, 3840, 3), dtype=np.uint8)
    for options, longest, turned in (
        ({}, 1024, False),
        ({"size": 1600}, 1600, False),
        ({"size": "full", "rotate": True}, 3840, True),
    ):
        search = PhotoSearch(Squares(), **options).of_frames()
        assert max(search._levels(frame)[0].image.shape) == longest
        assert search.rotate is turned


def test_sizes_that_mean_nothing_are_refused():
    for size in (31, 0, -5, "small", 1.5):
        with pytest.raises(Error, match=r"det_size must be auto, full or at least 32 pixels"):
            PhotoSearch(Squares(), size)


def test_a_search_can_be_pickled():
    search = PhotoSearch(Squares(), 500, rotate=False)
    again = pickle.loads(pickle.dumps(search))
    assert (again.identity, again.size, again.rotate) == (search.identity, 500, False)
