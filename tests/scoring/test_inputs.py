"""Images as Python programs have them: paths, bytes, arrays of either order of colors, PIL images."""

import io
import re
from dataclasses import fields

import cv2
import numpy as np
import pytest
from PIL import Image

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, ImageError
from facerts.images import encode_png, fit_crop
from facerts.scoring import Row
from tests.command import refused
from tests.foreign import write_description, write_embedder


@pytest.fixture
def scorer(tmp_path):
    path = write_embedder(tmp_path / "m.onnx", quality=True)
    thresholds = {"0.9": {"quality": 0.0, "data_sha256": "0" * 64}}
    write_description(path, quality="output:bright", thresholds=thresholds)
    return facerts.load(path)


def test_bgr_arrays_are_swapped_and_nothing_else(scorer, crops, tmp_path):
    colored = crops[0].copy()
    colored[..., 0] //= 3
    (tmp_path / "a.png").write_bytes(encode_png(colored))
    bgr = cv2.imread(str(tmp_path / "a.png"))
    expected = scorer.embed(colored).embedding
    assert not np.allclose(scorer.embed(bgr).embedding, expected)
    for color in ("BGR", "bgr"):
        np.testing.assert_array_equal(scorer.embed(bgr, color=color).embedding, expected)
    assert scorer.score(bgr, color="bgr") == scorer.score(colored)
    np.testing.assert_array_equal(scorer.embed(bgr[None], color="BGR").embedding, expected)
    np.testing.assert_array_equal(scorer.embed(tmp_path / "a.png", color="BGR").embedding, expected)
    with pytest.raises(Error, match="no color 'gbr'; choose one of RGB, BGR"):
        scorer.score(bgr, color="gbr")


def test_pil_images_are_upright_rgb(scorer, crops, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by 90 degrees clockwise
    Image.fromarray(np.rot90(crops[0])).save(tmp_path / "turned.png", exif=exif)
    with Image.open(tmp_path / "turned.png") as turned:
        np.testing.assert_array_equal(scorer.embed(turned).embedding, scorer.embed(crops[:1]).embedding)
    gray = Image.fromarray(crops[0]).convert("L")
    assert scorer.score(gray) == scorer.score(np.repeat(np.array(gray)[..., None], 3, axis=2))


def test_a_bad_pil_image_becomes_a_row_with_its_error(scorer, crops, tmp_path, monkeypatch):
    (tmp_path / "cut.png").write_bytes(encode_png(crops[0])[:2000])
    deep = Image.fromarray(np.zeros((112, 112), dtype=np.float32))
    with Image.open(tmp_path / "cut.png") as cut:
        rows = scorer.score([cut, deep, Image.fromarray(crops[0])])
    assert [row.path for row in rows] == ["image 0", "image 1", "image 2"]
    assert "image 0: PIL cannot read it" in str(rows[0].error)
    assert "image 1: a PIL image of mode F; convert it to RGB" in str(rows[1].error)
    assert rows[2].error is None
    large = Image.new("1", (20_000, 20_000))
    (row,) = scorer.score(large)
    assert "20000 x 20000 pixels are more than the limit of" in str(row.error)


def test_threads_do_not_load_one_pil_image_at_the_same_time(model):
    noise = np.random.default_rng(0).integers(0, 256, (900, 900, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    scorer = facerts.load(model, detector="none")
    for _ in range(5):
        image = Image.open(file)  # not loaded yet
        assert [row.error for row in scorer.score([image] * 8)] == [None] * 8


def test_an_address_is_refused_with_a_reason(scorer):
    (row,) = scorer.score("https://example.org/a.jpg")
    assert row.error == "https://example.org/a.jpg is an address; download it first and give the file"


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("provider", "provider, did you mean 'providers'?"),
        ("keep", "keep; it is an argument of the scorer's functions"),
    ],
)
def test_an_unknown_argument_of_load_is_named(name, advice):
    with pytest.raises(Error, match=re.escape(f"load has no argument {advice}")):
        facerts.load(**{name: 1})


def test_a_bundled_quality_goes_with_the_default_recognizer():
    assert facerts.load("facerts-quality").recognizer.name == "facerts-small"


def test_a_scorer_says_what_it_is(scorer):
    assert repr(scorer) == "<Scorer quality m.onnx, recognizer m.onnx, detector auto>"


def test_rows_become_a_data_frame(scorer, crops):
    pandas = pytest.importorskip("pandas")
    rows = scorer.score([crops[0], b"no"], min_quality=-9)
    table = pandas.DataFrame(rows)
    assert list(table) == [field.name for field in fields(Row)]
    assert table["quality"].notna().tolist() == [True, False]
    assert table["accepted"][0]


def test_files_in_memory_and_other_bytes_are_images(scorer, crops, tmp_path):
    data = encode_png(crops[0])
    (tmp_path / "a.png").write_bytes(data)
    expected = scorer.score(data)
    for image in (io.BytesIO(data), bytearray(data), memoryview(data)):
        assert scorer.score(image) == expected
    with (tmp_path / "a.png").open("rb") as file:
        assert scorer.score([file]) == expected
    with (
        (tmp_path / "a.png").open(encoding="latin-1") as text,
        pytest.raises(Error, match="open in binary mode"),
    ):
        scorer.score(text)


def test_gray_arrays_and_those_with_alpha_are_images(scorer, crops):
    gray = crops[0, ..., 0]
    assert scorer.score(gray) == scorer.score(np.repeat(gray[..., None], 3, axis=2))
    assert scorer.score(gray[..., None], color="BGR") == scorer.score(gray)
    assert "not (112, 112) float64" in str(scorer.score(gray / 255)[0].error)
    alpha = np.dstack([crops[0], gray])
    assert scorer.score(alpha) == scorer.score(crops[0])
    bgra = np.dstack([crops[0][..., ::-1], gray])
    assert scorer.score(bgra, color="BGR") == scorer.score(crops[0])


def test_what_cannot_be_read_is_a_row_and_what_is_no_image_raises(scorer):
    (row,) = scorer.score(None)
    assert row.error == "image 0: None is no image; cv2.imread returns it for a file that it cannot read"
    for image in ({"a": 1}, 7):
        kind = type(image).__name__
        with pytest.raises(Error, match=f"must be a path, bytes, an array or a PIL image, not {kind}"):
            scorer.score(image)


def test_without_a_detector_a_square_is_resized_and_nothing_else_is_a_crop(model):
    scorer = facerts.load(model, detector="none")
    for width, height in ((100, 100), (111, 111), (113, 113), (224, 224), (150, 112)):
        image = np.asarray(cv2.resize(draw_face(0, 0), (width, height)), dtype=np.uint8)
        (row,) = scorer.score(image)
        if width == height:
            (expected,) = facerts.load(model).score(fit_crop(image))
            assert (row.quality, row.error) == (expected.quality, None)
            np.testing.assert_array_equal(*(scorer.embed([each]).embedding for each in (image, fit_crop(image))))
        else:
            assert "150 x 112 pixels are not an aligned crop" in str(row.error)
            with pytest.raises(ImageError, match="image 0: 150 x 112 pixels are not an aligned crop"):
                scorer.embed([image])


def test_options_of_a_detector_without_one_are_refused(model, tmp_path, capsys):
    for setting in ("det_threshold=0.5", "det_size=640", "rotate=false"):
        command = ["embed", tmp_path, "--out", tmp_path / "out.npz", "--model", model, "--set", "detector=none"]
        assert "det_threshold, det_size and rotate need a detector" in refused(capsys, *command, "--set", setting)
