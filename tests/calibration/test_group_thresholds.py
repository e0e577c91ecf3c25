"""Thresholds of groups against numbers computed one by one, from the command to the scorer."""

import itertools
import json
import re

import numpy as np
import pytest

import facerts
from facerts.calibration.group_thresholds import ComparedFaces, group_thresholds
from facerts.calibration.quality_thresholds import quality_thresholds
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_non_faces
from facerts.embedding import load_embedder
from facerts.errors import ModelError
from facerts.evaluation import embed_source
from facerts.metrics.all_pairs import all_pairs
from facerts.onnx.contract import Calibration
from tests.command import run
from tests.foreign import write_description, write_embedder


def test_the_command_writes_thresholds_of_groups_and_what_they_cost(people, model, tmp_path, capsys):
    write_non_faces(tmp_path / "things", images=20)
    source = open_source(people)
    keys = [source.key(row) for row in range(len(source))]
    # Two thirds of the people are in one group, four images in another, and the rest in none.
    table = tmp_path / "groups.csv"
    group = ["many" if row < 80 else "few" if row < 84 else "" for row in range(len(keys))]
    lines = [f"/photos/{key},{name}" for key, name in zip(keys, group, strict=True)]
    table.write_text("\n".join(["image,camera", *lines]))
    command = ["calibrate", "--model", model, "--data", people, "--keep", "0.8", "--groups", table]
    assert run(*command, "--out-of", tmp_path / "things", "--json") == 0
    captured = capsys.readouterr()
    assert "camera is unknown for 36 of 120 images" in captured.err
    calibration = Calibration.model_validate(json.loads(captured.out)["calibration"])
    assert list(calibration.groups) == ["camera"]
    assert list(calibration.groups["camera"]) == ["0.8"]
    few, many = (calibration.groups["camera"]["0.8"][name] for name in ("few", "many"))

    embedder = load_embedder(model)
    outputs = embed_source(embedder, source, flip=False, progress=False)
    quality = np.array([float(str(value)) for value in outputs.quality])  # as in rows
    single = sorted(quality.tolist(), reverse=True)[95]  # the 96th best of 120
    own = sorted(quality[:80].tolist(), reverse=True)[63]  # the 64th best of 80
    assert many.quality == own
    assert (many.faces, many.people, few.faces, few.people) == (80, 10, 4, 1)
    assert many.accepted == np.mean(quality[:80] >= single)
    # Four faces give no threshold, but are shown.
    assert (few.quality, few.own_errors, few.non_faces) == (None, {}, None)
    assert few.accepted == np.mean(quality[80:84] >= single)

    others = embed_source(embedder, open_source(tmp_path / "things"), flip=False, progress=False).quality
    assert (calibration.non_faces.data, calibration.non_faces.images) == ("things", 20)
    assert calibration.non_faces.accepted == {"0.8": np.mean(others >= single)}
    assert many.non_faces == np.mean(others >= own)

    matching = calibration.matching
    similarity = matching.thresholds["0.01"].similarity
    for errors, minimum in ((many.errors["0.01"], single), (many.own_errors["0.01"], own)):
        counts = {(same, match): 0 for same in (False, True) for match in (False, True)}
        for a, b in itertools.combinations(range(80), 2):
            if min(quality[a], quality[b]) >= minimum:
                cosine = float(outputs.embedding[a] @ outputs.embedding[b])
                counts[bool(source.labels[a] == source.labels[b]), cosine >= similarity] += 1
        genuine, impostors = (counts[same, True] + counts[same, False] for same in (True, False))
        assert (errors.fnmr.pairs, errors.fmr.pairs) == (genuine, impostors)
        assert errors.fnmr.rate == pytest.approx(counts[True, False] / genuine, abs=1.1 / genuine)
        assert errors.fmr.rate == pytest.approx(counts[False, True] / impostors, abs=1.1 / impostors)

    # What was written is what was printed, and the scorer finds it.
    scorer = facerts.load(model)
    assert scorer.recognizer.opened.description.calibration == calibration
    assert scorer.quality.threshold(0.8, group=("camera", "many")) == own
    assert scorer.threshold(0.8) == single
    for name in (("camera", "few"), ("camera", "none"), ("age", "many")):
        with pytest.raises(ModelError, match=f"no threshold for {name[0]} {name[1]}; calibrate it with"):
            scorer.quality.threshold(0.8, group=name)

    assert run(*command, "--out-of", tmp_path / "things") == 0
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if line.startswith(" many "))
    rates = [many.errors["0.001"], many.own_errors["0.001"]]
    assert re.split(r" {2,}", row.strip())[3:] == [
        f"{own:.4f}",
        *(f"{errors.fnmr.rate:.4g}" for errors in rates),
        *(f"{errors.fmr.rate:.4g}" for errors in rates),
        f"{many.non_faces:.4f}",
    ]


def test_faces_without_identities_have_group_thresholds_without_errors(people, model, tmp_path, capsys):
    flat = tmp_path / "flat"
    flat.mkdir()
    for number, path in enumerate(sorted(people.glob("*/*"))):
        (flat / f"{number:03}a{number // 2}.jpg").write_bytes(path.read_bytes())
    table, lines = (
        tmp_path / "ages.csv",
        [f"{number:03}a{number // 2}.jpg,{number // 2}" for number in range(120)],
    )
    table.write_text("\n".join(["image,age", *lines]))
    options = ["--groups", table, "--group-edges", "age=20", "--keep", "0.9"]
    assert run("calibrate", "--model", model, "--data", flat, *options) == 0
    shown = capsys.readouterr().out
    assert [line.split()[:2] for line in shown.splitlines() if line.startswith((" below", " 20 "))] == [
        ["below", "20"],
        ["20", "and"],
    ]
    calibration = facerts.load(model).recognizer.opened.description.calibration
    groups = calibration.groups["age"]["0.9"]
    assert [(name, group.faces, group.people, group.errors) for name, group in groups.items()] == [
        ("below 20", 40, None, {}),
        ("20 and above", 80, None, {}),
    ]
    before = model.with_suffix(".json").read_bytes()
    table.write_text("image,age\nb.jpg,3\n")
    assert run("calibrate", "--model", model, "--data", flat, "--groups", table) == 2
    assert run("calibrate", "--model", model, "--data", flat, "--group-edges", "age=3") == 2
    assert model.with_suffix(".json").read_bytes() == before
    error = capsys.readouterr().err
    assert "ages.csv: no row names an image" in error
    assert "--group-edges needs the attributes of --groups" in error


def test_a_model_without_quality_has_no_groups(people, tmp_path):
    model = write_description(write_embedder(tmp_path / "model.onnx"), quality="none")
    (tmp_path / "groups.csv").write_text("image,person\n0.jpg,0\n")
    assert run("calibrate", "--model", model, "--data", people, "--groups", tmp_path / "groups.csv") == 2
    assert run("calibrate", "--model", model, "--data", people, "--out-of", people) == 2


def test_rejected_duplicates_do_not_shift_the_groups():
    """Pairs are numbered by the faces that were compared, groups and qualities by all faces."""
    random = np.random.default_rng(1)
    labels = np.repeat(np.arange(20), 4)
    vectors = random.normal(size=(20, 6))[labels] + 0.6 * random.normal(size=(80, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.delete(np.arange(80), [0, 5, 41])
    quality, group = random.normal(size=80), np.where(np.arange(80) < 40, "a", "b")
    pairs = all_pairs(vectors[rows], labels[rows])
    thresholds = quality_thresholds(quality, [0.8], "0")
    found = group_thresholds(
        quality,
        {"half": group},
        thresholds,
        people=labels,
        compared=ComparedFaces(rows, pairs, {"0.05": 0.5}),
    )["half"]["0.8"]
    minimum = thresholds["0.8"].quality
    missed = [
        float(vectors[x] @ vectors[y]) < 0.5
        for x, y in itertools.combinations(rows, 2)
        if labels[x] == labels[y] and group[x] == "a" and min(quality[x], quality[y]) >= minimum
    ]
    errors = found["a"].errors["0.05"].fnmr
    assert (errors.pairs, errors.rate) == (len(missed), np.mean(missed))
    # Of many pairs only those with the highest similarities are kept: too few for a high rate.
    short = all_pairs(vectors[rows], labels[rows], tail=200)
    compared = ComparedFaces(rows, short, {"0.5": short.threshold(0.5), "0.01": short.threshold(0.01)})
    found = group_thresholds(quality, {"half": group}, thresholds, people=labels, compared=compared)["half"]["0.8"]
    assert list(found["a"].errors) == list(found["a"].own_errors) == ["0.01"]
