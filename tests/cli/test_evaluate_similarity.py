"""``facerts evaluate --similarity`` from ONNX files and tables to the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy import stats

from facerts.benchmarks import open_benchmark, pairs_from_identities
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from tests.cli.test_cli import run
from tests.cli.test_evaluate import refused, told
from tests.evaluation.conftest import write_pairs
from tests.foreign import write_description, write_embedder

FLOOR = 0.01


def write_gaussian(path: Path) -> Path:
    """The small embedder with an output ``spread``, |vector| / 10 + 0.01, for its variance."""
    model = onnx.load(str(write_embedder(path)))
    model.graph.initializer.extend(
        numpy_helper.from_array(np.array(value, dtype=np.float32), name)
        for name, value in (("tenth", 0.1), ("floor", FLOOR))
    )
    model.graph.node.extend(
        [
            helper.make_node("Abs", ["vector"], ["size"]),
            helper.make_node("Mul", ["size", "tenth"], ["smaller"]),
            helper.make_node("Add", ["smaller", "floor"], ["spread"]),
        ]
    )
    model.graph.output.append(helper.make_tensor_value_info("spread", TensorProto.FLOAT, ["N", 8]))
    onnx.save(model, str(path))
    write_description(path, outputs={"embedding": "vector", "variance": "spread"})
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("similarity")
    write_gaussian(folder / "gaussian.onnx")
    write_description(write_embedder(folder / "plain.onnx"))
    write_synthetic_faces(folder / "people", identities=30, images=4, seed=11)
    pairs = pairs_from_identities(open_source(folder / "people"), genuine=100, impostors=100, seed=2)
    write_pairs(pairs, folder / "people" / "drawn.csv")
    return folder


@pytest.mark.slow
def test_a_folder_holds_both_similarities_and_the_scores_are_scipys(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    data = home / "people" / "drawn.csv"
    command = ("--model", home / "gaussian.onnx", "--data", data, "--no-flip", "--out", tmp_path)
    told(capsys, "evaluate", "verification", *command)
    sections = told(capsys, "evaluate", "verification", *command, "--similarity", "mls")
    assert {name: section["similarity"] for name, section in sections.items()} == {
        "drawn": "cosine",
        "drawn (mls)": "mls",
    }
    curves = told(capsys, "evaluate", "reject", *command, "--fmr", "0.05", "--similarity", "mls")
    assert set(curves) == {"drawn (mls)"}
    written = json.loads((tmp_path / "result.json").read_text())
    assert set(written["calibration"]) == {"drawn (mls)"}

    benchmark = open_benchmark(data)
    crops = np.stack([benchmark.images.crop(row) for row in range(len(benchmark.images))])
    outputs = load_embedder(home / "gaussian.onnx")(crops)
    mean, variance = outputs.embedding.astype(np.float64), outputs.extras["variance"].astype(np.float64)
    assert variance.min() >= FLOOR * 0.999
    expected = [
        stats.multivariate_normal(mean[i] - mean[j], np.diag(variance[i] + variance[j])).logpdf(np.zeros(8))
        for i, j in benchmark.pairs
    ]
    with np.load(tmp_path / "arrays.npz") as arrays:
        np.testing.assert_allclose(arrays["verification/drawn (mls)/scores"], expected, rtol=1e-4, atol=1e-4)

    assert run("evaluate", "verification", *command, "--similarity", "mls") == 0
    assert "drawn (mls)" in capsys.readouterr().out
    assert run("compare", tmp_path, tmp_path, "--out", tmp_path / "compared") == 0
    compared = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    assert set(compared["verification"]) == {"drawn", "drawn (mls)"}


def test_what_mls_cannot_do_is_said_in_one_sentence(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    command = ("--data", home / "people" / "drawn.csv", "--out", tmp_path / "r", "--similarity", "mls")
    model = ("--model", home / "gaussian.onnx")
    for kind in (("verification",), ("reject", "--fmr", "0.05")):
        sentence = refused(capsys, "evaluate", *kind, *command, *model, "--all-pairs")
        assert "all pairs cannot be compared by mls" in sentence
        sentence = refused(capsys, "evaluate", *kind, *command, "--model", home / "plain.onnx")
        assert "the embeddings come without a variance" in sentence
    assert not (tmp_path / "r").exists()
    assert run("evaluate", "verification", *command[:-1], "euclid", *model) == 2


def test_a_table_needs_its_variances(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    data = home / "people" / "drawn.csv"
    images = open_benchmark(data).images
    crops = np.stack([images.crop(row) for row in range(len(images))])
    outputs = load_embedder(home / "gaussian.onnx")(crops)
    columns = {
        "names": np.array([images.key(row) for row in range(len(images))]),
        "embeddings": outputs.embedding,
    }
    np.savez(tmp_path / "bare.npz", **columns)
    np.savez(tmp_path / "zero.npz", **columns, variance=0 * outputs.extras["variance"])
    np.savez(tmp_path / "whole.npz", **columns, variance=outputs.extras["variance"])
    command = ("evaluate", "verification", "--data", data, "--similarity", "mls")
    for name, message in (("bare", "without a variance"), ("zero", "entry 0 of image 0 has 0")):
        given = ("--embeddings", tmp_path / f"{name}.npz", "--out", tmp_path / name)
        assert message in refused(capsys, *command, *given)
    given = ("--embeddings", tmp_path / "whole.npz", "--out", tmp_path / "whole")
    by_table = told(capsys, *command, *given)["drawn (mls)"]
    given = ("--model", home / "gaussian.onnx", "--no-flip", "--out", tmp_path / "model")
    by_model = told(capsys, *command, *given)["drawn (mls)"]
    assert (by_table["flip"], by_model["flip"]) == (None, False)
    assert by_table["auroc"] == pytest.approx(by_model["auroc"], abs=1e-6)
