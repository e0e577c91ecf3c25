"""What ``facerts score`` prints without a file to write to, and what it says to whoever gives it something else."""

import csv
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from facerts.cli.output import print_rows, stdout
from facerts.datasets.synthetic import draw_face
from facerts.images import encode_png
from tests.command import printed_json, refused, run


@pytest.fixture
def crops(tmp_path):
    """Three crops and a broken file."""
    folder = tmp_path / "crops"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.png").write_bytes(encode_png(draw_face(number, 0)))
    (folder / "broken.jpg").write_bytes(b"%PDF-1.7")
    return folder


def table_of(out):
    """The filled cells of the header of a table and of its rows, which end with an empty line."""
    header, rows = re.split(r"\n ─+ *\n", out.rstrip(" "))
    lines = [header.strip(), *rows.split("\n  ")[0].splitlines()]
    return [re.split(r" {2,}", line.strip()) for line in lines]


def test_an_image_alone_is_one_line_of_a_table(model, crops, capsys):
    assert run("score", crops / "0.png", "--model", model) == 0
    captured = capsys.readouterr()
    (header, row) = table_of(captured.out)
    assert header == ["image", "face", "quality"]
    assert row[:2] == [str(crops / "0.png"), "0"]
    assert -1 <= float(row[2]) <= 1
    assert "images" not in captured.out
    assert captured.err == ""


def test_decisions_and_errors_have_columns_and_the_status(model, crops, capsys, monkeypatch):
    # Long paths would be wrapped.
    monkeypatch.chdir(crops.parent)
    command = ("score", crops.name, "--model", model, "--min-quality", "9", "--copy-rejected", "rejected")
    assert run(*command) == 1
    assert sorted(file.name for file in Path("rejected").iterdir()) == ["0.png", "1.png", "2.png"]
    captured = capsys.readouterr()
    header, *rows = table_of(captured.out)
    assert header == ["image", "face", "quality", "accepted", "note"]
    assert [row[-2:] for row in rows[:3]] == [["no", "below the threshold"]] * 3
    assert rows[3][1:] == ["PDF is not read; convert it to JPEG or PNG"]
    assert "failed          1" in captured.out
    # The table has the error already.
    assert captured.err == ""


def test_a_table_is_limited_and_says_so(model, crops, capsys, monkeypatch):
    monkeypatch.chdir(crops.parent)
    for number in range(3, 51):
        shutil.copy(crops / "0.png", crops / f"{number}.png")
    assert run("score", crops.name, "--model", model) == 1
    captured = capsys.readouterr()
    assert captured.out.count(".png") == 50
    assert "images          52" in captured.out
    assert "the table will have 50 rows, for 52 images; --out FILE writes all" in captured.err
    assert "2 more rows are not shown; --out FILE writes them all" in captured.err
    assert "broken.jpg: PDF is not read" in captured.err
    result = printed_json(capsys, "score", crops, "--model", model, status=1)
    assert [row["error"] is None for row in result["rows"]] == [True] * 51 + [False]
    assert (result["images"], result["faces"], result["failed"]) == (52, 51, 1)


def test_standard_output_gets_what_a_file_gets(model, crops, tmp_path, capsys):
    for name, options in (("rows.csv", ()), ("rows.jsonl", ("--json",))):
        assert run("score", crops, "--model", model, "--out", tmp_path / name) == 1
        capsys.readouterr()
        assert run("score", crops, "--model", model, "-o", "-", *options) == 1
        captured = capsys.readouterr()
        assert captured.out == (tmp_path / name).read_text()
        assert re.search(r"images +4\b", captured.err)
        assert "broken.jpg: PDF is not read" in captured.err
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "rows.csv").read_text())))) == 4
    zero = ("good", "usable", "poor", "not_a_face", "smaller_faces_left_out", "other_files", "without_a_face")
    counts = {"images": 4, "faces": 3, "failed": 1, **dict.fromkeys(zero, 0)}
    command = ("score", crops, "--model", model, "--out", tmp_path / "rows.csv", "--overwrite")
    assert printed_json(capsys, *command, status=1) == {**counts, "file": str(tmp_path / "rows.csv")}
    assert run("embed", crops, "--model", model, "--out", tmp_path / "e.npz") == 1


def test_standard_output_may_be_closed_early(model, crops):
    process = subprocess.Popen(
        [sys.executable, "-m", "facerts", "score", crops, "--model", model, "--out", "-"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.close()
    assert process.wait(60) == 141


TRIED = {
    "https://example.org/a.jpg": "https://example.org/a.jpg is an address; download it first",
    "-": "images are not read from standard input; give files, folders or a list",
    "nope": "nope: no such file or folder",
    "nope.jpg": "nope.jpg: no such file or folder",
    "*.tiff": "*.tiff: no such file or folder, nothing matches",
    "notes.txt": "notes.txt: a list has the path of an image on each line, and no line of this one names",
    "empty": "empty: no images found (.avif, .bmp, .gif,",
    "notes": "notes: no images found (.avif, .bmp, .gif, .heic, .heif, .jpeg, .jpg, .png, .tif, .tiff, .webp), only 1",
}
# What gives rows with errors instead: images that are broken or of another format.
ROWS_TRIED = {
    "a.pdf": "PDF is not read; convert it to JPEG or PNG",
    "a.HEIC": "not a JPEG, PNG, WebP, BMP, GIF, TIFF, HEIC or AVIF image",
    "table.csv": "not a JPEG, PNG, WebP, BMP, GIF, TIFF, HEIC or AVIF image",
    "phone": "not a JPEG, PNG, WebP, BMP, GIF, TIFF, HEIC or AVIF image",
}


def test_what_a_new_user_may_try_is_answered(model, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "phone").mkdir()
    (tmp_path / "notes").mkdir()
    for name in ("a.HEIC", "table.csv", "notes.txt", "phone/a.heic", "phone/notes", "notes/a"):
        (tmp_path / name).write_bytes(b"some text\n")
    (tmp_path / "a.pdf").write_bytes(b"%PDF-1.7")
    for given, message in TRIED.items():
        assert message in refused(capsys, "score", given, "--model", model)
    for given, message in ROWS_TRIED.items():
        assert run("score", given, "--model", model) == 1
        assert message in " ".join(capsys.readouterr().out.split())
    for options in (("--resume",), ("--engine", "ray"), ("--resume", "--out", "-")):
        assert "require --out FILE" in refused(capsys, "score", "empty", "--model", model, *options)


@pytest.mark.parametrize(
    "command",
    [
        ("score", "nope.jpg", "--out", "out"),
        ("score", "there.jpg", "nope", "--annotate", "out"),
        ("embed", "nope.jpg", "--out", "out"),
        ("video", "nope.mp4", "--out", "out"),
        ("people", "find", "nope.jpg", "--out", "out"),
        ("gallery", "search", "there.npz", "nope/", "--out", "out"),
        ("gallery", "add", "out", "nope[1].png", "--person", "Anna"),
    ],
    ids=" ".join,
)
def test_a_path_that_is_not_there_is_an_error_before_anything_is_written(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("there.jpg", "there.npz"):
        Path(name).write_bytes(b"")
    assert re.fullmatch(r"error: nope\S*: no such file or folder", refused(capsys, *command))
    assert sorted(os.listdir()) == ["there.jpg", "there.npz"]


def test_on_a_narrow_terminal_percentiles_must_do(capsys, monkeypatch):
    rows = [{"percentile": 9.9, "quality": -0.5, "reasons": ("too_small",)}, {"reasons": ()}]
    columns = ["percentile", "quality", "reasons", "none"]
    for width, header, cells in (
        (80, ["percentile", "quality", "reasons"], ["9", "-0.500", "too small"]),
        (79, ["percentile", "reasons"], ["9", "too small"]),
    ):
        monkeypatch.setattr(stdout, "width", width)
        print_rows(rows, columns)
        assert table_of(capsys.readouterr().out)[:2] == [header, cells]


def test_a_finished_file_is_neither_replaced_nor_scored_again(model, crops, tmp_path, capsys):
    out = tmp_path / "rows.csv"
    command = ("score", crops, "--model", model, "--out", out)
    assert run(*command) == 1
    before = out.read_bytes()
    assert "is there already: --overwrite replaces it, --resume continues it" in refused(capsys, *command)
    out.write_bytes(before + b"mark\n")
    assert run(*command, "--resume") == 0
    assert "is finished" in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before + b"mark\n"
    assert run(*command, "--overwrite") == 1
    assert out.read_bytes() == before
