"""``facerts evaluate`` and ``facerts compare`` from the command line to the files that they write."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from facerts.benchmarks import open_benchmark
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.evaluation import embed_source
from facerts.images import encode_jpeg, read
from facerts.io.files import locked
from tests.cli.test_cli import run
from tests.foreign import write_description, write_embedder

PEOPLE, TAKEN, FOLDS = 30, 4, 10


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, people in LFW's layout and as a folder by identity."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_description(write_embedder(folder / "model.onnx", size=16), name="sixteen")
    write_description(write_embedder(folder / "small.onnx", size=1), name="one")
    bright = write_embedder(folder / "bright.onnx", quality=True)
    write_description(bright, quality="output:bright")
    write_synthetic_faces(folder / "faces", identities=PEOPLE, images=TAKEN, seed=11)
    lines = [f"{FOLDS}\t12"]
    for fold in range(FOLDS):
        people = range(fold, PEOPLE, FOLDS)
        pairs = [(person, a, b) for person in people for a in range(1, 5) for b in range(a + 1, 5)]
        lines += [f"P{person}\t{a}\t{b}" for person, a, b in pairs[:12]]
        strangers = [(a, n, b) for a in people for b in people if a < b for n in range(1, 5)]
        lines += [f"P{a}\t{n}\tP{b}\t{n}" for a, n, b in strangers[:12]]
    for person in range(PEOPLE):
        (folder / "lfw" / f"P{person}").mkdir(parents=True)
        for picture in range(TAKEN):
            shutil.copy(
                folder / "faces" / f"person_{person:04d}" / f"{picture:04d}.jpg",
                folder / "lfw" / f"P{person}" / f"P{person}_{picture + 1:04d}.jpg",
            )
    (folder / "lfw" / "pairs.txt").write_text("\n".join(lines))
    return folder


def told(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Any:
    """What a command that goes well prints as JSON."""
    capsys.readouterr()
    code = run(*arguments, "--json")
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return json.loads(captured.out)


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """The sentence with which a command ends."""
    capsys.readouterr()
    code = run(*arguments)
    error = capsys.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    return " ".join(error.split())


@pytest.mark.slow
def test_verification_with_all_pairs(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    command = ("evaluate", "verification", "--model", home / "model.onnx", "--data", home / "lfw")
    sections = told(capsys, *command, "--all-pairs", "--out", tmp_path)
    written = json.loads((tmp_path / "result.json").read_text())
    assert sections == written["verification"]
    assert written["model"]["name"] == "sixteen"
    section = sections["lfw"]
    assert (section["pairs"], section["subjects"], section["flip"]) == (240, PEOPLE, True)
    assert section["interval"] == section["all_pairs"]["interval"] == "bootstrap over subjects"
    images = PEOPLE * TAKEN
    assert section["all_pairs"]["genuine"] == PEOPLE * TAKEN * (TAKEN - 1) // 2
    assert section["all_pairs"]["impostors"] == images * (images - TAKEN) // 2
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert "verification/lfw/shown_jpeg" in arrays
    assert run(*command, "--all-pairs", "--out", tmp_path, "--no-crops", "--no-flip") == 0
    shown = capsys.readouterr().out
    assert "all pairs" in shown
    assert "FNMR at FMR 0.1 %" in shown
    assert json.loads((tmp_path / "result.json").read_text())["verification"]["lfw"]["flip"] is False
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert "verification/lfw/shown_jpeg" not in arrays


def test_two_evaluations_do_not_write_into_one_folder(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    out, faces = tmp_path / "results", home / "faces"
    model, where = ("--model", home / "model.onnx"), ("--out", out)
    pairs = (*model, "--data", home / "lfw", *where)
    with locked(out / "result.json"):
        for command in (
            ("verification", *pairs),
            ("reject", *pairs),
            ("identification", *model, "--data", faces, *where),
            ("ood", *model, "--in", faces, "--out-of", home / "lfw", *where),
            ("corruptions", *model, "--data", faces, *where),
        ):
            assert "result.json: process" in refused(capsys, "evaluate", *command)
    # What is refused for another reason leaves nothing, not even the folder.
    assert not out.exists()
    refused(capsys, "evaluate", "verification", *model, "--data", tmp_path / "gone", *where)
    assert not out.exists()


def test_rates_may_be_asked_for_and_must_be_within_the_pairs(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    command = (
        "evaluate",
        "verification",
        "--model",
        home / "model.onnx",
        "--data",
        home / "lfw",
        "--out",
        tmp_path,
    )
    section = told(capsys, *command, "--far", "0.05", "--far", "0.02")["lfw"]
    assert list(section["tar_at_far"]) == ["0.05", "0.02"]
    assert "lfw: FAR 0.001 needs at least 1,000 impostor pairs" in refused(capsys, *command, "--far", "0.001")
    assert "0 is not a valid FAR" in refused(capsys, *command, "--far", "0")
    sentence = refused(capsys, *command, "--all-pairs", "--far", "1e-6")
    assert "all pairs of lfw: FAR 1e-06 needs at least 1,000,000 impostor pairs" in sentence


def test_notes_are_told_on_standard_error(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    data = tmp_path / "copied"
    shutil.copytree(home / "lfw", data)
    shutil.copy(data / "P1" / "P1_0001.jpg", data / "P2" / "P2_0002.jpg")
    command = (
        "evaluate",
        "verification",
        "--model",
        home / "model.onnx",
        "--data",
        data,
        "--out",
        tmp_path / "r",
    )
    assert run(*command, "--json") == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert "warning: copied: 1 images occur in more than one fold" in captured.err


def test_reject(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    command = ("evaluate", "reject", "--data", home / "lfw", "--fmr", "0.01", "--out", tmp_path)
    curves = told(capsys, *command, "--model", home / "model.onnx")["lfw"]
    assert {curve["fmr"] for curve in curves} == {0.01}
    # The norm is this model's quality; it stands once.
    assert [curve["by"] for curve in curves] == ["quality", "quality", "sharpness", "sharpness"]
    assert run(*command, "--model", home / "model.onnx", "--all-pairs") == 0
    assert "lfw, all pairs, a fixed threshold" in capsys.readouterr().out


def test_an_fmr_beyond_the_pairs_or_at_an_end_is_refused(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    command = (
        "evaluate",
        "reject",
        "--model",
        home / "model.onnx",
        "--data",
        home / "lfw",
        "--out",
        tmp_path,
    )
    assert "lfw: FMR 0.001 needs at least 1,000 impostor pairs" in refused(capsys, *command)
    for end in ("0", "1"):
        assert f"{end} is not a valid FMR" in refused(capsys, *command, "--fmr", end)


def test_identification_in_a_gallery_drawn_from_a_folder(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    command = ("evaluate", "identification", "--model", home / "model.onnx", "--data", home / "faces")
    section = told(capsys, *command, "--enrolled", "2", "--unknown", "0.4", "--out", tmp_path)["faces"]
    assert section["images"] == PEOPLE * TAKEN
    assert [search["pooling"] for search in section["searches"]] == ["mean", "quality", "norm"]
    search = section["searches"][0]
    assert (search["gallery_people"], search["gallery_templates"]) == (18, 18)
    assert (search["mated"], search["non_mated"]) == (18 * (TAKEN - 2), 12 * TAKEN)
    low, high = search["rank"]["1"]["ci95"]
    assert low <= search["rank"]["1"]["value"] <= high
    assert section["searches"][0]["rank"]["10"]["value"] >= search["rank"]["5"]["value"] > 10 / 18 / 2
    other = told(capsys, *command, "--enrolled", "2", "--unknown", "0.4", "--seed", "1", "--out", tmp_path)
    assert other["faces"]["searches"] != section["searches"]
    assert run(*command, "--out", tmp_path) == 0
    shown = capsys.readouterr().out
    assert "FNIR at FPIR" in shown
    assert "enrolled" in shown
    sentence = refused(capsys, *command, "--enrolled", "9", "--out", tmp_path)
    assert "faces: nobody would be enrolled" in sentence


def test_ood_by_every_score_that_there_is(
    capsys: pytest.CaptureFixture[str], home: Path, drawn_things: Path, tmp_path: Path
) -> None:
    command = (
        "evaluate",
        "ood",
        "--model",
        home / "bright.onnx",
        "--in",
        home / "faces",
        "--out-of",
        drawn_things,
    )
    section = told(capsys, *command, "--reference", home / "lfw", "--out", tmp_path)
    assert (section["in"], section["out"]) == ({"faces": PEOPLE * TAKEN}, {"things": 24})
    assert list(section["by"]) == ["quality", "norm", "sharpness", "neighbors"]
    # The references are the faces by other names.
    assert section["by"]["neighbors"]["auroc"] > 0.7
    nearest = told(capsys, *command, "--reference", home / "lfw", "--neighbors", 1, "--out", tmp_path)
    # Each face is among the references, and no thing is.
    assert nearest["by"]["neighbors"]["auroc"] == 1
    assert run(*command, "--exclude-out-of", "*[0-8].jpg", "--out", tmp_path) == 0
    assert "120 faces against 2 non-faces" in capsys.readouterr().out


def test_corruptions(capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path) -> None:
    command = (
        "evaluate",
        "corruptions",
        "--model",
        home / "bright.onnx",
        "--data",
        home / "faces",
        "--images",
        "6",
    )
    section = told(capsys, *command, "--out", tmp_path)["faces"]
    assert section["images"] == 6
    assert list(section["kinds"]["blur"]["by"]) == ["quality", "norm", "sharpness"]
    assert run(*command, "--out", tmp_path) == 0
    assert "Median cosine to the clean image" in capsys.readouterr().out
    assert "--embeddings" in refused(capsys, *command, "--embeddings", home / "t.npz", "--out", tmp_path)


@pytest.mark.slow
def test_commands_share_a_folder_and_models_do_not(
    capsys: pytest.CaptureFixture[str], home: Path, drawn_things: Path, tmp_path: Path
) -> None:
    model = ("--model", home / "model.onnx", "--out", tmp_path)
    assert run("evaluate", "verification", *model, "--data", home / "lfw") == 0
    assert run("evaluate", "reject", *model, "--data", home / "lfw", "--fmr", "0.01") == 0
    assert run("evaluate", "identification", *model, "--data", home / "faces") == 0
    assert run("evaluate", "ood", *model, "--in", home / "faces", "--out-of", drawn_things) == 0
    assert run("evaluate", "corruptions", *model, "--data", home / "faces", "--images", "2") == 0
    content = json.loads((tmp_path / "result.json").read_text())
    assert {"verification", "reject", "calibration", "identification", "ood", "corruptions"} <= content.keys()
    assert [command[2] for command in content["command"]] == [
        *("verification", "reject", "identification", "ood", "corruptions"),
    ]
    other = ("--model", home / "small.onnx", "--out", tmp_path)
    assert "holds results of sixteen" in refused(
        capsys, "evaluate", "verification", *other, "--data", home / "lfw"
    )


@pytest.mark.slow
def test_results_and_reports_say_nothing_of_where_they_were_made(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "private"
    work.mkdir()
    monkeypatch.chdir(work)
    out, other = elsewhere / "results", elsewhere / "others" / "results"
    data = ("--data", home / "lfw")
    for place in (out, other):
        assert run("evaluate", "verification", "--model", home / "model.onnx", *data, "--out", place) == 0
    content = json.loads((out / "result.json").read_text())
    assert content["command"] == [
        ["facerts", "evaluate", "verification", "--model", "model.onnx", "--data", "lfw", "--out", "results"]
    ]
    # As results were written before.
    command = [
        "/opt/bin/facerts",
        "evaluate",
        "verification",
        f"--model={home / 'model.onnx'}",
        "--out",
        str(out),
    ]
    (out / "result.json").write_text(json.dumps(content | {"command": [command]}))
    assert run("report", out, other, "--out", work / "report.html") == 0
    assert run("compare", out, other, "--out", work / "compared") == 0
    told = [(other / "result.json").read_text()]
    told += [
        (work / name).read_text()
        for name in ("report.html", "compared/comparison.json", "compared/tables.md")
    ]
    for text in told:
        assert str(tmp_path) not in text
        assert str(home) not in text
    # The two models have one name, so folders tell them apart.
    assert "private/results" in told[1]
    assert "others/results" in told[1]
    assert "facerts evaluate verification --model=model.onnx --out results" in told[1]


@pytest.mark.slow
def test_crops_of_another_size_are_measured_and_warned_of_whatever_is_measured(
    capsys: pytest.CaptureFixture[str], home: Path, drawn_things: Path, tmp_path: Path
) -> None:
    faces = tmp_path / "larger"
    for path in (home / "lfw").rglob("*.jpg"):
        place = faces / path.relative_to(home / "lfw")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encode_jpeg(cv2.resize(read(path), (128, 128))))
    shutil.copy(home / "lfw" / "pairs.txt", faces)
    model = ("--model", home / "model.onnx", "--out", tmp_path / "results")
    commands = {kind: list(rest) for kind, rest in judging(home, drawn_things).items()}
    commands["corruptions"] = ["--data", home / "faces", "--images", "2"]
    for kind, rest in commands.items():
        for wanted in (False, True):
            place = {home / "lfw": faces, home / "faces": faces} if wanted else {}
            assert run("evaluate", kind, *model, *[place.get(one, one) for one in rest]) == 0
            warned = "Images are 128 x 128 pixels and were resized to 112 x 112" in " ".join(
                capsys.readouterr().err.split()
            )
            assert warned is wanted, kind
    assert run("report", tmp_path / "results", "--out", tmp_path / "report.html") == 0
    assert (tmp_path / "report.html").read_text().count("Images are 128 x 128 pixels") >= 4


def judging(home: Path, things: Path) -> dict[str, list[str | Path]]:
    """The commands that take a model or embeddings."""
    return {
        "verification": ["--data", home / "lfw"],
        "reject": ["--data", home / "lfw", "--fmr", "0.01"],
        "identification": ["--data", home / "faces"],
        "ood": ["--in", home / "faces", "--out-of", things],
    }


@pytest.mark.parametrize("command", ["verification", "reject", "identification", "ood"])
def test_either_a_model_or_embeddings_must_be_given(
    capsys: pytest.CaptureFixture[str], home: Path, drawn_things: Path, tmp_path: Path, command: str
) -> None:
    rest = [*judging(home, drawn_things)[command], "--out", tmp_path / "r"]
    both = ["--model", home / "model.onnx", "--embeddings", home / "t.npz"]
    for given in ([], both):
        sentence = refused(capsys, "evaluate", command, *given, *rest)
        assert sentence == "error: give either --model or --embeddings"
    assert not (tmp_path / "r").exists()


def test_embeddings_computed_elsewhere_give_the_models_numbers(
    capsys: pytest.CaptureFixture[str], home: Path, tmp_path: Path
) -> None:
    images = open_benchmark(home / "lfw").images
    outputs = embed_source(load_embedder(home / "model.onnx"), images, flip=False, progress=False)
    names = np.array([f"/somewhere/{images.key(row)}" for row in range(len(images))])
    np.savez(
        tmp_path / "table.npz",
        names=names,
        embeddings=outputs.embedding,
        quality=outputs.quality,
        norm=outputs.norm,
    )
    command = ("evaluate", "verification", "--data", home / "lfw", "--all-pairs")
    model = told(capsys, *command, "--model", home / "model.onnx", "--no-flip", "--out", tmp_path / "model")[
        "lfw"
    ]
    table = told(capsys, *command, "--embeddings", tmp_path / "table.npz", "--out", tmp_path / "table")["lfw"]
    assert (model["flip"], table["flip"]) == (False, None)
    for key in ("auroc", "eer"):
        assert table[key] == pytest.approx(model[key], abs=1e-6)
    assert table["accuracy"]["value"] == model["accuracy"]["value"]
    for section, other in ((table, model), (table["all_pairs"], model["all_pairs"])):
        for far, point in section["tar_at_far"].items():
            assert point["value"] == pytest.approx(other["tar_at_far"][far]["value"], abs=1e-6)


@pytest.fixture(scope="module")
def results(home: Path, drawn_things: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("results")
    for name in ("model", "small"):
        model = ("--model", home / f"{name}.onnx", "--out", folder / name)
        assert run("evaluate", "verification", *model, "--data", home / "lfw") == 0
        assert run("evaluate", "ood", *model, "--in", home / "faces", "--out-of", drawn_things) == 0
    return folder / "model", folder / "small"


@pytest.mark.slow
def test_compare_writes_numbers_and_a_page(
    capsys: pytest.CaptureFixture[str], results: tuple[Path, Path], tmp_path: Path
) -> None:
    comparison = told(capsys, "compare", *results, "--out", tmp_path / "c", "--title", "Sixteen & one")
    assert json.loads((tmp_path / "c" / "comparison.json").read_text()) == comparison
    page = (tmp_path / "c" / "report.html").read_text()
    assert "Sixteen &amp; one" in page
    assert comparison["reference"]["name"] == "sixteen"
    (row,) = comparison["verification"]["lfw"]
    assert row["model"]["name"] == "one"
    # One dimension tells people apart worse than sixteen do.
    assert row["auroc"]["value"] < -0.05
    assert row["auroc"]["p_value"] < 0.1
    assert row["auroc"]["unit"] == "subjects"
    assert run("compare", *results, "--out", tmp_path / "d") == 0
    shown = capsys.readouterr().out
    assert "Difference from sixteen" in shown
    assert "FNMR at FMR" in shown


@pytest.mark.slow
def test_compare_takes_labels_an_embedding_and_logs(
    capsys: pytest.CaptureFixture[str], results: tuple[Path, Path], tmp_path: Path
) -> None:
    line = {"kind": "train", "epoch": 1.0, "v_p5": 1.0, "v_p50": 1.5, "v_p95": 2.0}
    (tmp_path / "log.jsonl").write_text(json.dumps(line))
    out = tmp_path / "c"
    labeled = (f"B={results[0]}", f"A={results[1]}")
    comparison = told(capsys, "compare", *labeled, "--embedding", "A", "--log", f"A={tmp_path}", "--out", out)
    assert comparison["embedding"] == "A"
    assert [method["label"] for method in comparison["methods"]] == ["B", "A"]
    assert (out / "uncertainty.svg").is_file()
    assert "| A | " in (out / "tables.md").read_text(encoding="utf-8")
    for wrong in (("--embedding", "C"), ("--log", f"C={tmp_path}")):
        assert "A" in refused(capsys, "compare", *labeled, *wrong, "--out", tmp_path / "d")
        assert not (tmp_path / "d").exists()


def test_a_comparison_of_results_with_nothing_in_common_is_refused(
    capsys: pytest.CaptureFixture[str], home: Path, results: tuple[Path, Path], tmp_path: Path
) -> None:
    model = ("--model", home / "small.onnx", "--out", tmp_path / "r")
    assert run("evaluate", "identification", *model, "--data", home / "faces") == 0
    sentence = refused(capsys, "compare", results[0], tmp_path / "r", "--out", tmp_path / "c")
    assert "has nothing in common with" in sentence
    assert not (tmp_path / "c").exists()
    assert "at least two result folders" in refused(capsys, "compare", results[0], "--out", tmp_path / "c")
