"""Agreement of a crop and its mirror image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.embedding import load_embedder
from facerts.embedding.recognizer_scores import open_recognizer_scores
from tests.foreign import slow_embedding, write_description, write_embedder

Crops = NDArray[np.uint8]


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_it_is_the_cosine_with_the_mirrored_crop(tmp_path: Path, crops: Crops, layout: str) -> None:
    model = write_embedder(tmp_path / "m.onnx", layout=layout)
    write_description(model, input_layout=layout)
    scores = open_recognizer_scores(load_embedder(model), ["mirror"])["mirror"](crops)
    a, b = slow_embedding(crops), slow_embedding(np.stack([np.fliplr(crop) for crop in crops]))
    expected = [x @ y / np.sqrt(x @ x * (y @ y)) for x, y in zip(a, b, strict=True)]
    np.testing.assert_allclose(scores, expected, atol=2e-6)
    assert scores.dtype == np.float32
