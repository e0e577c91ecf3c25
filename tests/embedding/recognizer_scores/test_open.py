"""The scores of a recognizer by name, and what holds for all of them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.embedding import load_embedder
from facerts.embedding.recognizer_scores import open_recognizer_scores
from facerts.errors import Error, MissingExtraError, ModelError
from tests.embedding.recognizer_scores.models import open_model

Crops = NDArray[np.uint8]


@pytest.mark.parametrize(
    ("name", "possible"),
    [("no layers", ["mirror"]), ("map", ["mirror", "pruning"]), ("quantized", ["mirror", "dropout"])],
)
def test_only_the_scores_that_the_graph_allows_are_opened(
    tmp_path: Path, drawn_faces: Path, name: str, possible: list[str]
) -> None:
    embedder = open_model(tmp_path, name)
    assert list(open_recognizer_scores(embedder)) == possible
    faces = open_source(drawn_faces)
    assert list(open_recognizer_scores(embedder, calibration=faces)) == [*possible, "froq"]
    for score in {"mirror", "pruning", "dropout"} - set(possible):
        with pytest.raises(ModelError, match=r"m\.onnx"):
            open_recognizer_scores(embedder, [score])


def test_the_seed_is_that_of_the_masks(tmp_path: Path, crops: Crops) -> None:
    embedder = open_model(tmp_path, "matmul")
    first, other = (
        open_recognizer_scores(embedder, ["dropout"], seed=seed)["dropout"](crops) for seed in (0, 1)
    )
    assert np.array_equal(open_recognizer_scores(embedder, ["dropout"])["dropout"](crops), first)
    assert not np.array_equal(other, first)


def test_an_unknown_score_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Error, match="no score 'droput' of a recognizer, did you mean 'dropout'"):
        open_recognizer_scores(open_model(tmp_path, "matmul"), ["droput"])


def test_layers_are_not_chosen_without_faces(tmp_path: Path) -> None:
    with pytest.raises(Error, match=r"'froq' needs faces .* --calibrate-scores"):
        open_recognizer_scores(open_model(tmp_path, "matmul"), ["froq"])


@pytest.mark.parametrize("name", ["conv and matmul", "unit", "one image"])
@pytest.mark.parametrize("score", ["mirror", "pruning", "dropout"])
def test_a_score_does_not_depend_on_the_batch(tmp_path: Path, crops: Crops, name: str, score: str) -> None:
    whole = open_recognizer_scores(open_model(tmp_path, name), [score])[score](crops)
    few = open_recognizer_scores(open_model(tmp_path, name, batch_size=5), [score])[score]
    np.testing.assert_allclose(few(crops), whole, atol=1e-6)
    alone = np.concatenate([few(crops[i : i + 1]) for i in reversed(range(len(crops)))])
    np.testing.assert_allclose(alone[::-1], whole, atol=1e-6)
    assert few(crops[:0]).shape == (0,)
    assert np.ptp(whole) > 1e-4


def test_the_scores_of_our_own_export_are_all_there(exported: Path) -> None:
    assert tuple(open_recognizer_scores(load_embedder(exported))) == ("mirror", "pruning", "dropout")


@pytest.mark.parametrize("score", ["pruning", "dropout", "froq"])
def test_weights_in_another_file_are_refused(tmp_path: Path, drawn_faces: Path, score: str) -> None:
    faces = open_source(drawn_faces)
    embedder = open_model(tmp_path, "matmul")
    model = onnx.load(str(embedder.path))
    onnx.save(model, str(embedder.path), save_as_external_data=True, location="weights.bin", size_threshold=0)
    embedder = load_embedder(embedder.path)
    with pytest.raises(ModelError, match=r"m\.onnx: .* but 'matrix' is in another"):
        open_recognizer_scores(embedder, [score], calibration=faces)


@pytest.mark.parametrize("score", ["pruning", "dropout", "froq"])
def test_a_file_that_is_gone_or_broken_is_refused(tmp_path: Path, drawn_faces: Path, score: str) -> None:
    faces = open_source(drawn_faces)
    embedder = open_model(tmp_path, "matmul")
    embedder.path.write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"m\.onnx: onnx cannot read it"):
        open_recognizer_scores(embedder, [score], calibration=faces)
    embedder.path.unlink()
    with pytest.raises(ModelError, match=r"m\.onnx: .* it is gone; if it was in a model pack"):
        open_recognizer_scores(embedder, [score], calibration=faces)


def test_only_the_mirror_does_without_onnx(
    tmp_path: Path, crops: Crops, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = open_model(tmp_path, "matmul")
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert len(open_recognizer_scores(embedder, ["mirror"])["mirror"](crops)) == len(crops)
    for names in (None, ["pruning"], ["dropout"]):
        with pytest.raises(MissingExtraError, match="needs onnx: pip install onnx"):
            open_recognizer_scores(embedder, names)
