import json
import re
from importlib import metadata
from importlib.util import find_spec

import numpy as np
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from facerts.cli.app import build_app
from tests.command import printed_json, refused, run
from tests.foreign import write_description, write_embedder


def leaves(command, *names):
    """The names of all commands, each with those of its groups."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from leaves(inner, *names, name)
    if not hasattr(command, "commands"):
        yield names


def test_every_command_has_help_with_an_example():
    app = build_app()
    commands = [*leaves(get_command(app))]
    # A command line that is built again has each command once.
    assert commands == [*leaves(get_command(build_app()))]
    assert len(commands) == len(set(commands)) > 30
    for command in commands:
        shown = CliRunner().invoke(app, [*command, "--help"])
        assert shown.exit_code == 0
        example = " ".join(command).replace("METHOD", "rts")
        assert f"Example: facerts {example}" in re.sub(r"\s+", " ", shown.output), command


def test_unreadable_input_gives_status_2_and_a_message(capsys, tmp_path, model):
    assert run("score", tmp_path / "[odd] name", "--model", model, "--out", tmp_path / "rows.csv") == 2
    error = capsys.readouterr().err
    assert "[odd] name: no such file or folder" in error
    assert "Traceback" not in error
    assert not (tmp_path / "rows.csv").exists()
    assert run("score", tmp_path, "--model", tmp_path / "gone.onnx", "--out", tmp_path / "rows.csv") == 2
    assert run("evaluate", "nonsense") == 2


def test_where_embeddings_cannot_be_written_nothing_is_embedded(tmp_path, capsys):
    (tmp_path / "file").write_bytes(b"")
    for out, problem in (("e.txt", "written as .npz"), ("file/e.npz", "a file is where a folder should be")):
        assert problem in refused(capsys, "embed", tmp_path, "--model", "none.onnx", "--out", tmp_path / out)


def test_contradicting_thresholds_are_refused(tmp_path, model):
    command = ("score", tmp_path, "--model", model, "--out", tmp_path / "r.csv")
    assert run(*command, "--min-quality", "1", "--keep", "0.9") == 2
    assert run(*command, "--keep", "0.9") == 2
    assert run(*command, "--copy-accepted", tmp_path / "a") == 2


def test_pack_inspect_unpack_by_command(capsys, drawn_faces, tmp_path):
    packed = printed_json(capsys, "data", "pack", drawn_faces, "--out", tmp_path / "rec")
    assert packed["written"][0]["images"] == 64
    report = printed_json(capsys, "data", "inspect", tmp_path / "rec", "--all")
    assert (report["images"], report["identities"], report["broken"]) == (64, 8, [])
    assert report["sizes"] == {"112 x 112": 64}
    assert report["images_per_identity"] == {"min": 8, "median": 8, "max": 8}
    assert run("data", "unpack", tmp_path / "rec", "--out", tmp_path / "again") == 0
    image = next((tmp_path / "again").rglob("*.jpg"))
    image.write_bytes(b"no")
    assert run("data", "inspect", tmp_path / "again", "--all") == 1
    assert run("data", "pack", tmp_path / "again", "--out", tmp_path / "less") == 1


@pytest.mark.slow
def test_doctor_lists_installed_packages(capsys):
    result = printed_json(capsys, "doctor")
    assert result["numpy"] == np.__version__
    assert "CPUExecutionProvider" in result["providers"]
    missing = find_spec("ray") is None
    assert result["ray"] == ("missing" if missing else metadata.version("ray"))
    assert result["scoring with Ray"].startswith("no, without ray: in your clone" if missing else "yes")


def test_doctor_measures_and_stores_providers(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    write_description(write_embedder(tmp_path / "m.onnx"))
    assert run("doctor", "--bench", "--set", f"recognizer={tmp_path / 'm.onnx'}", "--set", "detector=none") == 0
    printed = capsys.readouterr().out
    assert "m: ms per crop" in printed
    assert "order cpu order for photos cpu" in " ".join(printed.split())
    (stored,) = (tmp_path / "cache").iterdir()
    assert json.loads(stored.read_text())["providers"][0]["provider"] == "CPUExecutionProvider"
    result = printed_json(
        capsys, "doctor", "--bench", "--set", f"recognizer={tmp_path / 'm.onnx'}", "--set", "detector=none"
    )
    assert result["order"] == ["cpu"]
    assert result["measured"][0]["exact"] is True
