import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from facerts.embedding import load_embedder
from facerts.errors import MissingExtraError, ModelError
from facerts.io.files import sha256_file
from facerts.onnx.contract import parse_description
from tests.detectors import write_scrfd
from tests.foreign import slow_embedding, write_description, write_embedder

COLUMNS = 128


def normalize_inside(path):
    """Add (x − 127.5) / 127.5 at the beginning of a model's graph."""
    model = onnx.load(str(path))
    model.graph.initializer.extend(
        numpy_helper.from_array(np.float32(value), name) for name, value in (("mean", 127.5), ("scale", 1 / 127.5))
    )
    model.graph.node[0].input[0] = "scaled"
    model.graph.node.insert(0, helper.make_node("Sub", ["face", "mean"], ["shifted"]))
    model.graph.node.insert(1, helper.make_node("Mul", ["shifted", "scale"], ["scaled"]))
    onnx.save(model, str(path))


@pytest.fixture
def pack(tmp_path):
    """A folder with a detector, a network with too few outputs, a broken file, and a recognizer."""
    folder = tmp_path / "buffalo_s"
    folder.mkdir()
    write_scrfd(folder / "det_500m.onnx")
    write_embedder(folder / "genderage.onnx")
    (folder / "notes.onnx").write_text("no network")
    write_embedder(folder / "w600k_mbf.onnx", size=COLUMNS)
    return folder


def expected(crops):
    return slow_embedding(crops, size=COLUMNS)


@pytest.mark.parametrize("packed", [False, True])
def test_a_pack_can_be_loaded_as_an_embedder(pack, crops, packed):
    path = Path(shutil.make_archive(str(pack), "zip", pack)) if packed else pack
    embedder = load_embedder(path, batch_size=5)
    outputs = embedder(crops)
    norm = np.linalg.norm(expected(crops), axis=1)
    np.testing.assert_allclose(outputs.embedding, expected(crops) / norm[:, None], atol=2e-6)
    np.testing.assert_allclose(outputs.quality, norm, rtol=1e-5)
    assert (embedder.name, embedder.method) == ("w600k_mbf", "arcface")
    assert embedder.sha256 == sha256_file(pack / "w600k_mbf.onnx")
    assert embedder.description.embedding_size == COLUMNS
    assert "non-commercial" in embedder.description.terms


def test_a_recognizer_that_declares_one_row_runs_batches_without_warnings(pack, crops, capfd):
    model = onnx.load(str(pack / "w600k_mbf.onnx"))
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 1
    onnx.save(model, str(pack / "w600k_mbf.onnx"))
    assert load_embedder(pack)(crops).embedding.shape == (len(crops), COLUMNS)
    assert capfd.readouterr().err == ""


def test_a_graph_that_normalizes_its_input_gets_the_raw_crops(pack, crops):
    normalize_inside(pack / "w600k_mbf.onnx")
    embedder = load_embedder(pack)
    assert embedder.description.input.mean == (0, 0, 0)
    assert embedder.description.input.std == (1, 1, 1)
    np.testing.assert_allclose(embedder(crops).norm, np.linalg.norm(expected(crops), axis=1), rtol=1e-4)


def test_without_onnx_only_known_recognizers_are_loaded(pack, crops, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    np.testing.assert_allclose(load_embedder(pack)(crops).norm, np.linalg.norm(expected(crops), axis=1), rtol=1e-5)
    (pack / "w600k_mbf.onnx").rename(pack / "mine.onnx")
    with pytest.raises(MissingExtraError, match=r"mine\.onnx: .* pip install '\.\[cpu\]'.*; or .* mine\.json beside"):
        load_embedder(pack)


@pytest.mark.parametrize("change", [{"quality": True}, {"inputs": 2}, {"layout": "NHWC"}, {"size": 127}, {"dtype": 10}])
def test_other_networks_are_not_taken_for_recognizers(pack, change):
    write_embedder(pack / "w600k_mbf.onnx", **{"size": COLUMNS, **change})
    with pytest.raises(ModelError, match="this one has none"):
        load_embedder(pack)


def test_a_description_passed_as_an_argument_takes_precedence(pack, tmp_path, crops):
    model = write_description(write_embedder(tmp_path / "m.onnx"))
    text = model.with_suffix(".json").read_text()
    description = parse_description(text, "text").model_copy(update={"quality": "none"})
    assert load_embedder(model)(crops).quality is not None
    assert load_embedder(model, description=description)(crops).quality is None
    assert load_embedder(pack, description=description)(crops).quality is None


def test_a_fixed_batch_size_is_respected(pack, crops):
    write_embedder(pack / "w600k_mbf.onnx", size=COLUMNS, batch=1)
    embedder = load_embedder(pack)
    assert embedder.description.input.batch == 1
    assert embedder(crops).embedding.shape == (len(crops), COLUMNS)
