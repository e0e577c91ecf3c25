"""Images with their faces drawn in: where, in which color, with what beside them, and under which names."""

from dataclasses import replace

import numpy as np
import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.errors import ImageError
from facerts.images import encode_jpeg, encode_png, read
from facerts.scoring import Face, Row
from facerts.scoring.annotate import label
from tests.command import run

GREEN, RED, BLUE = (0, 158, 115), (213, 94, 0), (0, 114, 178)
FACE = Row(
    "a.jpg",
    0,
    box=[200, 150, 300, 270],
    points=[225, 190, 275, 190, 250, 215, 230, 240, 270, 240],
    quality=-0.7,
)


def gray(height=600, width=800):
    return np.full((height, width, 3), 128, dtype=np.uint8)


def drawn_in(image, color):
    """Rows and columns of the pixels of exactly a color."""
    return np.argwhere((image == color).all(axis=2))


@pytest.mark.parametrize(("accepted", "color"), [(True, GREEN), (False, RED), (None, BLUE)])
def test_a_box_has_the_color_of_the_decision(accepted, color):
    image = gray()
    annotated = facerts.annotate(image, [replace(FACE, accepted=accepted)])
    # The image that was given stays as it is.
    assert (image == 128).all()
    assert (facerts.annotate(image, []) == image).all()
    assert annotated.shape == (600, 800, 3)
    for x, y in ((200, 210), (300, 210), (250, 270)):
        assert tuple(annotated[y, x]) == color
    # The inside of the box is the image, but for the points; nothing is drawn far from the face.
    assert (annotated[155:180, 205:295] == 128).all()
    assert tuple(annotated[190, 225]) == tuple(annotated[240, 270]) == (255, 255, 255)
    assert (annotated[300:] == 128).all()
    assert (annotated[:, 500:] == 128).all()
    others = {GREEN, RED, BLUE} - {color}
    assert not any(len(drawn_in(annotated, other)) for other in others)


@pytest.mark.parametrize("box", [[0, 0, 60, 70], [740, 530, 800, 600], [-40, -30, 900, 700], [0, 300, 8, 308]])
def test_the_label_stays_within_the_image(box):
    annotated = facerts.annotate(gray(), [replace(FACE, box=box, points=None, accepted=True)])
    assert annotated.shape == (600, 800, 3)
    plate = drawn_in(annotated, GREEN)
    letters = drawn_in(annotated, (255, 255, 255))
    assert len(letters) > 10
    # Letters stand on the plate with a margin, so none are cut off by the edge.
    assert (letters.min(axis=0) > plate.min(axis=0)).all()
    assert (letters.max(axis=0) < plate.max(axis=0)).all()


def test_a_face_at_the_upper_edge_is_not_covered_by_its_label():
    annotated = facerts.annotate(gray(), [replace(FACE, box=[200, 2, 300, 122], points=None, accepted=True)])
    assert (annotated[8:115, 206:294] == 128).all()
    assert len(drawn_in(annotated[125:], (255, 255, 255))) > 10


def test_a_small_image_is_enlarged_with_its_boxes():
    small = replace(FACE, box=[20, 30, 60, 80], points=None, accepted=True)
    annotated = facerts.annotate(gray(100, 150), [small])
    assert annotated.shape == (300, 450, 3)
    for x, y in ((60, 165), (180, 165), (120, 240)):
        assert tuple(annotated[y, x]) == GREEN
    # Any shape can be annotated.
    for shape in ((1, 1), (16, 4000), (3000, 20)):
        for row in (
            FACE,
            replace(FACE, box=None, points=None),
            Row("a", reasons=("no_face",), accepted=False),
        ):
            assert max(facerts.annotate(gray(*shape), [row]).shape) >= 448


def test_a_crop_and_an_image_without_a_face_have_the_label_below():
    crop = replace(FACE, box=None, points=None, accepted=False)
    annotated = facerts.annotate(gray(112, 112), [crop])
    height, width = annotated.shape[:2]
    assert width == 448
    assert 448 < height < 560
    below = annotated[448:]
    assert len(drawn_in(below, RED)) > 0.6 * below.shape[0] * width
    assert len(drawn_in(below, (255, 255, 255))) > 10
    assert (annotated[20:420, 20:420] == 128).all()
    without = facerts.annotate(gray(), [Row("a.jpg", accepted=False, reasons=("no_face",))])
    assert without.shape[0] > 600
    assert tuple(without[300, 0]) == RED


def test_a_label_says_what_the_row_says():
    row = replace(FACE, percentile=48.6, accepted=False, reasons=("under_exposed", "below_threshold"))
    assert label(row) == ["percentile 48", "under exposed", "quality -0.70"]
    assert label(replace(FACE, percentile=None)) == ["quality -0.70"]
    assert label(Row("a.jpg", reasons=("no_face",))) == ["no face found"]
    assert label(Row("a.jpg", reasons=("turned",), pose=[62.1, 0, 0])) == ["turned: yaw 62 degrees"]
    assert label(Row("a.jpg", error="broken")) == ["broken"]


def test_every_kind_of_input_gives_the_same(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    (tmp_path / "a.png").write_bytes(encode_png(image))
    expected = facerts.annotate(image, [FACE])
    for one in (FACE, Face(FACE)):
        np.testing.assert_array_equal(facerts.annotate(tmp_path / "a.png", one), expected)
    np.testing.assert_array_equal(facerts.annotate(image[..., ::-1], [FACE], color="BGR"), expected)
    with pytest.raises(ImageError, match=r"nope\.jpg: cannot be read"):
        facerts.annotate("nope.jpg", [FACE])


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_command_saves_what_could_be_read(model, tmp_path):
    crops = tmp_path / "crops"
    (crops / "deep").mkdir(parents=True)
    face = draw_face(0, 0)
    (crops / "a.jpg").write_bytes(encode_jpeg(face))
    (crops / "a.png").write_bytes(encode_png(draw_face(1, 0)))
    (crops / "a.png.jpg").write_bytes(encode_jpeg(draw_face(2, 0)))
    (crops / "deep" / "a.jpg").write_bytes(encode_jpeg(draw_face(3, 0)))
    (crops / "broken.jpg").write_bytes(b"no")
    command = ("score", crops, "--model", model, "--min-quality", "9", "--annotate", tmp_path / "annotated")
    for _ in range(2):
        assert run(*command) == 1
        # Names that would be the same get a number; running again changes nothing.
        assert names(tmp_path / "annotated") == ["a.jpg", "a.png (2).jpg", "a.png.jpg", "deep/a.jpg"]
    (row,) = facerts.load(model).score(crops / "a.jpg", min_quality=9)
    expected = facerts.annotate(crops / "a.jpg", [row])
    difference = np.abs(read(tmp_path / "annotated" / "a.jpg").astype(int) - expected)
    assert difference.mean() < 4


def test_images_given_one_by_one_keep_their_names(model, tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(encode_png(draw_face(len(name), 0)))
    folder = tmp_path / "x"
    options = ("--model", model, "--annotate", folder, "--save-crops", tmp_path / "crops")
    assert run("score", tmp_path / "a.png", tmp_path / "b.png", *options) == 0
    assert names(folder) == ["a.png.jpg", "b.png.jpg"]
    assert names(tmp_path / "crops") == ["a_0.png", "b_0.png"]
