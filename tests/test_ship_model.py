"""Adding a model to those that ship, as a maintainer does it."""

import hashlib
import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

from facerts.errors import Error
from facerts.hub.registry import read_manifest
from tests.foreign import write_description, write_embedder
from tests.scripts import run_script
from tests.shipped import write_manifest, write_model

TOOL = Path(__file__).parents[1] / "tools" / "ship_model.py"
FACTS = {"summary": "s", "commercial": "no"}


@pytest.fixture
def tool(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    return importlib.import_module("ship_model")


@pytest.fixture
def folder(tmp_path) -> Path:
    """A folder without models, with model cards for "first" and "second-small"."""
    folder = tmp_path / "models"
    folder.mkdir()
    write_manifest(folder)
    for name in ("first", "second-small"):
        (folder / f"{name}.md").write_text(f"# {name}\n")
    return folder


def test_the_command_copies_a_model_and_adds_it_to_the_manifest(folder, tmp_path):
    model = write_model(tmp_path / "first.onnx", terms="research only")
    process = run_script(TOOL, model, "--name", "first", "--summary", "for tests", "--models", folder)
    assert process.returncode == 0, process.stderr
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"quality": null', '"quality": "first"'))
    # A file already in the folder is added again where it lies.
    process = run_script(TOOL, folder / "first.onnx", "--name", "first", "--summary", "for tests", "--models", folder)
    assert process.returncode == 0, process.stderr
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert digest in process.stdout
    assert (folder / "first.onnx").read_bytes() == model.read_bytes()
    assert json.loads(manifest.read_text()) == {
        "schema": "facerts.models/1",
        "default": "first",
        "quality": "first",
        "models": [
            {
                "name": "first",
                "file": "first.onnx",
                "sha256": digest,
                "bytes": model.stat().st_size,
                "embedding_size": 8,
                "method": "rts",
                "summary": "for tests",
                "terms": "research only",
                "commercial": "no",
                "measured": {},
                "card": "first.md",
            }
        ],
    }
    process = run_script(TOOL, tmp_path / "no.onnx", "--name", "first", "--summary", "s", "--models", folder)
    assert process.returncode == 2
    assert process.stderr.startswith("error: ")
    assert "Traceback" not in process.stderr


def test_the_first_model_is_the_default_until_another_becomes_it(tool, folder, tmp_path):
    for name in ("first", "second-small"):
        tool.ship(write_model(tmp_path / f"{name}.onnx"), folder, name, FACTS, default=False)
    assert read_manifest(folder).default == "first"
    again = write_model(tmp_path / "second-small.onnx", terms="others")
    tool.ship(again, folder, "second-small", {**FACTS, "summary": "changed"}, default=True)
    manifest = read_manifest(folder)
    assert manifest.default == "second-small"
    assert [(model.name, model.summary) for model in manifest.models] == [
        ("first", "s"),
        ("second-small", "changed"),
    ]
    assert manifest.models[1].terms == "others"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("first", {"terms": ""}, "has no terms; set data.name and data.terms"),
        ("first", {"training_data": " "}, "has no training_data"),
        ("first", {"name": "other"}, "has the name 'other'; export the model as first.onnx"),
        ("third", {}, r"third\.md: no such model card"),
        ("Wrong_Name", {}, "name: String should match"),
    ],
)
def test_a_rejected_model_changes_nothing(tool, folder, tmp_path, name, changes, message):
    (folder / "Wrong_Name.md").write_text("# card\n")
    before = sorted(folder.iterdir()), (folder / "manifest.json").read_bytes()
    with pytest.raises(Error, match=message):
        tool.ship(write_model(tmp_path / f"{name}.onnx", **changes), folder, name, FACTS, default=False)
    assert (sorted(folder.iterdir()), (folder / "manifest.json").read_bytes()) == before


def test_a_small_model_must_be_small(tool, folder, tmp_path, monkeypatch):
    small, first = (write_model(tmp_path / f"{name}.onnx") for name in ("second-small", "first"))
    assert tool.SMALL_BYTES == 12_000_000
    monkeypatch.setattr(tool, "SMALL_BYTES", small.stat().st_size - 1)
    with pytest.raises(Error, match=r"name ending in -small is .* --precision fp16"):
        tool.ship(small, folder, "second-small", FACTS, default=False)
    tool.ship(first, folder, "first", FACTS, default=False)
    monkeypatch.setattr(tool, "SMALL_BYTES", small.stat().st_size)
    tool.ship(small, folder, "second-small", FACTS, default=False)


def test_a_description_next_to_the_model_is_not_enough(tool, folder, tmp_path):
    model = write_embedder(tmp_path / "first.onnx")
    write_description(model, name="first", terms="t", training_data="d")
    with pytest.raises(Error, match="contains no description"):
        tool.ship(model, folder, "first", FACTS, default=False)
