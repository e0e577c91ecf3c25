"""``facerts people`` from the first command to the last."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from facerts.galleries import Gallery
from tests.command import run
from tests.people.photos import open_scorer, write_people
from tests.postgres_server import Server


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_people_are_found_corrected_copied_and_enrolled(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, postgres: Server
) -> None:
    open_scorer(tmp_path)
    photos, out = tmp_path / "photos", tmp_path / "people"
    model = ("--model", tmp_path / "blocks.onnx", "--threads", "1")
    write_people(photos, range(4), range(3))
    (photos / "broken.png").write_bytes(b"no image")
    assert run("people", "find", photos, "--out", out, *model, "--json") == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert "broken.png" in shown.err
    assert (found["photos"], found["people"], found["scored"], found["could_not_be_read"]) == (13, 4, 12, 1)
    assert Path(found["page"]).is_file()
    (photos / "broken.png").unlink()

    assert run("people", "list", out, "--out", tmp_path / "faces.jsonl", "--json") == 0
    listed = printed(capsys)["people_by_number"]
    assert [person["photos"] for person in listed] == [3, 3, 3, 3]
    faces = [json.loads(line) for line in (tmp_path / "faces.jsonl").read_text().splitlines()]
    with (out / "people.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [face["id"] or "" for face in faces]
    ids = {number: [face["id"] for face in faces if face["person"] == number] for number in range(1, 5)}

    steps: list[tuple[tuple[str, ...], int]] = [
        (("merge", "1", "2"), 3),
        (("move", ids[1][0], ids[1][1], "--to", "new"), 2),
        (("move", ids[3][0], "--to", "4"), 1),
        (("name", "4", "Anna"), 0),
        (("name", "1", ".stranger"), 0),
        (("move", ids[4][0], ids[4][1], "--to", "nobody"), 2),
        (("move", ids[4][1], "--to", "Anna"), 1),
        (("move", ids[4][2], "--to", "nobody"), 1),
    ]
    for number, ((command, *arguments), moved) in enumerate(steps, start=1):
        assert run("people", command, out, *arguments, "--json") == 0
        done = printed(capsys)
        assert (done["done"], done["faces_moved"], done["decisions"]) == (command, moved, number)
    assert run("people", "undo", out, "--json") == 0
    assert printed(capsys)["undone"] == "move"

    assert run("people", "find", photos, "--out", out, *model, "--add") == 0
    assert "vanished" in capsys.readouterr().out
    assert run("people", "show", out, "Anna", "--json") == 0
    anna = {face["id"] for face in printed(capsys)["faces"]}
    assert ids[4][0] not in anna
    assert {ids[3][0], ids[4][1], ids[4][2]} <= anna
    assert run("people", "list", out, "--json") == 0
    assert [each["name"] for each in printed(capsys)["people_by_number"] if each["hidden"]] == [".stranger"]

    assert run("people", "copy", out, tmp_path / "sorted", "--named-only", "--json") == 0
    assert printed(capsys)["copied"] == len(anna) == len(list((tmp_path / "sorted" / "Anna").iterdir()))
    gallery = tmp_path / "people.npz"
    assert run("people", "to-gallery", out, "--out", gallery, "-k", "1", "--json") == 0
    assert printed(capsys)["people"] == Gallery(gallery).summary().people
    address = postgres.address(gallery="of_photos")
    assert run("people", "to-gallery", out, "--out", address, "-k", "1", "--json") == 0
    assert Gallery(printed(capsys)["file"]).read().entries == Gallery(gallery).read().entries
    assert run("gallery", "search", gallery, photos / "p0_0.png", *model, "--fpir", "0.5", "--json") == 0
    assert printed(capsys)["matches"][0]["decision"] == "match"
    for arguments in (("list", out), ("show", out, "Anna")):
        assert run("people", *arguments) == 0
        assert "Anna" in capsys.readouterr().out
    (photos / "p0_0.png").unlink()
    assert run("people", "copy", out, tmp_path / "again", "--json") == 1
    copied = printed(capsys)
    assert copied["copied"] == len(list((tmp_path / "again").rglob("*.png"))) > 0
    assert all("p0_0.png: no such file" in error for error in copied["errors"])
    assert len(copied["errors"]) == 1


def test_what_cannot_be_done_ends_with_status_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    open_scorer(tmp_path)
    write_people(tmp_path / "photos", range(2), range(2))
    model = ("--model", tmp_path / "blocks.onnx")
    keep = ("--keep", "0.95", "--min-quality", "0")
    assert run("people", "find", tmp_path / "photos", "--out", tmp_path / "people", *model, *keep) == 2
    assert "give only one" in capsys.readouterr().err
    assert run("people", "list", tmp_path / "people") == 2
    assert "facerts people find" in capsys.readouterr().err
    assert run("people", "find", tmp_path / "photos", "--out", tmp_path / "people", *model) == 0
    assert run("people", "name", tmp_path / "people", "1", "7") == 2
    assert "number" in capsys.readouterr().err


def test_a_page_needs_jinja_and_nothing_else_does(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    open_scorer(tmp_path)
    write_people(tmp_path / "photos", range(2), range(2))
    model = ("--model", tmp_path / "blocks.onnx")
    assert run("people", "find", tmp_path / "photos", "--out", tmp_path / "people", *model, "--json") == 0
    shown = capsys.readouterr()
    assert "no page was written" in shown.err
    assert json.loads(shown.out)["page"] is None
