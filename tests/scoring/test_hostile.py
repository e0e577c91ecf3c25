"""A folder with every kind of file found on users' disks: each is accounted for, and none ends the run."""

import io
import json
import os
import tarfile

import pytest

from facerts.datasets.synthetic import draw_face
from facerts.images import encode_jpeg, encode_png
from tests.command import run
from tests.contents import files_in
from tests.hostile.images import png, png_header

FACE = encode_jpeg(draw_face(0, 0))


# Name, contents, and a part of the error in the row; None for an image that is scored.
FILES = [
    ("cut.jpg", FACE[: len(FACE) // 2], "truncated"),
    ("zero.jpg", b"", "empty"),
    ("text.jpg", b"not an image", "not a JPEG"),
    ("a_png.jpg", encode_png(draw_face(1, 0)), None),
    ("huge.png", png(png_header(10_000, 10_000)), "64,000,000; scale the image down or cut it into parts"),
    ("pickle.webp", b"\x80\x04\x95", "not a JPEG"),
    ("with\nnewline.jpg", FACE, None),
    ('qu"ote, comma.jpg', FACE, None),
    ("-leading.jpg", FACE, None),
    ("\x1b[31mred.jpg", b"", "empty"),
    ("ünïcödé 顔.jpg", FACE, None),
    ("Mumme\u0301 \u1100\u1161 #1 [a]%20 😀.jpg", FACE, None),  # letters composed of several
    ("x" * 200 + ".jpg", FACE, None),
    ("CAPITALS.JPG", FACE, None),
]


def scored(model, out, *paths):
    """The error of each image, by name."""
    assert run("score", *paths, "--model", model, "--out", out) in {0, 1}
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").split("\n") if line]
    errors = {os.path.basename(row["path"]): row["error"] for row in rows}
    assert len(errors) == len(rows)
    return errors


def test_every_file_is_accounted_for(model, tmp_path, capsys):
    folder = tmp_path / "in"
    (folder / "deeper" / "directory.jpg").mkdir(parents=True)
    for name, data, _ in FILES:
        (folder / "deeper" / name).write_bytes(data)
    (folder / "deeper" / "directory.jpg" / "inside.jpg").write_bytes(FACE)
    (folder / "deeper" / "notes.txt").write_text("not an image by its name")
    (folder / "renamed.dat").write_bytes(FACE)
    os.symlink("loop.jpg", folder / "loop.jpg")
    os.symlink("..", folder / "deeper" / "up")
    os.symlink("gone.jpg", folder / "dangling.jpg")
    os.mkfifo(folder / "pipe.jpg")
    with open(os.fsencode(folder) + b"/\xff\xfe.jpg", "wb") as file:
        file.write(FACE)
    errors = scored(model, tmp_path / "rows.jsonl", folder)
    expected = {name: problem for name, _, problem in FILES} | {
        "inside.jpg": None,
        "loop.jpg": "symbolic links",
        "dangling.jpg": "No such file",
        "pipe.jpg": "not a file",
        "\\udcff\\udcfe.jpg": None,
    }
    assert set(errors) == set(expected)
    for name, problem in expected.items():
        assert (problem or "") in (errors[name] or ""), name
        assert (errors[name] is None) == (problem is None), (name, errors[name])
    shown = capsys.readouterr()
    assert "other files" in shown.out
    assert "\x1b[31mred" not in shown.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read every file")
def test_missing_permissions_give_a_row_or_an_error(model, tmp_path, capsys):
    folder = tmp_path / "in"
    (folder / "closed").mkdir(parents=True)
    for name in ("open.jpg", "shut.jpg"):
        (folder / name).write_bytes(FACE)
    (folder / "shut.jpg").chmod(0)
    assert "Permission denied" in (scored(model, tmp_path / "rows.jsonl", folder)["shut.jpg"] or "")
    (folder / "closed").chmod(0)
    assert run("score", folder, "--model", model, "--out", tmp_path / "again.jsonl") == 2
    assert "cannot be opened (Permission denied)" in capsys.readouterr().err


def test_a_bad_line_of_a_list_is_a_row(model, tmp_path):
    (tmp_path / "there.jpg").write_bytes(FACE)
    lines = ["\ufeffthere.jpg".encode(), b"a\0b.jpg", "Größe.jpg".encode("latin1"), b"x" * 300 + b".jpg"]
    (tmp_path / "list.txt").write_bytes(b"\n".join(lines))
    out = tmp_path / "rows.jsonl"
    assert run("score", tmp_path / "list.txt", "--model", model, "--out", out) == 1
    rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
    names = ["there.jpg", r"a\x00b.jpg", r"Gr\udcf6\udcdfe.jpg", "x" * 300 + ".jpg"]
    assert [os.path.basename(row["path"]) for row in rows] == names
    errors = [row["error"] or "" for row in rows]
    for error, expected in zip(errors, ["", "null byte", "No such file", "File name too long"], strict=True):
        assert expected in error
        assert bool(expected) == bool(error)


def test_a_tar_cannot_write_outside_the_folder_for_copies(model, tmp_path):
    (tmp_path / "face.jpg").write_bytes(FACE)
    with tarfile.open(tmp_path / "t.tar", "w") as archive:
        for name in ("../../up.jpg", "/root.jpg", "C:\\drive.jpg", "a/../b.jpg"):
            archive.add(tmp_path / "face.jpg", name)
            archive.getmembers()[-1].name = name
    copies = tmp_path / "copies"
    before = set(tmp_path.parent.rglob("*.jpg"))
    command = ("score", tmp_path / "t.tar", "--model", model, "--out", tmp_path / "r.csv")
    folders = ("--copy-accepted", copies / "accepted", "--annotate", copies / "annotated")
    assert run(*command, "--min-quality", "-9", *folders) == 0
    new = set(tmp_path.parent.rglob("*.jpg")) - before
    assert len(new) == 8
    assert all(copies in path.parents for path in new)


def tar_of(path, names):
    """A tar file of faces with these names, each of other contents."""
    with tarfile.open(path, "w") as archive:
        for number, name in enumerate(names):
            data = encode_jpeg(draw_face(number, 0))
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


@pytest.mark.parametrize(
    "names",
    [
        ["x" * 300 + ".jpg", "ω" * 150 + ".jpg", "/".join(["d" * 200] * 25) + "/deep.jpg", "last.jpg"],
        ["a.jpg", "a.jpg/b.jpg", "a.jpg/c/d.jpg", "last.jpg"],
        ["a.jpg/b.jpg", "a.jpg", "last.jpg"],
    ],
    ids=["long", "folder after file", "file after folder"],
)
def test_no_name_in_a_tar_ends_the_run(model, tmp_path, names):
    images = tar_of(tmp_path / "t.tar", names)
    accepted, rejected, crops, annotated, again = (tmp_path / name for name in "arcnx")
    command = ("score", images, "--model", model, "--min-quality")
    folders = ("--copy-accepted", accepted, "--save-crops", crops, "--annotate", annotated)
    assert run(*command, "-9", *folders) == 0
    assert run(*command, "9e9", "--copy-rejected", rejected) == 0
    assert run("data", "unpack", images, "--out", again) == 0
    originals = sorted(encode_jpeg(draw_face(number, 0)) for number in range(len(names)))
    for folder in (accepted, rejected, again):
        assert sorted(path.read_bytes() for path in folder.rglob("*.jpg") if path.is_file()) == originals
    for folder in (crops, annotated):
        assert len([path for path in folder.rglob("*.*") if path.is_file()]) == len(names)
    before = files_in(accepted)
    assert run(*command, "-9", "--copy-accepted", accepted) == 0
    assert files_in(accepted) == before


def test_copies_are_not_written_through_links(model, tmp_path):
    images = tar_of(tmp_path / "t.tar", ["inside/1.jpg", "2.jpg"])
    outside, copies = tmp_path / "outside", tmp_path / "copies"
    outside.mkdir()
    copies.mkdir()
    (copies / "inside").symlink_to(outside)
    (copies / "2.jpg").symlink_to(outside / "2.jpg")
    assert run("score", images, "--model", model, "--min-quality", "-9", "--copy-accepted", copies) == 0
    assert files_in(outside) == []
    assert files_in(copies) == ["2 (2).jpg", "2.jpg", "inside", "inside (2)", "inside (2)/1.jpg"]
