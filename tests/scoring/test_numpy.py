"""Images as NumPy arrays, in every memory layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.errors import ModelError
from facerts.scoring import Scorer
from tests.foreign import SIZE, slow_embedding, write_description, write_embedder

Crops = NDArray[np.uint8]


@pytest.fixture
def scorer(tmp_path: Path) -> Scorer:
    model = write_embedder(tmp_path / "model.onnx")
    write_description(model)
    return facerts.load(model)


def layouts(crops: Crops) -> list[Crops]:
    """The same crops in arrays of other memory layouts."""
    wide = np.zeros((len(crops), 112, 120, 3), dtype=np.uint8)
    wide[:, :, 4:116] = crops
    frozen = crops.copy()
    frozen.flags.writeable = False
    reversed_channels = crops[..., ::-1].copy()[..., ::-1]
    strided = np.repeat(crops, 2, axis=0)[::2]
    planes = crops.transpose(0, 3, 1, 2).copy().transpose(0, 2, 3, 1)
    return [crops, np.asfortranarray(crops), wide[:, :, 4:116], reversed_channels, strided, planes, frozen]


def test_memory_layout_does_not_matter(scorer: Scorer, crops: Crops) -> None:
    raw = slow_embedding(crops)
    norm = np.linalg.norm(raw, axis=1)
    for arrays in layouts(crops):
        for images in (arrays, list(arrays)):
            np.testing.assert_allclose([row.quality for row in scorer.score(images)], norm, rtol=1e-5)
        outputs = scorer.embed(arrays)
        np.testing.assert_allclose(outputs.embedding, raw / norm[:, None], atol=2e-6)
        np.testing.assert_array_equal(arrays, crops)


def test_a_single_crop_and_an_empty_batch_are_accepted(scorer: Scorer, crops: Crops) -> None:
    assert scorer.score(crops[3]) == scorer.score(crops[3:4]) == scorer.score([crops[3]])
    assert scorer.score([]) == scorer.score(crops[:0]) == []
    assert scorer.embed(crops[:0]).embedding.shape == (0, SIZE)


@pytest.mark.parametrize(
    ("change", "shape"),
    [
        (lambda crops: crops / 255, "(112, 112, 3) float64"),
        (lambda crops: crops.astype(np.float32), "(112, 112, 3) float32"),
        (lambda crops: crops.astype(np.int64), "(112, 112, 3) int64"),
        (lambda crops: crops.transpose(0, 3, 1, 2), "(3, 112, 112) uint8"),
        (lambda crops: np.concatenate([crops, crops[..., :1]], axis=3), "(112, 112, 4) uint8"),
    ],
    ids=["fractions", "float", "integers", "planes", "alpha"],
)
def test_an_invalid_array_is_reported_with_shape_and_type(
    scorer: Scorer, crops: Crops, change: Any, shape: str
) -> None:
    arrays = change(crops)
    for number, row in enumerate(scorer.score(arrays)):
        assert row.quality is None
        assert f"image {number}: an array must be (H, W, 3) uint8 RGB" in str(row.error)
        assert shape in str(row.error)
    with pytest.raises(ModelError) as raised:
        scorer.embed(arrays)
    assert "(N, 112, 112, 3) uint8 RGB" in str(raised.value)
    assert shape[1:] in str(raised.value)
    with pytest.raises(ModelError, match=r"not \(12, 96, 96, 3\) uint8"):
        scorer.embed(crops[:, 8:104, 8:104])
