"""Higher quality means a better image for every method, measured on degraded faces.

Heads are trained on a real embedder's features with each method's own loss, half of whose views are augmented; then
faces of people who were not in the training data are compared with the same faces degraded.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("torch")

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.images.corruptions import degrade
from facerts.metrics.ood import separation
from facerts.training.posthoc import HeadSettings, add_quality

KINDS = ("blur", "low_resolution", "noise", "occlusion")
STRENGTH = 0.7
STRANGERS = 150
# The other methods train only the embedding, and their quality is its norm.
LEARNED = ("crfiqa", "dul", "godin", "pfe", "relaxed_softmax", "rts", "tau", "tempnet")


@pytest.fixture(scope="module")
def faces(facerts_data: Path) -> dict[str, NDArray[np.uint8]]:
    """Faces of held-out people, clean and by kind of degradation."""
    source = open_source(facerts_data / "faces" / "val-000000.tar")
    rows = np.linspace(0, len(source) - 1, STRANGERS).astype(int)
    clean = np.stack([source.crop(row) for row in rows])
    worse = {
        kind: np.stack([degrade(crop, kind, STRENGTH, row) for row, crop in enumerate(clean)])
        for kind in KINDS
    }
    return {"clean": clean, **worse}


def separations(model: Path, faces: dict[str, NDArray[np.uint8]]) -> dict[str, float]:
    """AUROC of clean against degraded faces, by kind."""
    embedder = load_embedder(model)
    quality = {kind: embedder(crops).quality for kind, crops in faces.items()}
    return {kind: separation(quality["clean"], quality[kind]).auroc for kind in KINDS}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Cache file for the features of the views; the first method computes them."""
    return tmp_path_factory.mktemp("polarity") / "features.npz"


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNED)
def test_a_learned_quality_falls_as_faces_get_worse(
    method: str,
    facerts_data: Path,
    reference_models: Path,
    faces: dict[str, NDArray[np.uint8]],
    cache: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "scored.onnx"
    add_quality(
        method,
        reference_models / "mobilefacenet.onnx",
        facerts_data / "faces" / "train-000000.tar",
        out,
        settings=HeadSettings(epochs=8, batch_size=256),
        views=2,
        cache=cache,
    )
    measured = separations(out, faces)
    print(method, {kind: round(value, 3) for kind, value in measured.items()})
    assert min(measured.values()) > 0.5, measured
    assert np.mean(list(measured.values())) > 0.6, measured


def test_the_norm_of_an_embedding_falls_as_faces_get_worse(
    reference_models: Path, faces: dict[str, NDArray[np.uint8]]
) -> None:
    measured = separations(reference_models / "mobilefacenet.onnx", faces)
    assert min(measured.values()) > 0.6, measured
