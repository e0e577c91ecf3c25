"""With --detector none, every image is an aligned crop, and so a square."""

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
from tests.command import refused, run


def face(height: int, width: int) -> NDArray[np.uint8]:
    return np.asarray(cv2.resize(draw_face(0, 0), (width, height)), dtype=np.uint8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A crop, a crop of another size, and a photo that is not square."""
    root = tmp_path_factory.mktemp("images")
    for name, image in (("112", face(112, 112)), ("224", face(224, 224)), ("wide", face(112, 150))):
        (root / f"{name}.png").write_bytes(encode_png(image))
    return root


def test_a_square_of_another_size_is_resized_and_nothing_else_is_a_crop(model: Path) -> None:
    scorer = facerts.load(model, detector="none")
    for side in (100, 111, 113, 224):
        image = face(side, side)
        (row,), (expected,) = scorer.score(image), facerts.load(model).score(fit_crop(image))
        assert (row.quality, row.error) == (expected.quality, None)
        embeddings = [scorer.embed([given]).embedding for given in (image, fit_crop(image))]
        np.testing.assert_array_equal(*embeddings)
    (row,) = scorer.score(face(112, 150))
    assert "150 x 112 pixels are not an aligned crop" in str(row.error)
    with pytest.raises(ImageError, match="image 0: 150 x 112 pixels are not an aligned crop"):
        scorer.embed([face(112, 150)])


def test_embedding_resizes(model: Path, folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "e.npz"
    assert run("embed", folder, "--model", model, "--out", out, "--set", "detector=none") == 1
    with np.load(out) as arrays:
        assert len(arrays["paths"]) == 2
    images = [folder / f"{name}.png" for name in ("112", "224", "wide")]
    step = FaceEmbedder(model, detector="none", unreadable="nan")
    assert np.isnan(step.transform(images)).all(axis=1).tolist() == [False, False, True]


def test_options_without_effect_are_refused(
    model: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for options in (("--set", "det_threshold=0.5"), ("--set", "det_size=640"), ("--set", "rotate=false")):
        command = ["embed", folder, "--out", tmp_path / "out.npz", "--model", model, "--set", "detector=none"]
        assert "det_threshold, det_size and rotate need a detector" in refused(capsys, *command, *options)
