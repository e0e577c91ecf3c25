"""Files that earlier versions wrote: ``earlier/checkpoint.pt`` is a short run on synthetic faces, with RTS."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.onnx.contract import parse_description
from facerts.training.checkpoint import load_checkpoint, load_network
from facerts.training.classifier_scores.classifier import load_classifier
from facerts.training.export.from_checkpoint import export_run
from facerts.training.network_embedder import NetworkEmbedder

CHECKPOINT = Path(__file__).parent / "earlier" / "checkpoint.pt"
# What the version that wrote it computed for the first synthetic face, and the first center's first numbers.
EMBEDDING = (0.6522, 0.1449, 0.2274, -0.1475, -0.5499, 0.1757, -0.0391, 0.3812)
CENTER = (1.1205, 0.0142, -0.6745)


def test_a_checkpoint_written_before_computes_the_same() -> None:
    trained = load_network(CHECKPOINT)
    outputs = NetworkEmbedder(trained.network, trained.method)(draw_face(0, 0)[None])
    np.testing.assert_allclose(outputs.embedding[0], EMBEDDING, atol=1e-3)


def test_its_class_centers_are_found_under_their_former_name() -> None:
    assert "centres" in torch.load(CHECKPOINT, weights_only=True)
    _, state = load_checkpoint(CHECKPOINT)
    np.testing.assert_allclose(state["centers"]["weight"][0, :3], CENTER, atol=1e-4)
    np.testing.assert_allclose(load_classifier(CHECKPOINT).centers.weight[0, :3], CENTER, atol=1e-4)


@pytest.mark.slow
def test_it_can_still_be_exported(tmp_path: Path) -> None:
    export_run(CHECKPOINT, tmp_path / "tiny.onnx")
    outputs = load_embedder(tmp_path / "tiny.onnx")(draw_face(0, 0)[None])
    np.testing.assert_allclose(outputs.embedding[0], EMBEDDING, atol=1e-3)


def test_descriptions_in_british_spelling_are_read_and_written_in_american() -> None:
    content = {
        "schema": "facerts.model/1",
        "input": {"colour": "BGR"},
        "outputs": {"embedding": "out"},
        "normalise_embedding": True,
        "licence": "MIT",
    }
    description = parse_description(json.dumps(content), "m.json")
    assert (description.input.color, description.normalize_embedding, description.license) == (
        "BGR",
        True,
        "MIT",
    )
    written = json.loads(description.to_json())
    assert (written["input"]["color"], written["normalize_embedding"], written["license"]) == (
        "BGR",
        True,
        "MIT",
    )
