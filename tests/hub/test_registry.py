import hashlib
import json
import re
from pathlib import Path

import pytest

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.embedding.shipped import verify_shipped
from facerts.errors import ModelError
from facerts.hub import registry
from facerts.hub.catalog import catalog_models, in_catalog
from facerts.hub.find import find_model
from facerts.hub.registry import read_manifest, shipped_models
from facerts.io.files import sha256_file
from tests.command import printed_json, run
from tests.shipped import write_entry, write_manifest, write_model

ROOT = Path(__file__).parents[2]


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """Two shipped models, "large" and, by default, "tiny-small", and an empty working folder."""
    folder = tmp_path / "models"
    folder.mkdir()
    entries = [write_entry(folder, name) for name in ("large", "tiny-small")]
    write_manifest(folder, *entries, default="tiny-small")
    monkeypatch.setattr(registry, "models_folder", lambda: folder)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return folder


def test_the_default_model_is_loaded_if_none_is_named(shipped):
    scorer = facerts.load()
    assert scorer.recognizer.opened.name == "tiny-small"
    assert scorer.recognizer.opened.sha256 == hashlib.sha256((shipped / "tiny-small.onnx").read_bytes()).hexdigest()
    face = draw_face(0, 0)
    assert scorer.score(face) == facerts.load(shipped / "tiny-small.onnx").score(face)


@pytest.mark.parametrize(
    "path", ["large.onnx", "./large", "models/large", "gone.onnx", "pack.zip", "/large", "no/such"]
)
def test_a_string_with_a_suffix_or_folder_is_a_path(shipped, path):
    assert find_model(path) == Path(path)


def test_an_existing_path_wins_over_the_name_of_a_model(shipped):
    Path("large").mkdir()
    write_model(Path("large", "other.onnx"))
    assert find_model("large") == Path("large")
    assert find_model("tiny-small") == shipped / "tiny-small.onnx"


def test_an_unknown_name_suggests_the_closest_one(shipped):
    with pytest.raises(ModelError, match=r"no model 'tiny-smal', did you mean 'tiny-small'\?; available: large"):
        facerts.load("tiny-smal")
    with pytest.raises(ModelError, match=r"no model 'zzz'; available: large, tiny-small, and those of .* model\.onnx"):
        find_model("zzz")


def flip_a_byte(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (flip_a_byte, "not the shipped large: its SHA-256 is"),
        (cut, "not the shipped large: its SHA-256 is"),
        (Path.unlink, "the model large is missing, though the manifest lists it"),
    ],
)
def test_a_changed_file_is_not_loaded(shipped, harm, words):
    harm(shipped / "large.onnx")
    with pytest.raises(ModelError, match=words):
        _ = facerts.load("large").recognizer.opened
    assert verify_shipped()["tiny-small"] == []
    (problem,) = verify_shipped()["large"]
    assert words in problem


def test_verify_compares_the_manifest_with_the_models_descriptions(shipped):
    wrong = {"method": "arcface", "embedding_size": 512, "terms": "free for all", "bytes": 1}
    entries = [write_entry(shipped, "large", **wrong), write_entry(shipped, "tiny-small")]
    write_manifest(shipped, *entries, default="large")
    (shipped / "tiny-small.md").unlink()
    found = verify_shipped()
    assert found["tiny-small"] == ["its card tiny-small.md is missing"]
    assert sorted(problem.split(" is ")[0] for problem in found["large"]) == sorted(wrong)
    assert "method is 'rts' in the file, but 'arcface' in the manifest" in found["large"]


def test_without_shipped_models_the_error_says_what_to_do(shipped):
    write_manifest(shipped)
    with pytest.raises(ModelError, match=r"no model is shipped with this copy of facerts; give the path of an \.onnx"):
        _ = facerts.load().recognizer.opened
    with pytest.raises(ModelError, match=r"no model 'large', since none is shipped"):
        _ = facerts.load("large").recognizer.opened
    assert facerts.load(shipped / "large.onnx").recognizer.opened.name == "large"
    assert verify_shipped() == {}


ENTRY = {
    "name": "a",
    "file": "a.onnx",
    "sha256": "0" * 64,
    "bytes": 1,
    "embedding_size": 8,
    "method": "rts",
    "summary": "s",
    "terms": "t",
    "commercial": "no",
    "card": "a.md",
}


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        ({"models": [ENTRY], "default": "b"}, "default must be the name of one"),
        ({"models": [ENTRY, ENTRY], "default": "a"}, "two models have the same name"),
        (
            {"models": [ENTRY | {"file": "../a.onnx"}], "default": "a"},
            r"models\.0\.file: String should match",
        ),
        ({"models": [ENTRY | {"license": "x"}], "default": "a"}, r"models\.0\.license: Extra inputs"),
        ({"models": [], "schema": "facerts.models/2"}, "schema: Input should be"),
    ],
)
def test_a_broken_manifest_is_explained(tmp_path, manifest, words):
    write_manifest(tmp_path, **manifest)
    with pytest.raises(ModelError, match=rf"manifest\.json: .*{words}"):
        read_manifest(tmp_path)


def test_a_missing_or_unreadable_manifest_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"manifest\.json: no manifest of the shipped models \(No such file"):
        read_manifest(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ModelError, match=r"manifest\.json: Invalid JSON"):
        read_manifest(tmp_path)


def test_the_error_on_an_incomplete_installation_says_what_to_do(monkeypatch):
    def missing(package):
        raise ModuleNotFoundError(f"No module named {package!r}", name=package)

    monkeypatch.setattr(registry.resources, "files", missing)
    with pytest.raises(ModelError, match=r"lacks its package facerts\.models; reinstall facerts"):
        _ = facerts.load().recognizer.opened


def test_the_list_command_shows_the_default_model_first(shipped, capsys):
    listed = [model for model in printed_json(capsys, "models", "list")["models"] if model["ships"]]
    assert [model["name"] for model in listed if model["default"]] == ["tiny-small"]
    assert [model["name"] for model in listed] == ["tiny-small", "large", "yunet"]
    assert listed[0]["bytes"] == (shipped / "tiny-small.onnx").stat().st_size
    assert run("models", "list") == 0
    table = capsys.readouterr().out
    assert "tiny-small (default)" in table
    assert re.search(r"large +recognizer", table)
    write_manifest(shipped)
    assert run("models", "list") == 0
    assert "no model ships" in capsys.readouterr().err


def test_the_models_of_this_copy_match_their_manifest():
    folder = ROOT / "models"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    for model in manifest["models"]:
        if model["name"].endswith("-small"):
            assert model["bytes"] <= 12_000_000
    detector = in_catalog("yunet")
    assert sha256_file(detector.packaged) == detector.sha256
    assert "Copyright (c) 2020 Shiqi Yu" in detector.packaged.with_suffix(".LICENSE").read_text("utf-8")
    assert not {model.name for model in catalog_models()} & {model["name"] for model in manifest["models"]}
    ours = {model["file"] for model in manifest["models"]}
    assert {path.name for path in folder.glob("*.onnx")} == {*ours, detector.file}
    assert {path.name for path in folder.glob("*.md")} == {model["card"] for model in manifest["models"]}
    assert registry.models_folder() == folder
    assert verify_shipped() == {model["name"]: [] for model in manifest["models"]}
    assert [model.name for model in shipped_models()] == [model["name"] for model in manifest["models"]]


def test_the_wheel_contains_the_models():
    config = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert "facerts.models = *.onnx, *.md, *.LICENSE, manifest.json\n" in config
    assert "facerts.models = models\n" in config
