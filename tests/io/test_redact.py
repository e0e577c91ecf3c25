import os
import sys

import pytest

from facerts.io.redact import redacted_argument, redacted_command, redacted_path, redacted_paths


@pytest.fixture
def work(tmp_path, monkeypatch):
    """The working folder."""
    folder = tmp_path / "home" / "work"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def test_paths_in_the_working_folder_are_shown_relative_to_it(work):
    assert redacted_path(work / "data" / "lfw") == os.path.join("data", "lfw")
    assert redacted_path(work) == "."
    for path in ("data/lfw", "lfw/", "m.onnx", ".", "data/../lfw", "..data", "train-*.tar"):
        assert redacted_path(path) == path


def test_of_paths_elsewhere_only_the_name_is_shown(work):
    for path in (work.parent / "m.onnx", "../m.onnx", "data/../../m.onnx", "/somewhere/else/m.onnx"):
        assert redacted_path(path) == "m.onnx"
    assert redacted_path("/data/faces/train-*.tar") == "train-*.tar"
    assert redacted_path("/data/lfw/") == "lfw"
    # A folder whose name begins like the working folder's.
    assert redacted_path(f"{work}_other/x") == "x"


def test_paths_with_the_same_name_stay_distinguishable(work):
    assert redacted_paths(["/a/b/r", "/c/b/r", "/c/other", "r"]) == ["a/b/r", "c/b/r", "other", "r"]
    assert redacted_paths(["/x/results", "/x/results"]) == ["results", "results"]
    assert redacted_paths(["/results", "/a/results"]) == ["/results", "a/results"]


@pytest.mark.parametrize(
    ("argument", "shown"),
    [
        ("--out=/home/me/results", "--out=results"),
        ("mine=/home/me/results", "mine=results"),
        ("data.train=/data/faces", "data.train=faces"),
        ("data.train=[/data/a, '/data/b c', d/e]", "data.train=[a, 'b c', d/e]"),
        (
            "teacher={models: [/m/t.onnx, ../u.onnx], cosine: .5}",
            "teacher={models: [t.onnx, u.onnx], cosine: .5}",
        ),
        ("optim.lr=0.05", "optim.lr=0.05"),
        ("--all-pairs", "--all-pairs"),
        ("http://127.0.0.1:8000/faces", "http://127.0.0.1:8000/faces"),
        ("odin:temperature=1000", "odin:temperature=1000"),
        ("LFW / CFP", "LFW / CFP"),
        ("", ""),
    ],
)
def test_paths_in_arguments(work, argument, shown):
    assert redacted_argument(argument) == shown


def test_a_command_begins_with_the_name_of_its_program(work, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/opt/env/bin/facerts", "evaluate", "--model", "/m/a.onnx", str(work / "r")])
    assert redacted_command() == ["facerts", "evaluate", "--model", "a.onnx", "r"]
    monkeypatch.setattr(sys, "argv", ["/opt/env/facerts/__main__.py", "doctor"])
    assert redacted_command() == ["facerts", "doctor"]
