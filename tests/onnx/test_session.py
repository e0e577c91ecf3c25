import sys

import pytest

import facerts
from facerts.errors import MissingExtraError, ModelError
from facerts.onnx.session import open_session
from tests.foreign import write_embedder


def test_the_requested_providers_and_threads_are_used(tmp_path):
    model = write_embedder(tmp_path / "m.onnx")
    session = open_session(model, providers=["CPUExecutionProvider"], threads=3)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_session_options().intra_op_num_threads == 3
    assert open_session(model).get_providers() == ["CPUExecutionProvider"]
    with pytest.raises(ModelError, match=r"has no NoSuchProvider here; it has cpu"):
        open_session(model, providers=["NoSuchProvider", "CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gone.onnx", "no such model file"),
        ("text.onnx", "ONNX Runtime cannot load it"),
        ("people.npz", "has the embeddings of a gallery or a table and is no model; give the name of a model"),
    ],
)
def test_what_is_no_model_is_named(tmp_path, name, sentence):
    for file in ("text.onnx", "people.npz"):
        (tmp_path / file).write_text("hello")
    with pytest.raises(ModelError, match=rf"{name}:? {sentence}"):
        open_session(tmp_path / name)
    if name != "text.onnx":
        with pytest.raises(ModelError, match=name):
            facerts.load(tmp_path / name)


def test_given_content_is_used_without_reading_the_file(tmp_path):
    content = write_embedder(tmp_path / "m.onnx").read_bytes()
    assert open_session(tmp_path / "gone.onnx", content=content).get_outputs()
    for broken in (b"", content[:-20]):
        with pytest.raises(ModelError, match=r"m\.onnx: ONNX Runtime cannot load it"):
            open_session(tmp_path / "m.onnx", content=broken)


def test_without_onnx_runtime_its_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(
        MissingExtraError, match=r"pip install onnxruntime, or .* uvx and pipx run take --with onnxruntime"
    ):
        open_session(write_embedder(tmp_path / "m.onnx"))
