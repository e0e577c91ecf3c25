"""``facerts verify``: the exit status says the decision, and so does the text; lists of pairs give rows."""

import csv
import json
import re

import numpy as np
import pytest

from facerts.images import encode_png
from tests.command import run
from tests.foreign import write_description, write_embedder
from tests.matching import blocks, cosine, write_matcher

# Blocks that are unlike those of seed 0, and a mixture that is like them but no copy.
OTHER = next(seed for seed in range(1, 99) if cosine(blocks(0), blocks(seed)) < 0.1)
ALIKE = (0.7 * blocks(0) + 0.3 * blocks(OTHER)).round().astype(np.uint8)


@pytest.fixture
def images(tmp_path):
    """A model and images: a person, an image that is much like it, another person, a poor image, no image."""
    write_matcher(tmp_path / "model.onnx")
    for name, crop in {"a": blocks(0), "same": ALIKE, "other": blocks(OTHER), "poor": blocks(0) // 8}.items():
        (tmp_path / f"{name}.png").write_bytes(encode_png(crop))
    (tmp_path / "broken.png").write_bytes(b"no image")
    return tmp_path


def verify(images, first, second, *options):
    model = images / "model.onnx"
    return run("verify", images / f"{first}.png", images / f"{second}.png", "--model", model, *options)


def verify_list(images, listing, out, *options):
    return run("verify", "--pairs", listing, "--model", images / "model.onnx", "--out", out, *options)


def test_the_decision_is_a_sentence_and_a_status(images, capsys):
    assert verify(images, "a", "same") == 0
    same = capsys.readouterr().out
    assert same.startswith(f"Same person: similarity {cosine(blocks(0), ALIKE):.3f}, ")
    assert "threshold 0.500 at a false match rate of 0.1%." in same
    assert "About 12 in 100 pairs of the same person fall below the threshold" in same
    assert "(95% interval: 11.5 to 13.5%)" in same
    assert "at least -0.500 is needed." in same
    assert verify(images, "a", "other", "--fmr", "0.01") == 1
    assert "Different people: similarity" in capsys.readouterr().out
    assert verify(images, "a", "other", "--json") == 1
    result = json.loads(capsys.readouterr().out)
    assert result["similarity"] == pytest.approx(cosine(blocks(0), blocks(OTHER)), abs=1e-5)
    assert (result["decision"], result["first"]) == ("different", str(images / "a.png"))
    assert (result["fmr"], result["threshold"], result["fnmr"]) == (0.001, 0.5, 0.125)
    assert (result["first_faces"], result["second_faces"], result["error"]) == (1, 1, None)
    assert verify(images, "a", "poor") == 5
    poor = capsys.readouterr().out
    assert poor.startswith("Inconclusive: similarity")
    assert re.search(r"poor\.png: percentile \d+, quality -0\.", poor)
    assert "is below the minimum of -0.500" in poor
    assert verify(images, "a", "poor", "--set", "min_quality=-1") in {0, 1}


def test_what_cannot_be_compared_is_status_2(images, capsys):
    assert verify(images, "a", "broken") == 2
    assert "broken.png: not " in capsys.readouterr().err
    assert verify(images, "gone", "a", "--json") == 2
    shown = capsys.readouterr()
    assert "gone.png: cannot be read" in shown.err
    assert json.loads(shown.out)["decision"] is None
    assert verify(images, "a", "same", "--fmr", "0.5") == 2
    assert "no match threshold for a false match rate of 0.5, only for 0.01, 0.001" in capsys.readouterr().err
    assert verify(images, "a", "same", "--fmr", "0") == 2
    assert "no match threshold for a false match rate of 0," in capsys.readouterr().err


def test_a_threshold_of_ones_own_has_no_error_rates(images, capsys):
    similarity = cosine(blocks(0), ALIKE)
    # Without match thresholds, too.
    write_description(write_embedder(images / "model.onnx"), quality="norm")
    assert verify(images, "a", "same", "--threshold", "0.0001", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["threshold"], result["fmr"], result["fnmr"]) == (0.0001, None, None)
    write_matcher(images / "model.onnx")
    for threshold, status in ((similarity - 0.01, 0), (similarity + 0.01, 1)):
        assert verify(images, "a", "same", "--threshold", str(threshold)) == status
        said = capsys.readouterr().out
        assert f"threshold {threshold:.3f}, whose error rates are not known." in said
        assert "About" not in said
        # Quality still matters.
        assert verify(images, "a", "poor", "--threshold", str(threshold)) == 5
        capsys.readouterr()
    assert verify(images, "a", "same", "--threshold", "30") == 2
    assert "a threshold of 30 is no cosine similarity" in capsys.readouterr().err
    assert verify(images, "a", "same", "--threshold", "0.3", "--fmr", "0.01") == 2
    assert "--fmr and --threshold both set the threshold" in capsys.readouterr().err.replace("\n", " ")


def test_two_images_or_a_list_are_required():
    for arguments in (
        [],
        ["a.png"],
        ["a.png", "b.png", "--out", "rows.csv"],
        ["--pairs", "list.csv"],
        ["a.png", "b.png", "--data", "images"],
        ["a.png", "b.png", "--pairs", "list.csv", "--out", "rows.csv"],
    ):
        assert run("verify", *arguments) == 2


PAIRS = {
    "csv": 'a.png,same.png\na.png,other.png\nonly one\na.png,"broken quote\na.png,broken.png\nsame.png,poor.png\n',
    "tsv": "a.png\tsame.png\na.png\tother.png\nonly one\na.png\t\na.png\tbroken.png\nsame.png\tpoor.png\n",
    "txt": "a.png same.png\na.png other.png\nonly\na.png b.png c.png\na.png broken.png\nsame.png poor.png\n",
}


@pytest.mark.parametrize("kind", PAIRS)
def test_every_row_of_a_list_has_a_result(images, capsys, kind):
    (images / f"list.{kind}").write_text(PAIRS[kind])
    out = images / "rows.csv"
    assert verify_list(images, images / f"list.{kind}", out, "--json") == 1
    shown = capsys.readouterr()
    counts = {"pairs": 6, "same": 1, "different": 1, "inconclusive": 1, "failed": 3}
    assert json.loads(shown.out) == {**counts, "file": str(out)}
    assert f"list.{kind}, line 3: lines 1 to 2 read as PATH PATH; this one " in shown.err
    rows = list(csv.DictReader(out.open()))
    decisions = ["same", "different", "", "", "", "inconclusive"]
    assert [row["decision"] for row in rows] == decisions
    assert [bool(row["error"]) for row in rows] == [decision == "" for decision in decisions]
    assert f"list.{kind}, line 4" in rows[3]["error"]
    assert "broken.png: not " in rows[4]["error"]
    assert rows[0]["first"] == str(images / "a.png")
    assert float(rows[1]["similarity"]) == pytest.approx(cosine(blocks(0), blocks(OTHER)), abs=1e-5)
    assert rows[0]["fnmr_ci95"] == "0.115 0.135"


def test_the_paths_of_a_list_may_be_relative_to_another_folder(images, tmp_path):
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "list.csv").write_text("same,second,first\n1,same.png,a.png\n0,other.png,a.png\n")
    out = tmp_path / "rows.jsonl"
    assert verify_list(images, tmp_path / "lists" / "list.csv", out, "--data", images) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["first"], row["second"], row["decision"]) for row in rows] == [
        (str(images / "a.png"), str(images / "same.png"), "same"),
        (str(images / "a.png"), str(images / "other.png"), "different"),
    ]


LABELED = {
    "third.csv": "a.png,same.png,1\na.png,other.png,different\nother.png,same.png,SAME\n"
    "a.png,poor.png,1\npoor.png,a.png,0\n",
    "named.csv": "first,second,same,first_subject,second_subject\n"
    "a.png,same.png,1,A,A\na.png,other.png,0,A,B\nother.png,same.png,1,A,A\na.png,poor.png,1,A,A\npoor.png,a.png,0,A,B\n",
}


@pytest.mark.parametrize("name", LABELED)
def test_decisions_are_compared_with_labels(images, capsys, name):
    (images / name).write_text(LABELED[name])
    assert verify_list(images, images / name, images / "r.csv", "--json") == 0
    labeled = json.loads(capsys.readouterr().out)["labeled"]
    assert (labeled["pairs"], labeled["inconclusive"], labeled["failed"]) == (5, 2, 0)
    # Right, right, and a pair that the label calls the same person and the model does not.
    for rate, value, pairs in (("accuracy", 2 / 3, 3), ("fmr", 0, 1), ("fnmr", 0.5, 2)):
        assert labeled[rate]["value"] == pytest.approx(value)
        assert labeled[rate]["pairs"] == pairs
        low, high = labeled[rate]["ci95"]
        assert low <= value <= high
        assert low < high
    assert labeled["interval"].startswith("bootstrap over 2 people" if "named" in name else "binomial")
    assert verify_list(images, images / name, images / "r.csv", "--overwrite") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "labeled pairs 5, of which no rate counts 2 inconclusive and 0 not compared" in shown
    assert re.search(r"FNMR 50% \[[^]]*\] of 2 pairs", shown)


def test_a_list_that_is_none_writes_nothing(images, capsys):
    (images / "list.csv").write_bytes(b"first,second\n")
    assert verify_list(images, images / "list.csv", images / "rows.csv") == 2
    assert "the list has no pairs" in capsys.readouterr().err
    assert not (images / "rows.csv").exists()
