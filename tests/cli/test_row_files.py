"""Every command that writes rows to a file writes the same ones to each kind of file."""

import csv
import json
import shutil

import pyarrow.parquet
import pytest
import typer

from facerts.cli.app import build_app
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.scoring.sinks import SINKS, from_cell
from tests.command import run
from tests.matching import write_matcher

# Where a command takes them, what it is given besides --out.
COMMANDS = {
    ("score",): ("faces", "--model", "model.onnx"),
    ("verify",): ("--pairs", "pairs.csv", "--model", "model.onnx"),
    ("gallery", "search"): ("people.npz", "faces", "--model", "model.onnx", "--fpir", "0.5"),
    ("gallery", "check"): ("people.npz",),
    ("gallery", "best"): ("people.npz", "-k", "2"),
    ("people", "list"): ("people",),
}


def commands_with_row_files(command, *names):
    """The names of the commands whose --out takes a table of rows."""
    for name, other in getattr(command, "commands", {}).items():
        yield from commands_with_row_files(other, *names, name)
    if any(option.name == "out" and ".parquet" in (option.help or "") for option in command.params):
        yield names


def test_every_command_is_tested():
    assert {*commands_with_row_files(typer.main.get_command(build_app()))} == {*COMMANDS}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    write_matcher(folder / "model.onnx")
    write_synthetic_faces(folder / "faces", identities=2, images=3, seed=5)
    first, second, *_ = sorted((folder / "faces").rglob("*.jpg"))
    shutil.copy(first, second.parent / "copy.jpg")
    (folder / "pairs.csv").write_text(f"first,second\n{first},{second}\n{first},{first}.gone\n")
    options = ("--model", folder / "model.onnx", "--out", folder / "people.npz", "--set", "keep=none")
    assert run("gallery", "build", folder / "faces", *options) == 0
    (folder / "faces" / "=broken.jpg").write_bytes(b"no image")
    found = run("people", "find", folder / "faces", "--model", folder / "model.onnx", "--out", folder / "people")
    assert found == 1
    return folder


@pytest.mark.parametrize("command", COMMANDS, ids="-".join)
def test_rows_are_the_same_in_every_kind_of_file(files, tmp_path, monkeypatch, command):
    monkeypatch.chdir(files)
    for suffix in SINKS:
        assert run(*command, *COMMANDS[command], "--out", tmp_path / f"rows{suffix}") in (0, 1)
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    table = pyarrow.parquet.read_table(tmp_path / "rows.parquet")
    assert rows
    assert [{name: _from_parquet(value) for name, value in row.items()} for row in table.to_pylist()] == rows
    types = {name: type(value) for row in rows for name, value in row.items() if value is not None}
    for name, kind in types.items():
        check = {
            str: "is_string",
            bool: "is_boolean",
            int: "is_integer",
            float: "is_floating",
            list: "is_list",
        }[kind]
        assert getattr(pyarrow.types, check)(table.schema.field(name).type), name
    with (tmp_path / "rows.csv").open(encoding="utf-8", newline="") as file:
        cells = [{name: from_cell(cell) for name, cell in row.items()} for row in csv.DictReader(file)]
    assert cells == [{name: _as_cell(value) for name, value in row.items()} for row in rows]


def _from_parquet(value):
    """A value as JSON has it, where a pair is a list."""
    if isinstance(value, list):
        return [[*each.values()] if isinstance(each, dict) else each for each in value]
    return value


def _as_cell(value):
    """A value of JSON as documented for CSV: numbers separated by spaces, names by semicolons."""
    if isinstance(value, list):
        texts = [f"{each[0]} {each[1]:.4f}" if isinstance(each, list) else each for each in value]
        return ";".join(texts) if all(isinstance(text, str) for text in texts) else " ".join(f"{n:g}" for n in texts)
    return {None: "", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
