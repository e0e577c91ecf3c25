"""How commands end: whatever happens, with one sentence and a status that means what the table says."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import facerts.cli.doctor
from facerts.cli import output
from facerts.cli.ending import DEBUG_VARIABLE
from facerts.datasets.synthetic import draw_face
from facerts.errors import Error
from facerts.images import encode_png
from tests.command import run
from tests.foreign import write_description, write_embedder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = write_embedder(tmp_path / "model.onnx")
    write_description(path)
    return path


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two people, two pictures each."""
    for identity in range(2):
        folder = tmp_path / "faces" / f"person_{identity}"
        folder.mkdir(parents=True)
        for picture in range(2):
            (folder / f"{picture}.png").write_bytes(encode_png(draw_face(identity, picture)))
    return tmp_path / "faces"


def in_a_process(*arguments: str | Path, largest_file: int | None = None) -> subprocess.CompletedProcess[str]:
    """A command; files that it writes can be no larger than given, as on a disk that is full."""

    def limit() -> None:
        if largest_file is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))

    return subprocess.run(
        [sys.executable, "-m", "facerts", *map(str, arguments)],
        cwd=ROOT,
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, DEBUG_VARIABLE: ""},
    )


def test_every_status_is_in_the_table_of_the_documentation() -> None:
    table = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    listed = {name: int(status) for status, name in re.findall(r"^\| (\d+) \| `(\w+)`", table, re.MULTILINE)}
    assert listed == {
        name.removeprefix("EXIT_"): status
        for name, status in vars(output).items()
        if name.startswith("EXIT_")
    }


@pytest.mark.parametrize(
    ("error", "status", "sentence"),
    [
        (RuntimeError("first line\nsecond"), 4, "unforeseen, RuntimeError (first line); this is a defect"),
        (KeyError("name"), 4, "unforeseen, KeyError ('name')"),
        (EOFError(), 4, "unforeseen, EOFError (EOFError)"),
        (RecursionError("too deep"), 4, "unforeseen, RecursionError (too deep)"),
        (MemoryError("Unable to allocate 46 TiB"), 2, "not enough memory (Unable to allocate 46 TiB)"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "error: No space left on device"),
        (PermissionError(errno.EACCES, "Permission denied", b"/x/y"), 2, "/x/y: Permission denied"),
        (Error("a sentence"), 2, "error: a sentence"),
        (KeyboardInterrupt(), 130, "error: interrupted"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_every_error_ends_with_one_line_and_its_own_status(
    error: BaseException,
    status: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(facerts.cli.doctor, "examine", fail)
    monkeypatch.delenv(DEBUG_VARIABLE, raising=False)
    assert run("doctor") == status
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    monkeypatch.setenv(DEBUG_VARIABLE, "1")
    assert run("doctor") == status
    assert ("Traceback" in capsys.readouterr().err) == (status != 130)


@pytest.mark.slow
def test_the_place_of_an_error_is_shown_to_who_asks(tmp_path: Path) -> None:
    command = ("train", tmp_path / "gone.yaml")
    plain, debugged = in_a_process(*command), in_a_process("--debug", *command)
    assert plain.returncode == debugged.returncode == 2
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debugged.stderr
    assert debugged.stderr.endswith(plain.stderr)


@pytest.mark.slow
def test_a_full_disk_is_a_sentence(model: Path, pictures: Path, tmp_path: Path) -> None:
    for out, command in {
        "rows.csv": ["score", pictures, "--model", model],
        "rows.parquet": ["score", pictures, "--model", model],
        "embeddings.npz": ["embed", pictures, "--model", model],
        "records": ["data", "pack", pictures],
        "shards": ["data", "pack", pictures, "--format", "tar"],
        "folder": ["data", "unpack", pictures],
        "once": ["data", "dedup", pictures],
        "mixed.tar": ["data", "shuffle", pictures],
    }.items():
        ended = in_a_process(*command, "--out", tmp_path / out, largest_file=100)
        assert ended.returncode == 2, (out, ended.stderr)
        assert re.search(r"error: \S+: cannot be written \(File too large\); make room", ended.stderr), out
        assert "Traceback" not in ended.stderr
        assert "ignored" not in ended.stderr
        left = [path for path in tmp_path.rglob("*") if path.name.endswith(".part") and path.is_file()]
        assert not left


@pytest.mark.parametrize("under", ["a file", "a read-only disk"])
def test_where_nothing_can_be_written_is_a_sentence(
    under: str,
    model: Path,
    pictures: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = tmp_path / "file"
    if under == "a file":
        home.write_bytes(b"")
    else:

        def refuse(path: Path, *_: object, **__: object) -> None:
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        monkeypatch.setattr(Path, "mkdir", refuse)
    for out, command in {
        "rows.csv": ["score", pictures, "--model", model],
        "embeddings.npz": ["embed", pictures, "--model", model],
        "records": ["data", "pack", pictures],
        "folder": ["data", "unpack", pictures],
        "parts": ["data", "merge", pictures],
        "deep/once": ["data", "dedup", pictures],
        "set.tar": ["data", "shuffle", pictures],
    }.items():
        assert run(*command, "--out", home / out) == 2, out
        told = capsys.readouterr().err
        assert re.search(rf"error: {home}/\S+: cannot be written \(.+\); make room", told), told


def test_nobody_reading_is_no_picture_that_cannot_be_read() -> None:
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "facerts", "models", "list"],
        cwd=ROOT,
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, b"")


@pytest.mark.slow
def test_names_that_are_no_text_can_be_told(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/\xff"
    os.mkdir(folder)
    with open(folder + b"/face.png", "wb") as file:
        file.write(encode_png(draw_face(0, 0)))
    for more in ((), ("--json",)):
        ended = in_a_process("data", "inspect", os.fsdecode(folder), *more)
        assert ended.returncode == 0, ended.stderr
        assert "\\udcff" in ended.stdout
