"""Exit statuses: whatever happens, a command ends with one message and a documented status."""

import errno
import os
import re
import signal
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

import facerts.cli.doctor
from facerts.cli import output
from facerts.cli.ending import DEBUG_VARIABLE, OPTIONAL
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error, did_you_mean, install_hint
from facerts.images import encode_png
from tests.command import ROOT, no_larger_files, run, run_process


def test_every_status_is_in_the_table_of_the_documentation():
    table = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    listed = {name: int(status) for status, name in re.findall(r"^\| (\d+) \| `(\w+)`", table, re.MULTILINE)}
    assert listed == {
        name.removeprefix("EXIT_"): status for name, status in vars(output).items() if name.startswith("EXIT_")
    }


def test_every_extra_that_is_named_can_be_installed():
    settings = ConfigParser()
    settings.read(ROOT / "setup.cfg", encoding="utf-8")
    known = set(settings["options.extras_require"])
    pages = [ROOT / "README.md", ROOT / "Makefile", *ROOT.glob("docs/**/*.md"), *ROOT.glob("facerts/**/*.py")]
    for page in pages:
        for names in re.findall(r"""["'](?:facerts|\.)\[([\w,]+)\]["']""", page.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= known, page
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    for extra in {extra for _, extra, _ in OPTIONAL.values()} | {"postgres"}:
        assert extra in known
        command = re.search(r"pip install (.*?)(?:, or '\.\[gpu\S*|$)", install_hint(extra))[1]
        assert f"| `{command}" in page or f"`{extra}`" in page, "the page and the error name the same command"


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (RuntimeError("first line\nsecond"), 4, "unexpected RuntimeError (first line); this is a bug"),
        (KeyError("name"), 4, "unexpected KeyError ('name')"),
        (EOFError(), 4, "unexpected EOFError (EOFError)"),
        (RecursionError("too deep"), 4, "unexpected RecursionError (too deep)"),
        (MemoryError("Unable to allocate 46 TiB"), 2, "not enough memory (Unable to allocate 46 TiB)"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "error: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", b"/x/y"), 2, "/x/y: Permission denied"),
        (Error("a message"), 2, "error: a message"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_gives_one_line_and_its_own_status(error, status, message, monkeypatch, capsys):
    def fail(*_):
        raise error

    monkeypatch.setattr(facerts.cli.doctor, "examine", fail)
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    assert run("doctor") == status
    error_output = capsys.readouterr().err
    assert message in error_output
    assert error_output.count("\n") == 1
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert run("doctor") == status
    assert ("Traceback" in capsys.readouterr().err) == (status != 130)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("out", "work", "message"),
    [("rows.csv", "run_job", "interrupted; --resume continues"), ("-", "score_rows", "interrupted")],
)
def test_signals_interrupt_and_say_how_to_continue(
    number, out, work, message, model, drawn_faces, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(f"facerts.scoring.{work}", lambda *_, **__: signal.raise_signal(number))
    before = signal.getsignal(signal.SIGTERM)
    try:
        assert run("score", drawn_faces, "--model", model, "--out", out) == 130
    finally:
        signal.signal(signal.SIGTERM, before)
    assert capsys.readouterr().err.splitlines()[-1] == f"error: {message}"


def test_only_a_name_that_is_close_is_proposed():
    assert did_you_mean("provder", ["provider", "quality"]) == ", did you mean 'provider'?"
    assert did_you_mean("nope", ["antelopev2"]) == ""


@pytest.mark.slow
def test_a_traceback_is_shown_on_request(tmp_path):
    command = ("train", tmp_path / "gone.yaml")
    plain, debugged = run_process(*command), run_process("--debug", *command)
    assert plain.returncode == debugged.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debugged.stderr
    assert debugged.stderr.endswith(plain.stderr)


@pytest.mark.slow
def test_a_full_disk_gives_a_message(model, drawn_faces, tmp_path):
    for out, command in {
        "rows.csv": ["score", drawn_faces, "--model", model],
        "rows.parquet": ["score", drawn_faces, "--model", model],
        "embeddings.npz": ["embed", drawn_faces, "--model", model],
        "records": ["data", "pack", drawn_faces],
        "shards": ["data", "pack", drawn_faces, "--shards", "2"],
        "folder": ["data", "unpack", drawn_faces],
        "once": ["data", "dedup", drawn_faces],
        "alike": ["data", "dedup", drawn_faces, "--by", "embedding", "--model", model],
        "model.onnx": ["export", model, "--embedding-only"],
        "shuffled.tar": ["data", "pack", drawn_faces, "--shuffle"],
    }.items():
        with no_larger_files(100):
            process = run_process(*command, "--out", tmp_path / out)
        assert process.returncode == 2, (out, process.stderr)
        assert re.search(r"error: \S+: cannot be written \(File too large\); free up space", process.stderr), out
        assert "Traceback" not in process.stderr
        assert "ignored" not in process.stderr
        leftover = [path for path in tmp_path.rglob("*") if path.name.endswith(".part") and path.is_file()]
        assert not leftover


@pytest.mark.parametrize("under", ["a file", "a read-only disk"])
def test_an_unwritable_path_gives_a_message(under, model, drawn_faces, tmp_path, monkeypatch, capsys):
    home = tmp_path / "file"
    advice = "a file is where a folder should be" if under == "a file" else "choose a location"
    if under == "a file":
        home.write_bytes(b"")
    else:

        def refuse(path, *_, **__):
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        monkeypatch.setattr(Path, "mkdir", refuse)
    for out, command in {
        "rows.csv": ["score", drawn_faces, "--model", model],
        "embeddings.npz": ["embed", drawn_faces, "--model", model],
        "records": ["data", "pack", drawn_faces],
        "folder": ["data", "unpack", drawn_faces],
        "deep/once": ["data", "dedup", drawn_faces],
        "set.tar": ["data", "pack", drawn_faces, "--shuffle"],
    }.items():
        assert run(*command, "--out", home / out) == 2, out
        message = capsys.readouterr().err
        assert re.search(rf"error: {home}/\S+: cannot be written \(.+\); {advice}", message), message


def test_a_broken_pipe_has_its_own_status():
    read, write = os.pipe()
    os.close(read)
    process = subprocess.run(
        [sys.executable, "-m", "facerts", "models", "list"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (process.returncode, process.stderr) == (141, b"")


@pytest.mark.slow
def test_file_names_that_are_not_valid_text_are_shown(tmp_path):
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/face.png", "wb") as file:
        file.write(encode_png(draw_face(0, 0)))
    for more in ((), ("--json",)):
        process = run_process("data", "inspect", os.fsdecode(folder), *more)
        assert process.returncode == 0, process.stderr
        assert "\\udcff" in process.stdout
