"""``facerts people`` from the first command to the last."""

import csv
import json
from pathlib import Path

from facerts.galleries import Gallery
from tests.command import printed_json, refused, run
from tests.people.photos import open_scorer, write_people


def test_people_are_found_corrected_copied_and_enrolled(capsys, tmp_path, postgres):
    open_scorer(tmp_path)
    photos, out = tmp_path / "photos", tmp_path / "people"
    model = ("--model", tmp_path / "blocks.onnx", "--set", "threads=1")
    write_people(photos, range(4), range(3))
    (photos / "broken.png").write_bytes(b"no image")
    assert run("people", "find", photos, "--out", out, *model, "--json") == 1
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert "broken.png" in shown.err
    assert (found["photos"], found["people"], found["new_photos"], found["could_not_be_read"]) == (
        13,
        4,
        12,
        1,
    )
    assert Path(found["page"]).is_file()
    (photos / "broken.png").unlink()

    listed = printed_json(capsys, "people", "list", out, "--out", tmp_path / "faces.jsonl")
    assert [person["photos"] for person in listed["people_by_number"]] == [3, 3, 3, 3]
    faces = [json.loads(line) for line in (tmp_path / "faces.jsonl").read_text().splitlines()]
    with (out / "people.csv").open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [face["id"] or "" for face in faces]
    ids = {number: [face["id"] for face in faces if face["person"] == number] for number in range(1, 5)}

    steps = [
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
        done = printed_json(capsys, "people", command, out, *arguments)
        assert (done["done"], done["faces_moved"], done["decisions"]) == (command, moved, number)
    assert printed_json(capsys, "people", "undo", out)["undone"] == "move"

    assert run("people", "find", photos, "--out", out, *model, "--add") == 0
    assert "photos gone" in capsys.readouterr().out
    anna = {face["id"] for face in printed_json(capsys, "people", "show", out, "Anna")["faces"]}
    assert ids[4][0] not in anna
    assert {ids[3][0], ids[4][1], ids[4][2]} <= anna
    listed = printed_json(capsys, "people", "list", out)
    assert [each["name"] for each in listed["people_by_number"] if each["hidden"]] == [".stranger"]

    copied = printed_json(capsys, "people", "copy", out, tmp_path / "sorted", "--named-only")
    assert copied["copied"] == len(anna) == len(list((tmp_path / "sorted" / "Anna").iterdir()))
    gallery, address = tmp_path / "people.npz", postgres.address(gallery="of_photos")
    in_file, in_database = (
        printed_json(capsys, "people", "to-gallery", out, "--out", place, "-k", "1") for place in (gallery, address)
    )
    assert in_file["people"] == Gallery(gallery).summary().people
    assert Gallery(in_database["file"]).read().entries == Gallery(gallery).read().entries
    search = ("gallery", "search", gallery, photos / "p0_0.png", *model, "--fpir", "0.5")
    assert printed_json(capsys, *search)["matches"][0]["decision"] == "match"
    for arguments in (("list", out), ("show", out, "Anna")):
        assert run("people", *arguments) == 0
        assert "Anna" in capsys.readouterr().out
    (photos / "p0_0.png").unlink()
    copied = printed_json(capsys, "people", "copy", out, tmp_path / "again", status=1)
    assert copied["copied"] == len(list((tmp_path / "again").rglob("*.png"))) > 0
    assert all("p0_0.png: no such file" in error for error in copied["errors"])
    assert len(copied["errors"]) == 1


def test_what_cannot_be_done_ends_with_status_2(capsys, tmp_path):
    open_scorer(tmp_path)
    write_people(tmp_path / "photos", range(2), range(2))
    model, out = ("--model", tmp_path / "blocks.onnx"), tmp_path / "people"
    find = ("people", "find", tmp_path / "photos", "--out", out, *model)
    assert "give only one" in refused(capsys, *find, "--set", "keep=0.95", "--set", "min_quality=0")
    assert "facerts people find" in refused(capsys, "people", "list", out)
    assert run(*find) == 0
    assert "number" in refused(capsys, "people", "name", out, "1", "7")
