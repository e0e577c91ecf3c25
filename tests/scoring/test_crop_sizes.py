"""Photos are not mistaken for crops: with --detector none, an image must have the size of an aligned crop."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.errors import ImageError
from facerts.images import encode_png, fit_crop
from facerts.integrations.sklearn import FaceEmbedder
from tests.command import run


def face(height: int, width: int) -> NDArray[np.uint8]:
    return np.asarray(cv2.resize(draw_face(0, 0), (width, height)), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crop, a crop of another size, and a photo that is not square."""
    root = tmp_path_factory.mktemp("images")
    for name, image in (("112", face(112, 112)), ("224", face(224, 224)), ("wide", face(112, 150))):
        (root / f"{name}.png").write_bytes(encode_png(image))
    return root


def test_a_square_of_another_size_is_refused_with_advice_or_resized(model: Path) -> None:
    aligned, resizing = facerts.load(model, detector="none"), facerts.load(model, resize_crops=True)
    for side in (100, 111, 113, 224):
        image = face(side, side)
        crop, other = aligned.score([face(112, 112), image])
        assert crop.error is None
        assert other.quality is other.face is None
        assert other.error == (
            f"image 1: {side} x {side} pixels are not an aligned crop of 112 x 112; photos need a detector "
            "(--detector auto), aligned crops of another size --resize-crops (detector, resize_crops in Python)"
        )
        (row,), (expected,) = resizing.score(image), facerts.load(model).score(fit_crop(image))
        assert (row.quality, row.error) == (expected.quality, None)
        embeddings = [resizing.embed([given]).embedding for given in (image, fit_crop(image))]
        np.testing.assert_array_equal(*embeddings)
        with pytest.raises(ImageError, match=f"image 0: {side} x {side} pixels are not an aligned crop"):
            aligned.embed([image])
    # An image that is not square is never a crop.
    for scorer in (aligned, resizing):
        (row,) = scorer.score(face(112, 150))
        assert "150 x 112 pixels are not an aligned crop" in str(row.error)


def test_embedding_refuses_or_resizes(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.npz"
    for options, embedded in ((("--detector", "none"), 1), (("--resize-crops",), 2)):
        assert run("embed", folder, "--model", model, "--out", out, *options) == 1
        with np.load(out) as arrays:
            assert len(arrays["paths"]) == embedded
    images = [folder / "112.png", folder / "224.png"]
    step = FaceEmbedder(model, detector="none", unreadable="nan")
    assert np.isnan(step.transform(images)).all(axis=1).tolist() == [False, True]
    assert np.isfinite(step.set_params(resize_crops=True).transform(images)).all()


def test_options_without_effect_are_refused(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    resizing = "--resize-crops (resize_crops) is for aligned crops"
    for options, message in (
        (
            ("--detector", "none", "--det-threshold", "0.5"),
            "--det-threshold (det_threshold) needs a detector",
        ),
        (("--detector", "yunet", "--resize-crops"), resizing),
        (("--det-threshold", "0.5", "--resize-crops"), resizing),
    ):
        assert run("embed", folder, "--out", tmp_path / "out.npz", "--model", model, *options) == 2
        assert message in " ".join(capsys.readouterr().err.split())
