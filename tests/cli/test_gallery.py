"""``facerts gallery`` from the first command to the last."""

import csv
import json
import re
import shutil

import pytest

from facerts.datasets.synthetic import write_synthetic_faces
from facerts.galleries import Gallery
from tests.command import printed_json, refused, run


@pytest.fixture
def people(tmp_path):
    write_synthetic_faces(tmp_path / "people", identities=3, images=3, seed=5)
    return tmp_path / "people"


def test_a_gallery_is_built_searched_checked_and_changed(capsys, tmp_path, model, people):
    gallery, report = tmp_path / "people.npz", tmp_path / "check.csv"
    first, second, _ = sorted(path.name for path in people.iterdir())
    (people / first / "broken.jpg").write_bytes(b"no image")
    copied = people / second / "copied.jpg"
    shutil.copy(next((people / first).glob("*0*.jpg")), copied)
    built = printed_json(capsys, "gallery", "build", people, "--model", model, "--out", gallery, status=1)
    assert (built["people"], built["images"], built["rejected"]) == (3, 10, {"unreadable": 1})
    assert built["rejected_images"][0]["path"] == str(people / first / "broken.jpg")

    found = tmp_path / "found.csv"
    probe = next((people / first).glob("*1*.jpg"))
    command = ("gallery", "search", gallery, probe, "--model", model, "--fpir", "0.5", "-k", "2")
    searched = printed_json(capsys, *command, "--out", found)
    assert searched["fpir"] == 0.5
    assert len(searched["matches"][0]["candidates"]) == 2
    with found.open(newline="") as file:
        (row,) = csv.DictReader(file)
    candidates = searched["matches"][0]["candidates"]
    assert (row["path"], row["person"], row["decision"]) == (str(probe), candidates[0][0], "match")
    assert row["candidates"] == ";".join(f"{name} {cosine:.4f}" for name, cosine in candidates)

    # The file has the rows, so that a table would say them again; and "unknown" is explained.
    strangers = people.parent / "strangers"
    write_synthetic_faces(strangers, identities=2, images=1, seed=77)
    search = ("gallery", "search", gallery, strangers, "--model", model)
    assert run(*search, "--fpir", "0.01", "--out", tmp_path / "unknown.csv") == 0
    shown = capsys.readouterr()
    assert "most similar" not in shown.out
    said = " ".join(shown.err.split())
    assert "more images of each person find more of those who are" in said
    assert "has 10 images to judge strangers by, too few for an FPIR of 0.01" in said
    assert "is a model, not a gallery" in refused(capsys, "gallery", "search", model, strangers)

    before = gallery.read_bytes()
    checked = printed_json(capsys, "gallery", "check", gallery, "--out", report, status=1)
    twice = [entry for entry in checked["findings"] if entry["reason"] == "same image twice"]
    assert str(copied) in (twice[0]["path"], twice[0]["other_path"])
    assert gallery.read_bytes() == before
    report.write_text(f'"person","path"\n"{second}","{copied}"\n')
    removed = printed_json(capsys, "gallery", "remove", gallery, "--from", report)
    assert (removed["removed"], removed["kept"]) == ([[second, str(copied)]], [])
    assert copied.exists()

    shown = printed_json(capsys, "gallery", "best", gallery, "-k", "2", "--copy", tmp_path / "best")
    best = shown["images"]
    copies = sorted((tmp_path / "best").rglob("*.jpg"))
    assert len(best) == len(copies) == shown["copied"] == 6
    assert {path.parent.name for path in copies} == {path.name for path in people.iterdir()}

    # A person's last image is kept, and named.
    mine = tmp_path / "mine.npz"
    shutil.copy(gallery, mine)
    entries = [entry for entry in Gallery(mine).read().entries if entry[0] == second]
    rows = "".join(f'"{second}","{path}","poor image"\n' for _, path in entries)
    report.write_text(f'"person","path","reason"\n{rows}')
    assert run("gallery", "remove", mine, "--from", report) == 0
    assert "Kept" in capsys.readouterr().out
    assert len([entry for entry in Gallery(mine).read().entries if entry[0] == second]) == 1

    add = ("gallery", "add", gallery, copied, "--person", "new one", "--model", model)
    assert printed_json(capsys, *add)["people"] == 4
    assert run(*add) == 0
    assert re.search(r"rejected +none", capsys.readouterr().out)
    third = sorted(path.name for path in people.iterdir())[2]
    listed = printed_json(capsys, "gallery", "list", gallery)
    assert (listed["people"], listed["images_by_person"]["new one"]) == (4, 1)
    assert listed["images"] == sum(listed["images_by_person"].values())
    assert run("gallery", "list", gallery) == 0
    assert "new one" in capsys.readouterr().out
    shutil.copy(gallery, mine)
    removed = printed_json(capsys, "gallery", "remove", mine, "new one", third)
    assert removed["removed_people"] == sorted(["new one", third])
    sentence = refused(capsys, "gallery", "remove", gallery, "new one", "nobody")
    assert "nobody is not in the gallery; nothing was removed" in sentence
    assert run("gallery", "remove", gallery, "new one") == 0
    assert "new one" in capsys.readouterr().out
    assert run("gallery", "remove", gallery, "--image", best[0]["path"]) == 0
    capsys.readouterr()
    assert "nothing was removed" in refused(capsys, "gallery", "remove", gallery, "--image", best[0]["path"])


def test_nothing_is_written_where_an_option_is_wrong(capsys, tmp_path, model, people):
    gallery = tmp_path / "people.npz"
    options = ("--model", model, "--out", gallery)
    both = ("--set", "min_quality=1", "--set", "keep=none")
    assert "give only one" in refused(capsys, "gallery", "build", people, *options, *both)
    one = next(people.iterdir())
    assert "one subfolder for each, or --person NAME" in refused(capsys, "gallery", "add", gallery, one, *options[:2])
    assert run("gallery", "build", one, *options) == 2
    assert not gallery.exists()
    # The name of the file is looked at before any image.
    wrong = ("gallery", "build", one / "nobody", "--model", model, "--out", tmp_path / "people.csv")
    assert "people.csv: a gallery is written as .npz" in refused(capsys, *wrong)
    assert run("gallery", "build", people, *options) == 0
    assert run("gallery", "check", gallery, "--out", tmp_path / "check.txt") == 2
    assert run("gallery", "remove", gallery) == 2


def test_a_gallery_in_a_database_takes_the_same_commands(capsys, tmp_path, model, people, postgres):
    place, options = postgres.address(gallery="cli", password="s3cr3t"), ("--model", model)
    built = printed_json(capsys, "gallery", "build", people, *options, "--out", place)
    found = printed_json(capsys, "gallery", "search", place, people, *options, "--fpir", "0.5")
    listed = printed_json(capsys, "gallery", "list", place)
    assert (built["people"], built["images"], len(found["matches"]), listed["images"]) == (3, 9, 9, 9)
    assert "s3cr3t" not in json.dumps([built, found, listed])
    gone = f"postgresql://u:s3cr3t@/d?host={tmp_path}"
    none = postgres.address(gallery="none", password="s3cr3t")
    for problem, command in (
        ("there is no gallery of this name", ("list", none)),
        ("there is no gallery of this name", ("add", none, people, *options)),
        ("cannot be reached", ("build", people, *options, "--out", gone)),
    ):
        error = refused(capsys, "gallery", *command)
        assert problem in error
        assert "s3cr3t" not in error
