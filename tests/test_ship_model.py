"""Entering a model among those that ship, as a maintainer does it."""

from __future__ import annotations

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


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOL.parent))
    return importlib.import_module("ship_model")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of no models, with cards for "first" and "second-small"."""
    folder = tmp_path / "models"
    folder.mkdir()
    write_manifest(folder)
    for name in ("first", "second-small"):
        (folder / f"{name}.md").write_text(f"# {name}\n")
    return folder


def test_a_model_is_copied_and_entered_by_command(folder: Path, tmp_path: Path) -> None:
    model = write_model(tmp_path / "first.onnx", terms="research only")
    ran = run_script(TOOL, model, "--name", "first", "--summary", "for tests", "--models", folder)
    assert ran.returncode == 0, ran.stderr
    digest = hashlib.sha256(model.read_bytes()).hexdigest()
    assert digest in ran.stdout
    assert (folder / "first.onnx").read_bytes() == model.read_bytes()
    assert json.loads((folder / "manifest.json").read_text()) == {
        "schema": "facerts.models/1",
        "default": "first",
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
                "card": "first.md",
            }
        ],
    }


def test_the_first_model_is_the_default_until_another_is_made_it(
    tool: ModuleType, folder: Path, tmp_path: Path
) -> None:
    for name in ("first", "second-small"):
        tool.ship(write_model(tmp_path / f"{name}.onnx"), folder, name=name, summary="s", default=False)
    assert read_manifest(folder).default == "first"
    again = write_model(tmp_path / "second-small.onnx", terms="others")
    tool.ship(again, folder, name="second-small", summary="changed", default=True)
    manifest = read_manifest(folder)
    assert manifest.default == "second-small"
    assert [(model.name, model.summary) for model in manifest.models] == [
        ("first", "s"),
        ("second-small", "changed"),
    ]
    assert manifest.models[1].terms == "others"


def test_a_file_that_lies_in_the_folder_already_is_entered(tool: ModuleType, folder: Path) -> None:
    model = write_model(folder / "first.onnx")
    before = model.read_bytes()
    entry = tool.ship(model, folder, name="first", summary="s", default=False)
    assert model.read_bytes() == before
    assert read_manifest(folder).models == (entry,)


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("first", {"terms": ""}, "has no terms; set data.name and data.terms"),
        ("first", {"training_data": " "}, "has no training_data"),
        ("first", {"name": "other"}, "calls itself 'other'; export it as first.onnx"),
        ("third", {}, r"third\.md: no such card"),
        ("Wrong_Name", {}, "name: String should match"),
    ],
)
def test_a_model_that_must_not_ship_leaves_everything_as_it_was(
    tool: ModuleType, folder: Path, tmp_path: Path, name: str, changes: dict[str, str], words: str
) -> None:
    (folder / "Wrong_Name.md").write_text("# card\n")
    before = sorted(folder.iterdir()), (folder / "manifest.json").read_bytes()
    with pytest.raises(Error, match=words):
        tool.ship(
            write_model(tmp_path / f"{name}.onnx", **changes), folder, name=name, summary="s", default=False
        )
    assert (sorted(folder.iterdir()), (folder / "manifest.json").read_bytes()) == before


def test_a_small_model_must_be_small(
    tool: ModuleType, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, first = (write_model(tmp_path / f"{name}.onnx") for name in ("second-small", "first"))
    assert tool.SMALL_BYTES == 12_000_000
    monkeypatch.setattr(tool, "SMALL_BYTES", small.stat().st_size - 1)
    with pytest.raises(Error, match=r"whose name ends in -small has at most .* --precision fp16"):
        tool.ship(small, folder, name="second-small", summary="s", default=False)
    tool.ship(first, folder, name="first", summary="s", default=False)
    monkeypatch.setattr(tool, "SMALL_BYTES", small.stat().st_size)
    tool.ship(small, folder, name="second-small", summary="s", default=False)


def test_a_description_beside_the_model_does_not_ship(tool: ModuleType, folder: Path, tmp_path: Path) -> None:
    model = write_embedder(tmp_path / "first.onnx")
    write_description(model, name="first", terms="t", training_data="d")
    with pytest.raises(Error, match="carries no description"):
        tool.ship(model, folder, name="first", summary="s", default=False)


def test_a_refusal_is_a_sentence_and_a_status(folder: Path, tmp_path: Path) -> None:
    ran = run_script(TOOL, tmp_path / "no.onnx", "--name", "first", "--summary", "s", "--models", folder)
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: ")
    assert "Traceback" not in ran.stderr
