"""No name reaches the terminal as it is: control characters are escapes, whichever command prints it."""

import csv
import io
import json
import logging
import re
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.main import get_command

from facerts.cli.app import build_app
from facerts.cli.output import print_rows
from facerts.cli.serve import PrintableFormatter
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.errors import ModelError
from facerts.io.console import warn
from facerts.io.json_file import json_text
from facerts.onnx.session import open_session, run_session
from tests.cli.test_cli import leaves
from tests.command import run
from tests.foreign import write_description, write_embedder
from tests.matching import write_matcher

# An escape sequence, C1 controls, overrides and isolates of direction, a line separator, and markup.
NAME = "\x1b[2J\x9b31m\x07\x7f\u202e\u2066\u200f\u061c\u2028[red]:key:<b>|$\\frac"
SHOWN = r"\x1b[2J\x9b31m\x07\x7f\u202e\u2066\u200f\u061c\u2028[red]:key:<b>|$\frac"
# A file's name may have bytes that are not UTF-8.
FILE = f"{NAME}\udcff"


@pytest.fixture(scope="module")
def world(tmp_path_factory, few_replicates, few_changes):
    """People, each in a folder; a folder with an image that cannot be read; models, a gallery and results, by name."""
    folder = tmp_path_factory.mktemp("hostile") / NAME
    files = {"model": ".onnx", "matcher": "matcher.onnx", "gallery": "gallery.npz", "pairs": f"people/{NAME}pairs.csv"}
    files |= {name: name for name in ("people", "flat", "result", "groups", "known")}
    world = SimpleNamespace(name=NAME, **{name: folder / f"{NAME}{file}" for name, file in files.items()})
    write_synthetic_faces(world.people, identities=3, images=2, seed=5)
    # Of those who are enrolled, only the paths are hostile.
    shutil.copytree(world.people, world.known)
    for person in sorted(world.people.iterdir()):
        person.rename(person.with_name(f"{NAME}{person.name}"))
    write_description(write_embedder(world.model, quality=True), quality="output:bright")
    images = sorted(world.people.rglob("*.jpg"))
    keys = [str(image.relative_to(world.people)) for image in images]
    with world.pairs.open("w", newline="") as file:
        rows = [(one, two, int(i // 2 == k // 2)) for i, one in enumerate(keys) for k, two in enumerate(keys) if i < k]
        csv.writer(file).writerows([("first", "second", "same"), *rows])
    world.flat.mkdir()
    for number, image in enumerate(images):
        shutil.copy(image, world.flat / f"{FILE}{number}.jpg")
    world.first, world.second, *_ = sorted(world.flat.iterdir())
    (world.flat / f"{FILE}broken.jpg").write_bytes(b"no image")
    model = ("--model", world.model)
    assert run("gallery", "build", world.known, *model, "--out", world.gallery) == 0
    write_matcher(world.matcher)
    assert run("people", "find", world.flat, "--model", world.matcher, "--out", world.groups) == 1
    assert run("evaluate", "verification", *model, "--data", world.pairs, "--out", world.result) == 0
    return world


# Arguments of each command with which it prints names.
COMMANDS = {
    "calibrate": "--model {model} --data {people}",
    "compare": "{name}={result} 2={result} --out {out}",
    "config get": "{name}",
    "config set": "{name} {name}",
    "config unset": "{name}",
    "data bin": "{flat} --out {out}",
    "data dedup": "{people} --out {out}",
    "data exclude-overlap": "{people} --out {out} --benchmark {people} --model {model}",
    "data generate": "--out {out} --identities 2 --images 1 --people 2",
    "data inspect": "{flat}",
    "data pack": "{people} --out {out}",
    "data split": "{people} --out {out} --held-out {out}2 --share 0.4",
    "data unpack": "{people} --out {out}",
    "embed": "{flat} --model {model} --out {out}.npz",
    "evaluate corruptions": "--model {model} --out {out} --data {people} --images 2",
    "evaluate fiqa": "--model {model} --out {out} --data {people} --quality {name}={model}",
    "evaluate identification": "--model {model} --out {out} --data {people}",
    "evaluate ood": "--model {model} --out {out} --in {people} --out-of {flat}",
    "evaluate reject": "--model {model} --out {out} --data {pairs} --fmr 0.1",
    "evaluate verification": "--model {model} --out {out} --data {pairs}",
    "export": "{flat} --out {out}",
    "gallery add": "{gallery} {flat} --model {model} --person {name}",
    "gallery best": "{gallery}",
    "gallery build": "{known} --model {model} --out {out}.npz",
    "gallery check": "{gallery}",
    "gallery list": "{gallery}",
    "gallery remove": "{gallery} {name}",
    "gallery search": "{gallery} {flat} --model {model} --fpir 0.5",
    "models path": "{name}",
    "models pull": "{name}",
    "models remove": "{name}",
    "models show": "{name}",
    "people copy": "{groups} {out}",
    "people find": "{flat} --model {matcher} --out {out}",
    "people list": "{groups} --out {out}",
    "people merge": "{groups} 1 {name}",
    "people move": "{groups} {name} --to 1",
    "people name": "{groups} 1 {name}",
    "people show": "{groups} 1",
    "people to-gallery": "{groups} --out {out}.npz",
    "people undo": "{groups}",
    "posthoc METHOD": "--model {model} --data {flat} --out {out}",
    "posthoc graft": "--model {model} --quality {flat} --out {out}.onnx",
    "report": "{result} --out {out}",
    "score": "{flat} --model {model}",
    "serve": "--model {flat}",
    "train": "{flat}",
    "verify": "{first} {second} --model {model}",
    "video": "{flat} --model {matcher} --out {out}",
    "web": "--out {out}/site --recognizer {matcher}",
}
# These print no names but the package's own.
NAMELESS = {"config list", "doctor", "models list", "models verify"}


def test_every_command_is_tested():
    assert {" ".join(names) for names in leaves(get_command(build_app()))} == {*COMMANDS, *NAMELESS}


def check_printable(text):
    assert {letter for letter in text if not letter.isprintable()} <= {"\n"}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_no_control_characters(world, tmp_path, capsys, command):
    if command == "train":
        pytest.importorskip("tensorboard")
    out = tmp_path / NAME / "out"
    out.parent.mkdir()
    arguments = [word.format(**vars(world), out=out) for word in COMMANDS[command].split()]
    status = run(*command.replace("METHOD", "rts").split(), *arguments)
    shown = capsys.readouterr()
    assert status in (0, 1, 2)
    check_printable(shown.out + shown.err)
    assert r"\x1b[2J" in shown.out + shown.err
    for file in out.parent.rglob("*"):
        if file.suffix in (".html", ".md", ".svg"):
            content = file.read_text(encoding="utf-8")
            check_printable(content)
            assert not re.search(r":(?<!\\)<b>", content)


def test_errors_of_arguments_and_tracebacks_are_printable(capsys, monkeypatch):
    monkeypatch.setenv("FACERTS_DEBUG", "1")
    for arguments in (
        *((f"--{NAME}",), (NAME,), ("score", f"--{NAME}"), ("score", "a", "--engine", NAME), ("score", NAME)),
    ):
        assert run(*arguments) == 2
        shown = capsys.readouterr()
        check_printable(shown.out + shown.err)
        assert r"\x1b[2J" in re.sub(r"[│\s]", "", shown.err)
    assert "Traceback" in shown.err


def test_names_in_all_languages_are_shown_as_they_are(capsys):
    # With an ideographic space, a joiner, a non-joiner, a variation selector, a combining and a no-break space.
    names = "山田\u3000太郎 👩\u200d🚀 علی\u200cرضا ☺\ufe0f e\u0301 A\u00a0B"
    print_rows([{"name": names}])
    warn(names)
    shown = capsys.readouterr()
    assert names in shown.out
    assert shown.err == f"warning: {names}\n"


def test_names_are_no_markup(capsys):
    print_rows([{NAME: NAME}], title=NAME)
    warn(NAME)
    shown = capsys.readouterr()
    assert shown.out.count(SHOWN) == 3
    assert shown.err == f"warning: {SHOWN}\n"


def test_csv_is_escaped_on_a_terminal_only(world, capsys, monkeypatch):
    command = ("score", world.people, "--model", world.model, "--out", "-")
    assert run(*command) == 0
    piped = capsys.readouterr().out
    assert str(world.people) in next(csv.DictReader(io.StringIO(piped, newline="")))["path"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run(*command) == 0
    shown = capsys.readouterr().out
    check_printable(shown)
    assert shown.count("\n") == piped.count("\n")


def test_json_is_escaped_but_keeps_the_value():
    value = {FILE: [FILE, "ä 人 😀", "\U000e0001"]}
    for indent in (None, 1):
        text = json_text(value, indent=indent)
        check_printable(text)
        assert json.loads(text) == value
        assert "ä 人 😀" in text


def test_the_log_of_the_service_is_printable():
    try:
        raise ValueError(NAME)
    except ValueError:
        record = logging.LogRecord("facerts", logging.ERROR, "", 0, "%s", (NAME,), sys.exc_info())
    text = PrintableFormatter("%(message)s").format(record)
    check_printable(text)
    assert text.startswith(f"{SHOWN}\nTraceback")


def test_onnx_runtime_does_not_print_names_of_a_graph(tmp_path, capfd):
    """Its error of a forward pass is raised and so reaches the terminal once, through us."""
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [5])
    node = helper.make_node("Reshape", ["x", "shape"], ["y"], name="\x1b[31mnode")
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([node], "graph", values[:1], values[1:], [shape])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with pytest.raises(ModelError, match="cannot run it"):
        run_session(open_session(path), path, None, {"x": np.zeros(3, np.float32)})
    assert capfd.readouterr() == ("", "")
