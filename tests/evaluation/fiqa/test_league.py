"""The quality league from end to end, against what its parts give one by one."""

from __future__ import annotations

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
from facerts.evaluation.results.fiqa_result import FiqaArea, FiqaSection
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.error_versus_reject import ErrorVersusReject, error_versus_reject
from facerts.metrics.separation import separation
from tests.command import run

FMR = 0.01
NAME, POOR = "faces", "faces, half degraded"


def league(models: Path, data: Path, out: Path, *more: str | Path) -> int:
    return run(
        *["evaluate", "fiqa", "--model", models / "one.onnx", "--model", f"second={models / 'two.onnx'}"],
        *["--quality", f"bright={models / 'one.onnx'}", "--quality", f"Alone={models / 'alone.onnx'}"],
        *["--describe", f"Alone={models / 'elsewhere.json'}", "--data", data, "--out", out],
        *["--set", "threads=1", "--set", "evaluate.replicates=20", *more],
    )


@pytest.fixture(scope="module")
def folder(
    models: Path, scores: Path, drawn_faces: Path, non_faces: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    out = tmp_path_factory.mktemp("league")
    more = ["--quality", scores, "--out-of", non_faces, "--degraded"]
    assert league(models, drawn_faces, out, *more, "--fmr", "0.01", "--fmr", "0.1") == 0
    return out


@pytest.fixture(scope="module")
def section(folder: Path) -> FiqaSection:
    return load_result(folder)[0].fiqa[NAME]


def entries(section: FiqaSection, recognizer: str | None, fmr: float = FMR) -> dict[str, FiqaArea]:
    return {one.quality: one for one in section.areas if (one.recognizer, one.fmr) == (recognizer, fmr)}


@pytest.fixture(scope="module")
def expected(models: Path, drawn_faces: Path) -> ErrorVersusReject:
    """Of the second recognizer, from its parts."""
    source = open_source(drawn_faces)
    outputs = embed_source(load_embedder(models / "two.onnx"), source, flip=False)
    alone = OnnxQuality(models / "alone.onnx", description=read_description(models / "elsewhere.json"))
    computed = score_source(source, {"Alone": alone, "sharpness": sharpness})
    assert source.labels is not None
    assert outputs.norm is not None
    return error_versus_reject(
        compare_all(outputs.embedding, source.labels),
        {**computed, "norm": outputs.norm},
        [FMR],
        replicates=20,
    )[FMR]


def test_areas_are_those_of_each_recognizer(section: FiqaSection, expected: ErrorVersusReject) -> None:
    found = entries(section, "second")
    for label in ("Alone", "sharpness", "norm", "oracle"):
        for end, name in ((0.2, "0.2"), (0.3, "0.3")):
            area = expected.by[label].area[end]
            assert found[label].area[name] == pytest.approx(area.value)
            assert found[label].ci95[name] == pytest.approx(area.interval())
    point = section.recognizers["second"].at_fmr["0.01"]
    assert (point.threshold, point.fnmr) == pytest.approx((expected.threshold, expected.fnmr.value))
    assert (section.genuine, section.impostors) == (expected.genuine, expected.impostors) == (224, 1792)


def test_differences_are_paired_with_the_first_quality(
    section: FiqaSection, expected: ErrorVersusReject
) -> None:
    found = entries(section, "second")
    assert section.against == "bright"
    assert found["bright"].difference["0.3"] == 0
    assert found["bright"].difference_ci95["0.3"] == (0, 0)
    difference = found["Alone"].area["0.3"] - found["bright"].area["0.3"]
    assert found["Alone"].difference["0.3"] == pytest.approx(difference)


def test_means_are_over_the_recognizers(section: FiqaSection) -> None:
    mean, one, two = (entries(section, name) for name in (None, "one", "second"))
    assert (
        set(mean)
        == set(one)
        == set(two)
        == {"bright", "Alone", "noise", "flat", "norm", "sharpness", "oracle"}
    )
    for label, entry in mean.items():
        assert entry.area["0.3"] == pytest.approx((one[label].area["0.3"] + two[label].area["0.3"]) / 2)
    # Each recognizer's own norm, and for "one" the same brightness as a model and as a table would give.
    assert one["norm"].area["0.3"] != two["norm"].area["0.3"]


def test_every_area_has_its_curve(section: FiqaSection, folder: Path) -> None:
    on_recognizers = [area for area in section.areas if area.recognizer is not None]
    curves = load_result(folder)[1][f"fiqa/{NAME}/fnmr"]
    for area, curve in zip(on_recognizers, curves, strict=True):
        point = section.recognizers[area.recognizer].at_fmr[f"{area.fmr:g}"]
        assert curve[0] == pytest.approx(point.fnmr, abs=1e-6)


def test_degraded_images_use_the_thresholds_of_the_original_ones(folder: Path, section: FiqaSection) -> None:
    degraded = load_result(folder)[0].fiqa[POOR]
    assert degraded.thresholds_on == NAME
    changed = 0
    for label, recognizer in degraded.recognizers.items():
        original = section.recognizers[label]
        for fmr, point in recognizer.at_fmr.items():
            assert point.threshold == original.at_fmr[fmr].threshold
            changed += point.fnmr != original.at_fmr[fmr].fnmr
    assert changed
    assert degraded.non_faces is None


def test_non_faces_are_separated_by_every_computed_quality(
    section: FiqaSection, models: Path, drawn_faces: Path, non_faces: Path
) -> None:
    found = section.non_faces
    assert {name for name, one in section.qualities.items() if one.milliseconds is not None} == set(found.by)
    assert set(found.by) == {"bright", "Alone", "sharpness"}  # a table has no row of them
    faces, things = (
        score_source(open_source(path), {"sharpness": sharpness})["sharpness"]
        for path in (drawn_faces, non_faces)
    )
    numbers = separation(faces, things)
    assert found.by["sharpness"].auroc == pytest.approx(numbers.auroc)
    assert found.by["sharpness"].tnr_at_tpr["0.95"] == pytest.approx(numbers.tnr_at_tpr[0.95])
    assert found.others == {"things": 24}
    norms = [
        embed_source(load_embedder(models / "two.onnx"), open_source(path), flip=False).norm
        for path in (drawn_faces, non_faces)
    ]
    assert found.by_recognizer["second"]["norm"].auroc == pytest.approx(separation(*norms).auroc)


def test_pages_and_figures_are_written(folder: Path) -> None:
    page, tables = (folder / "report.html").read_text(), (folder / "tables.md").read_text()
    for text in (page, tables):
        assert "Alone" in text
        assert "norm (its own)" in text
    assert "uses_faces.svg" in tables
    for name in ("league_faces.svg", "league_faces_half_degraded.svg", "uses_faces.svg"):
        assert (folder / name).read_text().startswith("<svg")


def test_a_second_run_needs_no_forward_pass_and_gives_the_same(
    folder: Path, models: Path, drawn_faces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("facerts.embedding.onnx_embedder.OnnxEmbedder.__call__", None)
    more = ["--fmr", "0.01", "--set", "evaluate.cost=false", "--set", f"output_cache={folder / 'cache'}"]
    assert league(models, drawn_faces, tmp_path, *more) == 0
    again = entries(load_result(tmp_path)[0].fiqa[NAME], "second")
    assert again["Alone"].area == entries(load_result(folder)[0].fiqa[NAME], "second")["Alone"].area


def test_a_table_of_embeddings_is_a_recognizer_with_qualities(
    drawn_faces: Path, models: Path, tmp_path: Path
) -> None:
    source = open_source(drawn_faces)
    outputs = embed_source(load_embedder(models / "one.onnx"), source, flip=False)
    names = np.array([source.key(row) for row in range(len(source))])
    quality = np.arange(len(source), dtype=np.float32)
    np.savez(
        tmp_path / "mine.npz", embeddings=outputs.embedding, names=names, norm=outputs.norm, order=quality
    )
    out = tmp_path / "out"
    arguments = ["--model", tmp_path / "mine.npz", "--data", drawn_faces, "--out", out]
    assert run("evaluate", "fiqa", *arguments, "--set", "evaluate.replicates=5") == 0
    section = load_result(out)[0].fiqa[NAME]
    assert {label: one.kind for label, one in section.qualities.items()} == {
        "sharpness": "crop",
        "order": "table",
        "norm": "recognizer",
        "oracle": "bound",
    }
    assert entries(section, None) == {}
    assert entries(section, "mine")["order"].area["0.3"] is not None


def test_listed_pairs_are_compared_where_people_are_unknown(
    models: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    source = open_source(drawn_faces)
    lines = [
        f"{source.location(row)} {source.location(other)} {int(row // 8 == other // 8)}"
        for row in range(60)
        for other in (row + 1, (row + 9) % 64)
    ]
    (tmp_path / "pairs.txt").write_text("\n".join(lines))
    out = tmp_path / "out"
    more = ["--fmr", "0.1", "--set", "evaluate.cost=false"]
    assert league(models, tmp_path / "pairs.txt", out, *more) == 0
    (section,) = load_result(out)[0].fiqa.values()
    assert section.pairs == "benchmark"
    assert section.interval == "bootstrap over pairs"
    assert section.genuine + section.impostors == 120


REFUSED = {
    "unknown people": (["--data", "{things}"], "its people are unknown"),
    "rate": (["--fmr", "1e-6"], "needs at least 1,000,000 impostor pairs"),
    "invalid rate": (["--fmr", "1"], "not a valid FMR"),
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
    case: str,
    models: Path,
    drawn_faces: Path,
    non_faces: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("facerts.embedding.onnx_embedder.OnnxEmbedder.__call__", None)
    arguments, message = REFUSED[case]
    given = [text.format(models=models, faces=drawn_faces, things=non_faces) for text in arguments]
    assert league(models, drawn_faces, tmp_path / "out", *given) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out" / "result.json").exists()


def test_a_table_with_some_of_the_images_is_refused(
    models: Path, drawn_faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "few.csv").write_text(f"image,score\n{open_source(drawn_faces).key(0)},1\n")
    assert league(models, drawn_faces, tmp_path / "out", "--quality", tmp_path / "few.csv") == 2
    assert "63 of 64 images of faces have no row" in " ".join(capsys.readouterr().err.split())


def test_a_score_of_chosen_layers_belongs_to_the_faces_that_chose_them(
    models: Path,
    drawn_faces: Path,
    non_faces: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def judge(faces: Path, data: Path = drawn_faces) -> int:
        more = ["--recognizer-score", "all", "--calibrate-scores", faces, "--set", "evaluate.cost=false"]
        return league(models, data, tmp_path / "out", *more)

    assert judge(non_faces) == 0
    section = load_result(tmp_path / "out")[0].fiqa[NAME]
    assert {"mirror", "pruning", "dropout", "froq"} <= set(section.qualities)
    source = open_source(drawn_faces)
    score = LayerNorms(load_embedder(models / "two.onnx", threads=1), open_source(non_faces))
    outputs = embed_source(load_embedder(models / "two.onnx"), source, flip=False, also={"froq": score})
    expected = error_versus_reject(
        compare_all(outputs.embedding, source.labels), outputs.extras, [FMR], replicates=20
    )[FMR]
    assert entries(section, "second")["froq"].area["0.3"] == pytest.approx(
        expected.by["froq"].area[0.3].value
    )
    # Kept scores need no forward pass; other faces make another quality, for which there is another folder.
    monkeypatch.setattr("facerts.embedding.recognizer_scores.pseudo_quality", None)
    assert judge(non_faces) == 0
    assert judge(drawn_faces) == 2
    (tmp_path / "out" / "result.json").unlink()
    capsys.readouterr()
    assert judge(drawn_faces) != 0
    assert "choosing layers of one: 0/64" in capsys.readouterr().err


def test_leagues_are_compared(folder: Path, models: Path, drawn_faces: Path, tmp_path: Path) -> None:
    more = [
        *(
            "--fmr",
            "0.01",
            "--set",
            "evaluate.cost=false",
            "--set",
            f"output_cache={folder / 'cache'}",
            "--quality",
        ),
        f"again={models / 'two.onnx'}",
    ]
    assert league(models, drawn_faces, tmp_path / "other", *more) == 0
    assert run("compare", f"A={folder}", f"B={tmp_path / 'other'}", "--out", tmp_path / "compared") == 0
    compared = json.loads((tmp_path / "compared" / "comparison.json").read_text())
    (table, *_) = [one for one in compared["tables"] if one["topic"] == "fiqa"]
    rows = {(row["method"], row["score"]): row["cells"] for row in table["rows"]}
    column = "area at FMR 0.01"
    assert rows["A", "Alone"][column]["value"] == rows["B", "Alone"][column]["value"]
    assert ("B", "again") in rows
    assert ("A", "again") not in rows
    assert "cannot be compared" not in table["note"]


def test_an_unfit_lineup_does_not_share_a_folder(folder: Path, drawn_faces: Path, models: Path) -> None:
    arguments = [
        "--model",
        models / "one.onnx",
        "--data",
        drawn_faces,
        "--out",
        folder,
        "--set",
        "evaluate.cost=false",
    ]
    before = (folder / "result.json").read_bytes()
    assert run("evaluate", "fiqa", *arguments) == 2
    assert (folder / "result.json").read_bytes() == before


def test_groups_are_treated_at_one_threshold(
    folder: Path, models: Path, drawn_faces: Path, non_faces: Path, tmp_path: Path
) -> None:
    source = open_source(drawn_faces)
    keys = [source.key(row) for row in range(len(source))]
    (tmp_path / "groups.csv").write_text(
        "image,camera\n" + "".join(f"{key},{'old' if row % 2 else 'new'}\n" for row, key in enumerate(keys))
    )
    more = [
        "--fmr",
        "0.1",
        "--set",
        "evaluate.cost=false",
        "--set",
        f"output_cache={folder / 'cache'}",
        "--groups",
        tmp_path / "groups.csv",
    ]
    out = tmp_path / "out"
    assert league(models, drawn_faces, out, *more, "--set", "keep=0.75", "--keep-on", str(non_faces)) == 0
    section = load_result(out)[0].fiqa[NAME]
    assert section.groups is not None
    groups = section.groups.by["camera"]
    assert {"sharpness", "Alone", "norm of one", "norm of second"} <= set(groups.accepted)
    things = score_source(open_source(non_faces), {"sharpness": sharpness})["sharpness"]
    faces = score_source(source, {"sharpness": sharpness})["sharpness"]
    threshold = np.sort(things)[24 - 18]  # 75% of 24
    found = groups.accepted["sharpness"]
    assert found.threshold == pytest.approx(threshold)
    assert found.groups["old"].accepted == pytest.approx(np.mean(faces[1::2] >= threshold))
    matching = groups.matching["second"]
    assert matching.threshold == pytest.approx(section.recognizers["second"].at_fmr["0.1"].threshold)
    # Eight people with four images in each group.
    assert matching.every_pair.groups["new"].fnmr.pairs == 8 * 6
    assert matching.every_pair.groups["new"].fmr.pairs == 32 * 31 // 2 - 8 * 6
    page = (out / "report.html").read_text()
    assert "faces, camera" in page


def test_half_of_the_images_are_degraded_each_in_its_own_way(drawn_faces: Path) -> None:
    source = open_source(drawn_faces)
    changed, again = degraded_at_random(source, 1, 0.5), degraded_at_random(source, 1, 0.5)
    same = [np.array_equal(changed.crop(row), source.crop(row)) for row in range(len(source))]
    severity = np.array([degradation(row, 1, 0.5)[1] for row in range(len(source))])
    assert all(np.array(same)[severity == 0])
    assert not any(np.array(same)[severity > 0.1])
    assert all(np.array_equal(changed.crop(row), again.crop(row)) for row in (40, 3, 17))
    assert severity.tolist() != [degradation(row, 2, 0.5)[1] for row in range(len(source))]
    kinds, severities = zip(*(degradation(row, 0, 0.5) for row in range(4000)), strict=True)
    strong = np.array(severities)[np.array(severities) > 0]
    assert abs(len(strong) - 2000) < 150
    assert np.histogram(strong, bins=4, range=(0, 1))[0].min() > 400
    counts = [sum(k == kind and s > 0 for k, s in zip(kinds, severities, strict=True)) for kind in set(kinds)]
    assert len(counts) == 7
    assert min(counts) > 220


def test_groups_need_neither_recognizers_nor_non_faces(
    drawn_faces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, table = open_source(drawn_faces), tmp_path / "numbers.csv"
    lines = [f"{key},{Path(key).stem[-1]}" for key in map(source.key, range(len(source)))]
    table.write_text("\n".join(["image,number", *lines]))
    arguments = ["--data", drawn_faces, "--groups", table, "--out", tmp_path, "--set", "evaluate.cost=false"]
    assert run("evaluate", "fiqa", *arguments) == 0
    section = load_result(tmp_path)[0].fiqa[NAME]
    assert (section.areas, section.non_faces) == ([], None)
    assert section.groups is not None
    assert list(section.groups.by["number"].accepted["sharpness"].groups) == [str(n) for n in range(8)]
    assert "Accepted share" in capsys.readouterr().out


def test_a_table_says_nothing_of_images_that_were_degraded_after_it(
    models: Path, drawn_faces: Path, tmp_path: Path
) -> None:
    source = open_source(drawn_faces)
    rows = [f"{source.key(row)},{row}" for row in range(len(source))]
    (tmp_path / "listed.csv").write_text("\n".join(["image,score", *rows]) + "\n")
    more = [
        "--quality",
        f"listed={tmp_path / 'listed.csv'}:score",
        "--degraded",
        "--fmr",
        "0.1",
        "--set",
        "evaluate.cost=false",
    ]
    assert league(models, drawn_faces, tmp_path / "out", *more, "--against", "listed") == 0
    sections = load_result(tmp_path / "out")[0].fiqa
    original, degraded = sections.values()
    assert "listed" in original.qualities
    assert "listed" not in degraded.qualities
    assert {"Alone"} <= set(degraded.qualities)
