"""``facerts evaluate`` and ``facerts compare`` from the command line to the files that they write."""

import json
import shutil

import cv2
import numpy as np
import pytest

from facerts.datasets import open_benchmark
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.evaluation.measure import Evaluation
from facerts.images import encode_jpeg, read
from facerts.io.files import locked
from tests.command import printed_json, refused, run
from tests.foreign import write_description, write_embedder

PEOPLE, TAKEN, FOLDS = 30, 4, 10


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Models, people in LFW's layout and as a folder by identity."""
    folder = tmp_path_factory.mktemp("evaluate")
    write_description(write_embedder(folder / "model.onnx", size=16), name="sixteen")
    write_description(write_embedder(folder / "small.onnx", size=1), name="one")
    write_description(write_embedder(folder / "bright.onnx", quality=True), quality="output:bright")
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
        for number in range(TAKEN):
            shutil.copy(
                folder / "faces" / f"person_{person:04d}" / f"{number:04d}.jpg",
                folder / "lfw" / f"P{person}" / f"P{person}_{number + 1:04d}.jpg",
            )
    (folder / "lfw" / "pairs.txt").write_text("\n".join(lines))
    return folder


def commands_of(home, non_faces):
    """The options of each kind of evaluation, besides model and result folder."""
    return {
        "verification": ["--data", home / "lfw"],
        "reject": ["--data", home / "lfw", "--fmr", "0.01"],
        "identification": ["--data", home / "faces", "--enrolled", "2", "--unknown", "0.4"],
        "ood": ["--in", home / "faces", "--out-of", non_faces],
        "corruptions": ["--data", home / "faces", "--images", "2"],
    }


SHOWN = {
    "verification": ("all pairs", "FNMR at FMR 0.1%"),
    "reject": ("lfw: FNMR at FMR 1%", "all pairs", "pAUC to 20%", "At one false match in 100, "),
    "identification": ("FNIR at FPIR 10%",),
    "ood": ("TNR at TPR 95%", "of 24 non-faces (things)"),
    "corruptions": ("Rank correlation ρ with the cosine", "sepia (held out)", "percentile at 0.6"),
}


@pytest.mark.usefixtures("few_replicates", "few_changes")
def test_all_kinds_share_a_folder_and_print_what_they_write(capsys, home, non_faces, tmp_path):
    result = tmp_path / "result.json"
    for kind, rest in commands_of(home, non_faces).items():
        command = ["evaluate", kind, "--model", home / "bright.onnx", *rest, "--out", tmp_path]
        command += ["--all-pairs"] if kind in ("verification", "reject") else []
        assert printed_json(capsys, *command) == json.loads(result.read_text())["sections"][kind]
        # The second time nothing is embedded: the outputs are in the cache.
        assert run(*command) == 0
        shown = capsys.readouterr().out
        assert all(text in shown for text in SHOWN[kind]), shown
    content = json.loads(result.read_text())
    sections = {
        kind: Evaluation.model_validate(next(iter(found.values()))) for kind, found in content["sections"].items()
    }
    assert list(dict.fromkeys(command[2] for command in content["command"])) == list(SHOWN)
    pairs, images = sections["verification"], PEOPLE * TAKEN
    assert (pairs.measure("accuracy").n, pairs.settings["flip"]) == (240, True)
    every = [pairs.measure(f"{kind} pairs", pairs="all pairs").value for kind in ("genuine", "impostor")]
    assert every == [PEOPLE * TAKEN * (TAKEN - 1) // 2, images * (images - TAKEN) // 2]
    counts = [sections["identification"].measure(name).value for name in ("mated", "non-mated")]
    assert counts == [18 * (TAKEN - 2), 12 * TAKEN]
    assert {one.of["score"] for one in sections["ood"].measures} == {"quality", "norm", "sharpness"}
    assert sections["corruptions"].images == 2
    other = ("--model", home / "small.onnx", "--data", home / "lfw", "--out", tmp_path)
    assert "holds results of bright" in refused(capsys, "evaluate", "verification", *other)


def test_results_are_not_put_among_other_files(capsys, home, non_faces, tmp_path):
    command = ("evaluate", "ood", "--in", home / "faces", "--out-of", non_faces, "--model")
    error = refused(capsys, *command, home / "bright.onnx", "--out", home)
    assert f"{home} has other files than results, such as bright.json" in error
    assert not list(home.glob("*cache*"))
    for place, left in {"interrupted": "cache", "run": "log.jsonl"}.items():
        (tmp_path / place).mkdir()
        (tmp_path / place / left).touch() if "." in left else (tmp_path / place / left).mkdir()
        assert run(*command, home / "bright.onnx", "--out", tmp_path / place) == 0
        said = f"results: {tmp_path / place}; next: facerts report {tmp_path / place} --out report.html"
        assert said in capsys.readouterr().err.replace("\n", "")
    error = refused(capsys, *command, "facerts-quality", "--out", tmp_path / "quality")
    assert "facerts-quality has no embedding; give a recognizer with it: --model facerts-small --quality" in error


def test_options_reach_the_evaluation(capsys, home, non_faces, tmp_path):
    model = ("--model", home / "bright.onnx", "--out", tmp_path)
    settings = ("--set", "evaluate.crops=false", "--set", "flip=false")
    pairs = ("evaluate", "verification", *model, "--data", home / "lfw", *settings)
    printed = printed_json(capsys, *pairs, "--fmr", "0.05", "--fmr", "0.02")["lfw"]
    section = Evaluation.model_validate(printed)
    assert section.settings["flip"] is False
    rates = [one.name for one in section.measures if "FMR" in one.name]
    assert rates == ["FNMR at FMR 5%", "FNMR at FMR 2%"]
    with np.load(tmp_path / "arrays.npz") as arrays:
        assert "verification/lfw/shown_jpeg" not in arrays
    sources = ("--in", home / "faces", "--out-of", non_faces, "--exclude-out-of", "*[0-8].jpg")
    ood = ("evaluate", "ood", *model, *sources, "--reference", home / "lfw", "--set", "evaluate.neighbors=1")
    section = Evaluation.model_validate(printed_json(capsys, *ood)["non-faces"])
    assert "Non-faces: things 2." in section.text
    # Each face is among the references, and no non-face is.
    assert section.measure("AUROC", score="neighbors").value == 1
    people = ("evaluate", "identification", *model, "--data", home / "faces")
    searches = [printed_json(capsys, *people, "--set", f"evaluate.seed={seed}")["faces"]["measures"] for seed in (0, 1)]
    assert searches[0] != searches[1]


def test_what_cannot_be_measured_is_refused_in_one_sentence(capsys, home, tmp_path):
    given = ("--model", home / "model.onnx", "--out", tmp_path / "r")
    pairs, people = (*given, "--data", home / "lfw"), (*given, "--data", home / "faces")
    for command, message in (
        (("verification", *pairs, "--fmr", "0.001"), "lfw: FMR 0.001 needs at least 1,000 impostor pairs"),
        (("verification", *pairs, "--similarity", "mls"), "the embeddings come without a variance"),
        (("reject", *pairs), "lfw: FMR 0.001 needs at least 1,000 impostor pairs"),
        (("verification", *given), "give --data, or --pairs and at most one folder of its images"),
        (("reject", *pairs, "--data", home, "--pairs", home / "lfw" / "pairs.txt"), "at most one folder"),
        (("identification", *people, "--enrolled", "9"), "faces: nobody would be enrolled"),
        (("verification", *pairs, "--quality", "facerts-qualitty"), "did you mean 'facerts-quality'?"),
        (("verification", *pairs, "--score", "energy"), "are only in a training run"),
    ):
        assert message in refused(capsys, "evaluate", *command)
    table = ("--data", home / "lfw", "--out", tmp_path / "r", "--model", home / "t.npz")
    sentence = refused(capsys, "evaluate", "verification", *table, "--quality", "facerts-quality")
    assert "--quality scores images" in sentence
    assert not (tmp_path / "r" / "result.json").exists()


def test_two_evaluations_do_not_write_into_one_folder(capsys, home, tmp_path):
    out, faces = tmp_path / "results", home / "faces"
    model, where = ("--model", home / "model.onnx"), ("--out", out)
    with locked(out / "result.json"):
        for kind, rest in commands_of(home, faces).items():
            sentence = refused(capsys, "evaluate", kind, *model, *rest, *where)
            assert "result.json: process" in sentence
    # What is refused for another reason leaves nothing, not even the folder.
    assert not out.exists()
    refused(capsys, "evaluate", "verification", *model, "--data", tmp_path / "gone", *where)
    assert not out.exists()


def test_notes_are_told_on_standard_error(capsys, home, tmp_path):
    data = tmp_path / "copied"
    shutil.copytree(home / "lfw", data)
    shutil.copy(data / "P1" / "P1_0001.jpg", data / "P2" / "P2_0002.jpg")
    for path in data.rglob("*.jpg"):
        path.write_bytes(encode_jpeg(cv2.resize(read(path), (128, 128))))
    options = ("--model", home / "model.onnx", "--data", data, "--out", tmp_path / "r")
    assert run("evaluate", "verification", *options, "--json") == 0
    captured = capsys.readouterr()
    json.loads(captured.out)
    assert "warning: copied: 1 images occur in more than one fold" in captured.err
    assert "Images are 128 x 128 pixels and were resized to 112 x 112" in " ".join(captured.err.split())


@pytest.mark.slow
def test_results_and_reports_say_nothing_of_where_they_were_made(home, tmp_path, monkeypatch):
    work, elsewhere = tmp_path / "work", tmp_path / "private"
    work.mkdir()
    monkeypatch.chdir(work)
    out, other = elsewhere / "results", elsewhere / "others" / "results"
    data = ("--data", home / "lfw")
    for place in (out, other):
        assert run("evaluate", "verification", "--model", home / "model.onnx", *data, "--out", place) == 0
    assert json.loads((out / "result.json").read_text())["command"] == [
        ["facerts", "evaluate", "verification", "--model", "model.onnx", "--data", "lfw", "--out", "results"]
    ]
    assert run("report", out, other, "--out", work / "report.html") == 0
    assert run("compare", out, other, "--out", work / "compared") == 0
    pages = [work / "report.html", work / "compared" / "comparison.json", work / "compared" / "tables.md"]
    texts = [path.read_text() for path in (other / "result.json", *pages)]
    for text in texts:
        assert str(tmp_path) not in text
        assert str(home) not in text
    # The two models have one name, so folders tell them apart.
    assert "private/results" in texts[1]
    assert "others/results" in texts[1]
    assert "facerts evaluate verification --model model.onnx --data lfw --out results" in texts[1]


def test_a_list_of_pairs_may_be_elsewhere_than_its_images(capsys, home, tmp_path):
    shutil.copy(home / "lfw" / "pairs.txt", tmp_path / "lfw.txt")
    model = ("--model", home / "small.onnx", "--set", "evaluate.crops=false")
    command = ("evaluate", "verification", *model, "--data", home / "lfw")
    beside = printed_json(capsys, *command, "--out", tmp_path / "a")
    assert printed_json(capsys, *command, "--pairs", tmp_path / "lfw.txt", "--out", tmp_path / "b") == beside


def test_lfw_becomes_a_bin_set(home, tmp_path):
    assert run("data", "bin", home / "lfw", "--out", tmp_path / "lfw.bin") == 0
    original, copy = open_benchmark(home / "lfw"), open_benchmark(tmp_path / "lfw.bin")
    assert (copy.same.tolist(), copy.folds.tolist()) == (original.same.tolist(), original.folds.tolist())
    pairs = zip(original.pairs.ravel().tolist(), copy.pairs.ravel().tolist(), strict=True)
    assert all(original.images.read(one) == copy.images.read(other) for one, other in pairs)


@pytest.fixture(scope="module")
def results(home, non_faces, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for name in ("model", "small"):
        model = ("--model", home / f"{name}.onnx", "--out", folder / name)
        assert run("evaluate", "verification", *model, "--data", home / "lfw") == 0
        assert run("evaluate", "ood", *model, "--in", home / "faces", "--out-of", non_faces) == 0
    return folder / "model", folder / "small"


@pytest.mark.slow
def test_compare_writes_numbers_and_a_page(capsys, results, tmp_path):
    lines = [{"kind": "train", "epoch": e, "v_p5": 1.0, "v_p50": 1.5, "v_p95": 2.0} for e in (1, 2)]
    (tmp_path / "log.jsonl").write_text("\n".join(map(json.dumps, lines)))
    out, labeled = tmp_path / "c", (f"B={results[0]}", f"A={results[1]}")
    options = ("--embedding", "A", "--log", f"A={tmp_path}")
    comparison = printed_json(capsys, "compare", *labeled, *options, "--out", out)
    assert json.loads((out / "comparison.json").read_text()) == comparison
    assert "is there already: --overwrite replaces it" in refused(capsys, "compare", *labeled, "--out", out)
    assert (comparison["reference"]["name"], comparison["embedding"]) == ("sixteen", "A")
    (area,) = [one for one in comparison["differences"][0]["measures"] if one["name"] == "AUROC"]
    # One dimension tells people apart worse than sixteen do.
    assert area["value"] < -0.05
    assert (out / "uncertainty.svg").is_file()
    assert "| A | " in (out / "tables.md").read_text(encoding="utf-8")
    assert run("compare", *labeled, "--out", out, "--overwrite") == 0
    assert "Difference from B" in capsys.readouterr().out
    for wrong in (("--embedding", "C"), ("--log", f"C={tmp_path}")):
        assert "A" in refused(capsys, "compare", *labeled, *wrong, "--out", tmp_path / "d")
        assert not (tmp_path / "d").exists()
