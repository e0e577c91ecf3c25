"""Pipes in the place of files: refused at once, by every reader and command, where they could wait for ever."""

import os
import signal
from pathlib import Path

import pytest

from facerts.errors import Error
from facerts.evaluation.score_table import read_scores
from facerts.images import read
from facerts.io.files import read_file, sha256_file
from facerts.scoring.pair_list import read_pair_list
from tests.command import run
from tests.foreign import write_embedder
from tests.hostile.readers import READERS

# A name that each reader takes for one of its files.
NAMES = {
    "source": ("a.tar", "a.lst", "a.bin", "a.txt", "a.jpg"),
    "table": ("a.npz",),
    "gallery": ("a.npz",),
    "report": ("a.csv", "a.jsonl"),
    "pairs": ("a.csv", "a.txt"),
    "adience": ("fold_0_data.txt",),
    "model": ("a.onnx", "a.zip"),
    "recipe": ("a.yaml",),
    "checkpoint": ("a.pt",),
    "exported": ("a.npz",),
    "result": ("result.json",),
    "log": ("log.jsonl",),
    "video": ("a.mp4",),
}
COMMANDS = (
    ("models", "pull", "edgeface-xs", "--from", "PIPE.onnx"),
    ("gallery", "list", "PIPE.npz"),
    ("gallery", "search", "PIPE.npz", "a.jpg"),
    ("verify", "--pairs", "PIPE.csv", "--out", "rows.csv"),
    ("people", "list", "PIPE"),
    ("video", "PIPE.mp4", "--out", "out"),
    ("evaluate", "verification", "--model", "PIPE.onnx", "--data", "PIPE.bin", "--out", "out"),
    ("train", "PIPE.yaml", "--out", "out"),
    ("export", "PIPE.pt", "--out", "out.onnx"),
    ("report", "PIPE.json", "--out", "out.html"),
)


@pytest.fixture(autouse=True)
def _no_waiting():
    """Whoever waits for a writer fails."""

    def fail(number, frame):
        raise AssertionError("it waits for somebody to write to the pipe")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(("reader", "name"), [(reader, name) for reader in READERS for name in NAMES[reader]])
def test_a_reader_refuses_a_pipe(tmp_path, reader, name):
    os.mkfifo(tmp_path / name)
    if name == "a.jpg":
        READERS[reader](tmp_path / name)  # the error is that of the image
        return
    with pytest.raises(Error):
        READERS[reader](tmp_path / name)


@pytest.mark.parametrize("read_one", [read, read_scores, read_pair_list])
def test_further_readers_say_what_it_is(tmp_path, read_one):
    os.mkfifo(tmp_path / "a.csv")
    (tmp_path / "b.csv").symlink_to("/dev/zero")
    for path in (tmp_path / "a.csv", tmp_path / "b.csv"):
        with pytest.raises(Error, match=rf"{path.name}: .*a pipe or a device, not a file"):
            read_one(path)


def test_files_and_links_to_them_are_read_and_folders_are_not(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "link") == b"content"
    assert sha256_file(tmp_path / "file") == sha256_file(tmp_path / "link")
    with pytest.raises(IsADirectoryError, match=r"Is a directory"):
        read_file(tmp_path)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_refuses_a_pipe(tmp_path, monkeypatch, capsys, command):
    if command[0] == "train":
        pytest.importorskip("tensorboard")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FACERTS_CACHE", str(tmp_path / "cache"))
    for word in command:
        if word.startswith("PIPE") and not Path(word).exists():
            os.mkfifo(word)
    write_embedder(tmp_path / "model.onnx")
    Path("a.jpg").touch()
    status = run(*command)
    assert status == (1 if command[0] == "video" else 2)
    assert "PIPE" in capsys.readouterr().err
