"""Faces as objects, the inputs that every function takes, and faces that are left out for their size."""

import numpy as np
import pytest
from PIL import Image

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError, ImageError
from facerts.images import encode_png
from facerts.images.align import align
from facerts.scoring import Scorer
from tests.detectors import Finds, face_at


@pytest.fixture
def photo():
    return np.concatenate([draw_face(0, 0), draw_face(1, 0)], axis=1)


@pytest.fixture
def scorer(model):
    return Scorer.of(facerts.load(model).recognizer.opened, Finds(face_at(0, 0, 112, 0.8), face_at(112, 0, 56, 0.8)))


def test_a_face_has_everything_that_is_known_of_it(scorer, photo):
    faces = list(scorer.faces(photo, min_quality=-1e9))
    rows = scorer.score(photo, min_quality=-1e9)
    assert [face.index for face in faces] == [0, 1]
    for face, row in zip(faces, rows, strict=True):
        assert face.box.tolist() == row.box
        assert face.points.shape == (5, 2)
        # Rows round points to hundredths of a pixel.
        assert np.abs(face.crop.astype(int) - align(photo, face.points)).max() <= 3
        np.testing.assert_allclose(face.embedding, scorer.recognizer.opened(face.crop[None]).embedding[0], atol=1e-5)
        assert (face.path, face.quality, face.accepted, face.det_score) == ("image 0", row.quality, True, 0.8)
        assert face.reasons == row.reasons
        assert row.model_sha256 == scorer.recognizer.sha256


def test_every_function_takes_the_same_images(scorer, photo, tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("a.png", "b.png"):
        (folder / name).write_bytes(encode_png(photo))
    given = [str(folder / "a.png"), folder / "a.png", encode_png(photo), photo, Image.fromarray(photo)]
    expected, rows = scorer.embed(photo), scorer.score(photo)
    assert len(expected) == 1
    for image in given:
        assert [face.index for face in scorer.faces(image)] == [0, 1]
        assert [(row.quality, row.error) for row in scorer.score(image)] == [(row.quality, None) for row in rows]
        np.testing.assert_allclose(scorer.embed(image).embedding, expected.embedding, atol=1e-6)
    bgr = np.ascontiguousarray(photo[..., ::-1])
    np.testing.assert_allclose(scorer.embed(bgr, color="BGR").embedding, expected.embedding, atol=1e-6)
    names = [str(folder / name) for name in ("a.png", "a.png", "b.png", "b.png")]
    assert [row.path for row in scorer.score(folder)] == names
    assert [row.path for row in scorer.score([photo, str(folder)])] == ["image 0"] * 2 + names
    assert [face.path for face in scorer.faces(folder)] == names
    assert len(scorer.embed([folder])) == 2


def test_an_image_that_cannot_be_read_is_an_error_of_faces_and_a_row_of_score(scorer, photo, tmp_path):
    gone = tmp_path / "gone.png"
    with pytest.raises(ImageError, match=r"gone\.png: cannot be read"):
        list(scorer.faces([photo, gone]))
    assert [row.error is None for row in scorer.score([photo, gone])] == [True, True, False]
    with pytest.raises(ImageError, match=r"gone\.png: cannot be read"):
        scorer.embed(gone)
    nobody = Scorer(scorer.quality, scorer.recognizer, Finds())
    assert list(nobody.faces(photo)) == []
    with pytest.raises(ImageError, match="image 0: no face found"):
        nobody.embed(photo)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="empty: no images found"):
        scorer.score(tmp_path / "empty")


def test_small_faces_are_left_out_and_counted(scorer, photo):
    for side, left, smaller in ((0, 2, None), (56, 2, 0), (57, 1, 1), (113, 0, 2)):
        limited = Scorer(scorer.quality, scorer.recognizer, scorer.detector, min_face_size=side)
        rows = limited.score(photo)
        assert len([row for row in rows if row.face is not None]) == left
        assert {row.smaller_faces for row in rows} == {smaller}
        assert len(list(limited.faces(photo))) == left
    assert rows[0].reasons == ("no_face",)
    assert limited.settings() != scorer.settings()


def test_any_share_of_the_faces_can_be_kept():
    """Between the quantiles at whole percents the threshold is linear; listed shares are exact."""
    scorer = facerts.load()
    calibration = facerts.Quality().description.calibration
    quantiles = np.array(calibration.quantiles)
    for keep in (0.999, 0.93, 0.5, 0.3333, 0.0, 1.0):
        expected = np.interp(100 * (1 - keep), np.arange(101), quantiles)
        assert scorer.threshold(keep) == pytest.approx(expected, abs=1e-9)
        assert calibration.percentile(scorer.threshold(keep)) == pytest.approx(100 * (1 - keep), abs=0.51)
    assert scorer.threshold(0.95) == facerts.Quality().description.thresholds["0.95"].quality
    for keep in (-0.1, 1.01, float("nan")):
        with pytest.raises(facerts.Error, match="is no share of the faces"):
            scorer.threshold(keep)
