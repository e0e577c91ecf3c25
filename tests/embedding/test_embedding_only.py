"""Models reduced to their embedding."""

import hashlib
import json
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from facerts.embedding import embedding_only, load_embedder
from facerts.embedding.embedding_only import keep_embedding
from facerts.errors import Error, ModelError
from tests.command import run
from tests.foreign import SIZE, slow_embedding, write_description, write_embedder
from tests.matching import HASH, write_matcher
from tests.shipped import write_model


def outputs(path):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [output.name for output in session.get_outputs()]


def test_only_the_embedding_and_the_nodes_it_needs_are_left(tmp_path, crops):
    model = write_model(tmp_path / "model.onnx")
    before = model.read_bytes()
    kept = keep_embedding(model, tmp_path / "new" / "small.onnx")
    written = onnx.load(str(tmp_path / "new" / "small.onnx"))
    assert [output.name for output in written.graph.output] == ["vector"]
    assert [node.op_type for node in written.graph.node] == ["AveragePool", "Flatten", "MatMul"]
    assert kept.crops >= 16
    assert kept.cosine == pytest.approx(1, abs=1e-6)
    raw = slow_embedding(crops)
    got = load_embedder(tmp_path / "new" / "small.onnx")(crops)
    np.testing.assert_allclose(got.embedding, raw / np.linalg.norm(raw, axis=1, keepdims=True), atol=2e-6)
    assert model.read_bytes() == before


def test_the_heads_of_our_own_exports_are_removed(exported, tmp_path, crops):
    keep_embedding(exported, tmp_path / "m.onnx")
    assert outputs(tmp_path / "m.onnx") == ["embedding"]
    before, after = onnx.load(str(exported)), onnx.load(str(tmp_path / "m.onnx"))
    assert before.opset_import == after.opset_import
    gone = {tensor.name for tensor in before.graph.initializer} - {tensor.name for tensor in after.graph.initializer}
    assert any("log_scale" in name for name in gone), gone
    assert not any("log_scale" in tensor.name for tensor in after.graph.initializer)
    np.testing.assert_allclose(
        load_embedder(tmp_path / "m.onnx")(crops).embedding,
        load_embedder(exported)(crops).embedding,
        atol=1e-6,
    )


def test_quality_is_removed_from_the_description(tmp_path):
    model = write_matcher(tmp_path / "model.onnx")
    keep_embedding(model, tmp_path / "small.onnx")
    description = load_embedder(tmp_path / "small.onnx").description
    assert (description.outputs, description.quality, description.thresholds) == (
        {"embedding": "vector"},
        "none",
        {},
    )
    assert description.calibration.quantiles == ()
    before = load_embedder(model).description
    assert description.calibration.matching == before.calibration.matching is not None
    for name in ("name", "method", "license", "terms", "training_data", "input", "normalize_embedding"):
        assert getattr(description, name) == getattr(before, name), name


def test_quality_from_the_embeddings_length_is_kept(tmp_path, crops):
    model = write_model(
        tmp_path / "model.onnx", quality="norm", thresholds={"0.95": {"quality": 3.5, "data_sha256": HASH}}
    )
    keep_embedding(model, tmp_path / "small.onnx")
    embedder = load_embedder(tmp_path / "small.onnx")
    np.testing.assert_allclose(embedder(crops).quality, np.linalg.norm(slow_embedding(crops), axis=1), rtol=1e-5)
    assert embedder.description.thresholds["0.95"].quality == 3.5


def test_a_foreign_model_gets_its_description_beside_it(tmp_path, crops):
    model = write_embedder(tmp_path / "foreign.onnx", quality=True)
    write_description(model, quality="output:bright", source="somewhere")
    keep_embedding(model, tmp_path / "out" / "small.onnx")
    description = json.loads((tmp_path / "out" / "small.json").read_text())
    assert (description["quality"], description["source"]) == ("none", "somewhere")
    assert load_embedder(tmp_path / "out" / "small.onnx")(crops).embedding.shape == (len(crops), SIZE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input_color": "BGR"}, "color BGR, but other packages' ArcFace loaders use color RGB"),
        ({"input_mean": [0, 0, 0], "input_std": [1, 1, 1]}, "mean (0.0, 0.0, 0.0)"),
        ({"input_std": [58.4, 57.1, 57.4]}, "std (58.4"),
        ({"input_layout": "NHWC"}, "layout NHWC"),
    ],
)
def test_models_that_need_other_preprocessing_are_refused(tmp_path, changes, message):
    model = write_embedder(tmp_path / "m.onnx", quality=True, layout=changes.get("input_layout", "NCHW"))
    write_description(model, **changes)
    with pytest.raises(ModelError) as raised:
        keep_embedding(model, tmp_path / "small.onnx")
    assert message in str(raised.value)
    assert not (tmp_path / "small.onnx").exists()


def test_node_names_that_would_mislead_insightface_are_changed(tmp_path, crops):
    path = write_model(tmp_path / "model.onnx")
    model = onnx.load(str(path))
    for node, name in zip(model.graph.node, ("Sub_0", "_mulscalar0", "Last"), strict=False):
        node.name = name
    onnx.save(model, str(path))
    keep_embedding(path, tmp_path / "small.onnx")
    names = [node.name for node in onnx.load(str(tmp_path / "small.onnx")).graph.node]
    assert not any(name.startswith(("Sub", "_minus", "Mul", "_mul")) for name in names)
    assert names[2] == "Last"


def test_tensors_read_by_subgraphs_are_kept(tmp_path, crops):
    path = write_model(tmp_path / "model.onnx")
    model = onnx.load(str(path))
    product = next(node for node in model.graph.node if node.op_type == "MatMul")
    inner = helper.make_node("MatMul", list(product.input), ["chosen"])
    branch = helper.make_graph(
        [inner], "branch", [], [helper.make_tensor_value_info("chosen", TensorProto.FLOAT, ["N", SIZE])]
    )
    true = helper.make_tensor("true", TensorProto.BOOL, [], [True])
    model.graph.initializer.append(true)
    choice = helper.make_node("If", ["true"], list(product.output), then_branch=branch, else_branch=branch)
    position = list(model.graph.node).index(product)
    model.graph.node.remove(product)
    model.graph.node.insert(position, choice)
    onnx.save(model, str(path))
    keep_embedding(path, tmp_path / "small.onnx")
    np.testing.assert_allclose(
        load_embedder(tmp_path / "small.onnx")(crops).embedding,
        load_embedder(path)(crops).embedding,
        atol=1e-6,
    )


def test_a_file_with_other_embeddings_is_not_written(tmp_path, monkeypatch):
    def wrong(graph, tensors):
        keep_outputs(graph, tensors)
        (matrix,) = graph.initializer
        values = onnx.numpy_helper.to_array(matrix)
        matrix.CopyFrom(onnx.numpy_helper.from_array(values[::-1].copy(), matrix.name))

    keep_outputs = embedding_only.keep_outputs
    monkeypatch.setattr(embedding_only, "keep_outputs", wrong)
    model = write_model(tmp_path / "model.onnx")
    with pytest.raises(ModelError, match=r"does not compute what the original computes.*no file was written"):
        keep_embedding(model, tmp_path / "small.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


def test_the_model_itself_is_not_overwritten(tmp_path):
    model = write_model(tmp_path / "model.onnx")
    before = hashlib.sha256(model.read_bytes()).hexdigest()
    with pytest.raises(Error, match="would lose its quality"):
        keep_embedding(model, tmp_path / "." / "model.onnx")
    with pytest.raises(Error, match=r"made from an \.onnx file and written to one"):
        keep_embedding(model, tmp_path / "model.pt")
    with pytest.raises(Error, match=r"made from an \.onnx file"):
        keep_embedding(tmp_path, tmp_path / "new.onnx")
    assert hashlib.sha256(model.read_bytes()).hexdigest() == before


def test_the_command_accepts_files_and_names_without_pytorch(tmp_path):
    model = write_model(tmp_path / "model.onnx")
    code = (
        "import sys; sys.modules['torch'] = None; from facerts.cli import main; "
        f"sys.argv = ['facerts', 'export', {str(model)!r}, '--embedding-only', '--out', "
        f"{str(tmp_path / 'small.onnx')!r}, '--json']; main()"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    summary = json.loads(ran.stdout)
    assert summary["bytes"] == (tmp_path / "small.onnx").stat().st_size
    assert summary["smallest_cosine"] > 0.99999
    assert outputs(tmp_path / "small.onnx") == ["vector"]


@pytest.mark.parametrize(
    "options", [[], ["--embedding-only", "--precision", "fp16"], ["--embedding-only", "--license", "ours"]]
)
def test_options_for_training_runs_are_refused_for_finished_models(tmp_path, options, capsys):
    model = write_model(tmp_path / "model.onnx")
    assert run("export", model, "--out", tmp_path / "small.onnx", *options) == 2
    assert "is an ONNX model, which can only be exported with" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "small.onnx").exists()
