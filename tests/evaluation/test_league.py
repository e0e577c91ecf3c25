"""The quality league from end to end, against what its parts give one by one."""

import json
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.datasets.changed import degradation, degraded_at_random
from facerts.embedding import OnnxQuality, load_embedder, read_description
from facerts.embedding.embed import embed_source, score_source
from facerts.embedding.recognizer_scores import LayerNorms
from facerts.evaluation.baselines import sharpness
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.wording import percent
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.separation import separation, tnr_interval
from tests.command import run

FMR, REPLICATES = 0.01, 20
QUICK = ("--set", "evaluate.cost=false")
NAME, POOR, BOUND = "faces", "faces, half degraded", "oracle (best possible)"


def league(models, data, out, *more):
    return run(
        *["evaluate", "fiqa", "--model", models / "one.onnx", "--model", f"second={models / 'two.onnx'}"],
        *["--quality", f"bright={models / 'one.onnx'}", "--quality", f"Alone={models / 'alone.onnx'}"],
        *["--describe", f"Alone={models / 'elsewhere.json'}", "--data", data, "--out", out],
        *["--set", "threads=1", "--set", f"evaluate.replicates={REPLICATES}", *more],
    )


@pytest.fixture(scope="module")
def folder(models, scores, drawn_faces, non_faces, tmp_path_factory):
    out = tmp_path_factory.mktemp("league")
    more = ["--quality", scores, "--out-of", non_faces, "--degraded", "--fmr", "0.01"]
    assert league(models, drawn_faces, out, *more) == 0
    return out


def section_of(folder, name=NAME, kind="fiqa"):
    return load_result(folder)[0].of_kind(kind)[name]


@pytest.fixture(scope="module")
def section(folder):
    return section_of(folder)


def areas(section, recognizer, name="to 30%"):
    """By quality."""
    return {
        one.of["quality"].removesuffix(" (its own)"): one
        for one in section.measures
        if one.name == name and one.of.get("recognizer") == recognizer
    }


def means(section, name="mean area"):
    return {
        one.of["quality"].removesuffix(" (its own)"): one
        for one in section.measures
        if one.name == name and "quality" in one.of
    }


@pytest.fixture(scope="module")
def expected(models, drawn_faces):
    """Of the second recognizer, from its parts."""
    source = open_source(drawn_faces)
    outputs = embed_source(load_embedder(models / "two.onnx"), source, flip=False)
    alone = OnnxQuality(models / "alone.onnx", description=read_description(models / "elsewhere.json"))
    computed = score_source(source, {"Alone": alone, "sharpness": sharpness})
    return error_versus_reject(
        compare_all(outputs.embedding, source.labels),
        {**computed, "norm": outputs.norm},
        [FMR],
        replicates=REPLICATES,
    )[FMR]


def test_areas_are_those_of_each_recognizer(section, folder, expected):
    _, arrays = load_result(folder)
    for end, name in ((0.2, "to 20%"), (0.3, "to 30%")):
        found = areas(section, "second", name)
        for label, title in (*((one, one) for one in ("Alone", "sharpness", "norm")), ("oracle", BOUND)):
            area = expected.by[label].area[end]
            assert found[title].value == pytest.approx(area.value)
            assert found[title].ci95 == pytest.approx(area.interval())
            curve = arrays[f"fiqa/{NAME}/second/{label}/fnmr"]
            np.testing.assert_allclose(curve, expected.by[label].fnmr, atol=1e-6)
    missed, threshold, accepted = (
        section.measure(name, recognizer="second").value
        for name in ("FNMR at FMR 1%", "threshold", "impostor pairs accepted")
    )
    assert missed == pytest.approx(expected.fnmr.value)
    assert (threshold, accepted) == (pytest.approx(expected.threshold), expected.accepted)
    assert "224 genuine and 1,792 impostor pairs (all pairs)" in section.text


def test_means_are_over_the_recognizers_and_differences_from_the_first_quality(section):
    mean, one, two = means(section), areas(section, "one"), areas(section, "second")
    labels = {"bright", "Alone", "noise", "flat", "norm", "sharpness", BOUND}
    assert set(mean) - {"random"} == set(one) == set(two) == labels
    for label in labels:
        assert mean[label].value == pytest.approx((one[label].value + two[label].value) / 2)
        assert section.measure("on second", quality=mean[label].of["quality"]).value == two[label].value
    # Each recognizer's own norm, and for "one" the same brightness as a model and as a table would give.
    assert one["norm"].value != two["norm"].value
    difference = means(section, "minus bright")
    assert "bright" not in difference
    for label in labels - {"bright"}:
        found = difference[label]
        assert found.value == pytest.approx(mean[label].value - mean["bright"].value)
        clear = found.ci95[0] > 0 or found.ci95[1] < 0
        assert found.mark == ("clear" if clear and label != BOUND else "")
    shown = [label for label in mean if label not in (BOUND, "random")]
    assert shown == sorted(shown, key=lambda label: mean[label].value)


def test_what_the_areas_say_in_words(section):
    begin, *rest = section.findings
    bright = means(section)["bright"].value
    assert begin == (
        "At FMR 1%, on average over 2 recognizers, rejecting up to 30% of the genuine pairs by bright leaves "
        f"{percent(bright, 1)} of the misses that random rejection would leave."
    )
    difference = means(section, "minus bright")
    better, worse = ("leaves fewer", "leave fewer"), ("leaves more", "leave more")
    for label in ("Alone", "noise", "flat", "norm", "sharpness"):
        (sentence,) = [one for one in rest if label in one]
        low, high = difference[label].ci95
        assert any(words in sentence for words in better) == (high < 0)
        assert any(words in sentence for words in worse) == (low > 0)


def test_degraded_images_use_the_thresholds_of_the_original_ones(folder, section):
    degraded = section_of(folder, POOR)
    assert f"on the impostor pairs of {NAME}." in degraded.text
    changed = 0
    for recognizer in ("one", "second"):
        (threshold, missed), (original, before) = (
            [one.measure(name, recognizer=recognizer).value for name in ("threshold", "FNMR at FMR 1%")]
            for one in (degraded, section)
        )
        assert threshold == original
        changed += missed != before
    assert changed
    assert not means(degraded, "AUROC, non-faces")


def test_non_faces_are_separated_by_every_computed_quality(section, models, drawn_faces, non_faces):
    found, tnr = means(section, "AUROC, non-faces"), means(section, "TNR at TPR 95%")
    # A table has no row of them.
    assert set(found) == set(tnr) == {"bright", "Alone", "sharpness", "norm"}
    assert set(means(section, "ms per image")) == {"bright", "Alone", "sharpness"}
    sources = [open_source(path) for path in (drawn_faces, non_faces)]
    faces, things = (score_source(source, {"sharpness": sharpness})["sharpness"] for source in sources)
    numbers = separation(faces, things)
    assert found["sharpness"].value == pytest.approx(numbers.auroc)
    assert tnr["sharpness"].value == pytest.approx(numbers.tnr_at_tpr[0.95])
    assert tnr["sharpness"].ci95 == pytest.approx(tnr_interval(faces, things, 0.95))
    assert "Non-faces: things 24." in section.text
    recognizers = [load_embedder(models / file) for file in ("one.onnx", "two.onnx")]
    norms = sorted(
        separation(*(embed_source(one, source, flip=False).norm for source in sources)).auroc for one in recognizers
    )
    assert (found["norm"].value, found["norm"].range) == (None, pytest.approx(tuple(norms)))


def test_pages_and_figures_are_written(folder):
    page, tables = (folder / "report.html").read_text(), (folder / "tables.md").read_text()
    for text in (page, tables):
        assert "Alone" in text
        assert "norm (its own)" in text
    assert "uses_faces.svg" in tables
    for name in ("league_faces.svg", "league_faces_half_degraded.svg", "uses_faces.svg"):
        assert (folder / name).read_text().startswith("<svg")


def test_a_second_run_needs_no_forward_pass_and_gives_the_same(folder, models, drawn_faces, tmp_path, monkeypatch):
    monkeypatch.setattr("facerts.embedding.onnx_embedder.OnnxEmbedder.__call__", None)
    more = ["--fmr", "0.01", *QUICK, "--set", f"output_cache={folder / 'cache'}"]
    assert league(models, drawn_faces, tmp_path, *more) == 0
    again, before = (areas(section_of(one), "second") for one in (tmp_path, folder))
    assert again["Alone"].value == before["Alone"].value


def test_a_table_of_embeddings_is_a_recognizer_with_qualities(drawn_faces, models, tmp_path):
    source = open_source(drawn_faces)
    outputs = embed_source(load_embedder(models / "one.onnx"), source, flip=False)
    names = np.array([source.key(row) for row in range(len(source))])
    quality = np.arange(len(source), dtype=np.float32)
    np.savez(tmp_path / "mine.npz", embeddings=outputs.embedding, names=names, norm=outputs.norm, order=quality)
    out = tmp_path / "out"
    arguments = ["--model", tmp_path / "mine.npz", "--data", drawn_faces, "--out", out]
    assert run("evaluate", "fiqa", *arguments, "--set", "evaluate.replicates=5") == 0
    section = section_of(out)
    # A single recognizer has an area, and no mean.
    assert set(means(section, "area")) == {"sharpness", "order", "norm", BOUND, "random"}
    assert set(areas(section, "mine")) == {"sharpness", "order", "norm", BOUND}
    assert not means(section)
    assert section.find("Kendall's τ") is None


def test_listed_pairs_are_compared_where_people_are_unknown(models, drawn_faces, tmp_path):
    source = open_source(drawn_faces)
    lines = [
        f"{source.location(row)} {source.location(other)} {int(row // 8 == other // 8)}"
        for row in range(60)
        for other in (row + 1, (row + 9) % 64)
    ]
    (tmp_path / "pairs.txt").write_text("\n".join(lines))
    out = tmp_path / "out"
    more = ["--fmr", "0.1", *QUICK]
    assert league(models, tmp_path / "pairs.txt", out, *more) == 0
    section = section_of(out, "pairs")
    assert "impostor pairs (the listed pairs)" in section.text
    assert section.interval == "bootstrap over pairs"


REFUSED = {
    "unknown people": (["--data", "{things}"], "its people are unknown"),
    "rate": (["--fmr", "1e-6"], "needs at least 1,000,000 impostor pairs"),
    "against": (["--against", "Alon"], "did you mean 'Alone'"),
    "reserved": (["--quality", "norm={models}/one.onnx"], "reserved label"),
    "twice": (["--quality", "Alone={models}/one.onnx"], "two qualities are called 'Alone'"),
    "nobody described": (["--describe", "Alon={models}/elsewhere.json"], "no quality has this label"),
    "unlabeled description": (
        ["--describe", "{models}/elsewhere.json"],
        "name the quality that it describes",
    ),
    "recognizers": (["--model", "second={models}/one.onnx"], "two recognizers are called 'second'"),
    "faces for froq": (["--recognizer-score", "froq"], "name some, apart from those that are judged"),
    "sets": (["--data", "{faces}"], "two sources have the same name, 'faces'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_measured_is_refused_before_anything_is_embedded(
    case, models, drawn_faces, non_faces, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("facerts.embedding.onnx_embedder.OnnxEmbedder.__call__", None)
    arguments, message = REFUSED[case]
    given = [text.format(models=models, faces=drawn_faces, things=non_faces) for text in arguments]
    assert league(models, drawn_faces, tmp_path / "out", *given) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_table_with_some_of_the_images_is_refused(models, drawn_faces, tmp_path, capsys):
    (tmp_path / "few.csv").write_text(f"image,score\n{open_source(drawn_faces).key(0)},1\n")
    assert league(models, drawn_faces, tmp_path / "out", "--quality", tmp_path / "few.csv") == 2
    assert "63 of 64 images of faces have no row" in " ".join(capsys.readouterr().err.split())


def test_a_score_of_chosen_layers_belongs_to_the_faces_that_chose_them(
    models, drawn_faces, non_faces, tmp_path, monkeypatch, capsys
):
    def judge(faces, data=drawn_faces):
        more = ["--recognizer-score", "all", "--calibrate-scores", faces, *QUICK, "--fmr", "0.01"]
        return league(models, data, tmp_path / "out", *more)

    assert judge(non_faces) == 0
    section = section_of(tmp_path / "out")
    assert {"mirror", "pruning", "dropout", "froq"} <= set(means(section))
    source = open_source(drawn_faces)
    score = LayerNorms(load_embedder(models / "two.onnx", threads=1), open_source(non_faces))
    outputs = embed_source(load_embedder(models / "two.onnx"), source, flip=False, also={"froq": score})
    expected = error_versus_reject(
        compare_all(outputs.embedding, source.labels), outputs.extras, [FMR], replicates=REPLICATES
    )[FMR]
    assert areas(section, "second")["froq"].value == pytest.approx(expected.by["froq"].area[0.3].value)
    # Kept scores need no forward pass; other faces make another quality, for which there is another folder.
    monkeypatch.setattr("facerts.embedding.recognizer_scores.pseudo_quality", None)
    assert judge(non_faces) == 0
    assert judge(drawn_faces) == 2
    for path in (tmp_path / "out").glob("*.*"):
        path.unlink()
    capsys.readouterr()
    assert judge(drawn_faces) != 0
    assert "choosing layers of one: 0/64" in capsys.readouterr().err


def test_leagues_are_compared(folder, models, drawn_faces, tmp_path):
    more = ["--fmr", "0.01", *QUICK, "--set", f"output_cache={folder / 'cache'}"]
    more += ["--quality", f"again={models / 'two.onnx'}"]
    assert league(models, drawn_faces, tmp_path / "other", *more) == 0
    assert run("compare", f"A={folder}", f"B={tmp_path / 'other'}", "--out", tmp_path / "compared") == 0
    compared = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    (found,) = [one for one in compared["sections"] if one["title"] == f"Quality league: {NAME}"]
    rows = {
        (one["of"]["method"], one["of"]["score"]): one["value"]
        for one in found["measures"]
        if one["name"] == "mean area"
    }
    assert rows["A", "Alone"] == rows["B", "Alone"]
    assert ("B", "again") in rows
    assert ("A", "again") not in rows
    assert "cannot be compared" not in found["text"]


def test_an_unfit_lineup_does_not_share_a_folder(folder, drawn_faces, models):
    arguments = ["--model", models / "one.onnx", "--data", drawn_faces, "--out", folder, *QUICK]
    before = (folder / "result.json").read_bytes()
    assert run("evaluate", "fiqa", *arguments) == 2
    assert (folder / "result.json").read_bytes() == before


def test_groups_are_treated_at_one_threshold(folder, models, drawn_faces, non_faces, tmp_path):
    source = open_source(drawn_faces)
    keys = [source.key(row) for row in range(len(source))]
    (tmp_path / "groups.csv").write_text(
        "image,camera\n" + "".join(f"{key},{'old' if row % 2 else 'new'}\n" for row, key in enumerate(keys))
    )
    more = ["--fmr", "0.1", *QUICK, "--set", f"output_cache={folder / 'cache'}", "--groups", tmp_path / "groups.csv"]
    out = tmp_path / "out"
    assert league(models, drawn_faces, out, *more, "--set", "keep=0.75", "--keep-on", str(non_faces)) == 0
    groups = section_of(out, f"{NAME}, camera", "groups")
    columns = {one.name for one in groups.measures}
    assert {f"accepted by {name}" for name in ("sharpness", "Alone", "norm of one", "norm of second")} <= columns
    things = score_source(open_source(non_faces), {"sharpness": sharpness})["sharpness"]
    faces = score_source(source, {"sharpness": sharpness})["sharpness"]
    threshold = np.sort(things)[24 - 18]  # 75% of 24
    found = groups.measure("accepted by sharpness", camera="old")
    assert found.threshold == pytest.approx(threshold)
    assert found.value == pytest.approx(np.mean(faces[1::2] >= threshold))
    by_second = [one for one in groups.measures if one.table.startswith("Pairs inside each group, by second")]
    in_new = {one.name: one for one in by_second if one.of == {"camera": "new"}}
    threshold = section_of(out).measure("threshold", recognizer="second").value
    assert in_new["FNMR"].threshold == pytest.approx(threshold)
    # Eight people with four images in each group.
    assert in_new["genuine pairs"].value == 8 * 6
    assert in_new["impostor pairs"].value == 32 * 31 // 2 - 8 * 6
    page = (out / "report.html").read_text()
    assert "faces, camera" in page


def test_half_of_the_images_are_degraded_each_in_its_own_way(drawn_faces):
    source = open_source(drawn_faces)
    changed, again = degraded_at_random(source, 1, 0.5), degraded_at_random(source, 1, 0.5)
    severity = np.array([degradation(row, 1, 0.5)[1] for row in range(len(source))])
    for row in (40, 3, 17):
        assert np.array_equal(changed.crop(row), again.crop(row))
        assert np.array_equal(changed.crop(row), source.crop(row)) == (severity[row] == 0)
    assert severity.tolist() != [degradation(row, 2, 0.5)[1] for row in range(len(source))]
    kinds, severities = zip(*(degradation(row, 0, 0.5) for row in range(4000)), strict=True)
    strong = np.array(severities) > 0
    assert abs(strong.sum() - 2000) < 150
    assert np.histogram(np.array(severities)[strong], bins=4, range=(0, 1))[0].min() > 400
    names, counts = np.unique(np.array(kinds)[strong], return_counts=True)
    assert (len(names), counts.min() > 220) == (7, True)


def test_groups_need_neither_recognizers_nor_non_faces(drawn_faces, tmp_path, capsys):
    source, table = open_source(drawn_faces), tmp_path / "numbers.csv"
    lines = [f"{key},{Path(key).stem[-1]}" for key in map(source.key, range(len(source)))]
    table.write_text("\n".join(["image,number", *lines]))
    arguments = ["--data", drawn_faces, "--groups", table, "--out", tmp_path / "out", *QUICK]
    assert run("evaluate", "fiqa", *arguments) == 0
    assert not section_of(tmp_path / "out").measures
    groups = section_of(tmp_path / "out", f"{NAME}, number", "groups")
    shares = [one.of["number"] for one in groups.measures if one.name == "accepted by sharpness"]
    assert shares == [*map(str, range(8)), "all"]
    assert "accepted by sharpness" in capsys.readouterr().out


def test_a_table_says_nothing_of_images_that_were_degraded_after_it(models, drawn_faces, tmp_path):
    source = open_source(drawn_faces)
    rows = [f"{source.key(row)},{row}" for row in range(len(source))]
    (tmp_path / "listed.csv").write_text("\n".join(["image,score", *rows]) + "\n")
    more = ["--quality", f"listed={tmp_path / 'listed.csv'}:score", "--degraded", "--fmr", "0.1", *QUICK]
    assert league(models, drawn_faces, tmp_path / "out", *more, "--against", "listed") == 0
    original, degraded = (means(section_of(tmp_path / "out", name)) for name in (NAME, POOR))
    assert "listed" in original
    assert "listed" not in degraded
    assert "Alone" in degraded
