"""The probe for non-faces in a model's file, against its sum in NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.export.non_face_probe import add_non_face_probe, probe_inputs
from tests.foreign import slow_embedding, write_description, write_embedder
from tests.shipped import write_model

Crops = NDArray[np.uint8]
TENSORS = ["vector", "bright"]


def test_the_output_is_the_weighted_sum_of_the_tensors(tmp_path: Path, crops: Crops) -> None:
    model = write_model(tmp_path / "m.onnx")
    before = load_embedder(model)(crops)
    x = probe_inputs(model, TENSORS, crops)
    brightness = (crops.astype(np.float64).mean(axis=(1, 2, 3)) - 127.5) / 127.5
    np.testing.assert_allclose(x[:, :-1], slow_embedding(crops), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(x[:, -1], brightness, atol=1e-5)
    for seed in (0, 1):  # the second replaces the first
        weights = np.random.default_rng(seed).standard_normal(x.shape[1])
        add_non_face_probe(model, model, TENSORS, weights, 0.25)
        outputs = load_embedder(model)(crops)
        np.testing.assert_allclose(outputs.extras["not_a_face"], x @ weights + 0.25, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(outputs.embedding, before.embedding)
        assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    one = load_embedder(model)(crops[:1])
    assert one.extras["not_a_face"].shape == (1,)


def test_models_without_the_tensor_or_a_description_are_refused(tmp_path: Path, crops: Crops) -> None:
    model = write_model(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=r"m\.onnx: its graph computes no tensor 'features'"):
        probe_inputs(model, ["features"], crops)
    foreign = write_embedder(tmp_path / "foreign.onnx")
    write_description(foreign)
    with pytest.raises(ModelError, match=r"foreign\.onnx: contains no description"):
        add_non_face_probe(foreign, foreign, ["vector"], np.ones(8), 0.0)
