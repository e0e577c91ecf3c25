import shutil
import zipfile
from pathlib import Path

import pytest

from facerts.errors import ModelError
from facerts.onnx import model_pack
from facerts.onnx.model_pack import find_in_pack, is_pack
from tests.foreign import SIZE, write_embedder


def has_two_outputs(network):
    return len(network.outputs) == 2


@pytest.fixture
def folder(tmp_path):
    """Two networks, one of which has two outputs, a broken one, and a text file."""
    folder = tmp_path / "buffalo"
    folder.mkdir()
    write_embedder(folder / "one.onnx")
    write_embedder(folder / "two.onnx", quality=True)
    (folder / "notes.onnx").write_text("no network")
    (folder / "readme.txt").write_text("read me")
    return folder


@pytest.mark.parametrize("inside", [None, ".", "buffalo"], ids=["folder", "zip", "zip with a folder"])
def test_a_model_is_found_by_its_inputs_and_outputs(folder, tmp_path, inside):
    root = folder if inside == "." else folder.parent
    path = Path(shutil.make_archive(str(folder), "zip", root, inside)) if inside else folder
    assert is_pack(path)
    model, network = find_in_pack(path, tmp_path / "scratch", has_two_outputs, wanted="pair")
    assert model.read_bytes() == (folder / "two.onnx").read_bytes()
    assert [tensor.name for tensor in network.inputs] == ["face"]
    assert [tensor.shape for tensor in network.outputs] == [["N", SIZE], ["N"]]


def test_an_error_on_none_or_several_models_lists_the_packs_files(folder, tmp_path):
    (folder / "one.onnx").rename(folder / "first.onnx")
    with pytest.raises(
        ModelError, match=r"buffalo: a model pack must have one net, but this one has none \(.*\); give"
    ) as error:
        find_in_pack(folder, tmp_path, lambda network: False, wanted="net", otherwise=", or another pack")
    for listed in ("first.onnx: ['N', 3, 112, 112] to", "notes.onnx: cannot be loaded", "or another pack"):
        assert listed in str(error.value)
    with pytest.raises(ModelError, match=r"this one has 2 \("):
        find_in_pack(folder, tmp_path, lambda network: bool(network.inputs), wanted="net")
    with pytest.raises(ModelError, match=r"gone: no such model pack"):
        find_in_pack(tmp_path / "gone", tmp_path, has_two_outputs, wanted="net")


@pytest.mark.parametrize(
    "name", ["../w600k_r50.onnx", "a/../../b.onnx", "/tmp/b.onnx", "C:\\b.onnx", "..\\b.onnx", "../notes.txt"]
)
def test_a_zip_with_paths_outside_the_folder_is_refused(tmp_path, name):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("good.onnx", b"x")
        archive.writestr(name, b"x")
    with pytest.raises(ModelError, match=r"p\.zip: its member .* points outside the folder"):
        find_in_pack(tmp_path / "p.zip", scratch, has_two_outputs, wanted="net")
    assert list(scratch.iterdir()) == []


def test_only_the_onnx_files_of_a_zip_are_unpacked_up_to_a_limit(folder, tmp_path, monkeypatch):
    path, scratch = Path(shutil.make_archive(str(folder), "zip", folder)), tmp_path / "scratch"
    find_in_pack(path, scratch, has_two_outputs, wanted="net")
    assert {file.name for file in scratch.rglob("*.*") if file.is_file()} == {
        "notes.onnx",
        "one.onnx",
        "two.onnx",
    }
    monkeypatch.setattr(model_pack, "MAX_PACK_BYTES", 1000)
    with pytest.raises(ModelError, match=r"buffalo\.zip: its \.onnx files have .* more than the limit of 1,000"):
        find_in_pack(path, tmp_path / "other", has_two_outputs, wanted="net")
    assert not (tmp_path / "other").exists()


def test_a_file_that_is_not_a_zip_is_named(tmp_path):
    (tmp_path / "text.zip").write_text("hello")
    with pytest.raises(ModelError, match=r"text\.zip: cannot be unpacked \(File is not a zip file\)"):
        find_in_pack(tmp_path / "text.zip", tmp_path, has_two_outputs, wanted="net")
