"""Several methods, with seeds, on drawn faces: every number against the results' own or a plain recipe."""

import json
import shutil

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.comparison import TESTED, compare
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.metrics.compared_pairs import compare_listed
from facerts.metrics.error_versus_reject import error_versus_reject
from tests.evaluation.conftest import Plain, Seeded

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_replicates")]

OPTIONS = EvaluationOptions(keep_crops=False, flip=False, fmr=0.05)
ALL_FACES, OF_PEOPLE = ({"faces": faces, "non-faces": "things"} for faces in ("faces and people", "people"))


@pytest.fixture(scope="module")
def comparison(evaluated):
    labels = {"plain": "good", "one": "seeded", "poor": "bad", "two": "seeded"}
    return compare([f"{label}={evaluated[key]}" for key, label in labels.items()])[0]


@pytest.fixture(scope="module")
def two(evaluated):
    """The plain embedder and the poor one, in both orders."""
    both = [evaluated["plain"], evaluated["poor"]]
    return compare(both)[0], compare(both[::-1])[0]


def own(folder, name, of, kind="verification", data="named"):
    """A number as a result has it."""
    return load_result(folder)[0].of_kind(kind)[data].measure(name, **of)


def table(found, title, part=""):
    """Rows by method and score of a table within a section."""
    (section,) = [one for one in found.sections if one.title == title]
    rows = {}
    for one in section.measures:
        if one.table == part:
            rows.setdefault((one.of["method"], one.of.get("score")), {})[one.name] = one
    return rows


def section_of(found, title):
    (section,) = [one for one in (*found.sections, *found.differences) if one.title == title]
    return section


def test_accuracy_of_one_run_is_the_results_with_its_interval(comparison, evaluated):
    row = table(comparison, "Verification accuracy")["bad", None]
    assert list(row) == ["named", "people", "mean"]
    numbers = [own(evaluated["poor"], "accuracy", {}, data=name) for name in ("named", "people")]
    for name, expected in zip(("named", "people"), numbers, strict=True):
        assert (row[name].value, row[name].ci95, row[name].range) == (expected.value, expected.ci95, None)
    assert row["mean"].value == pytest.approx(np.mean([one.value for one in numbers]))
    # The distances to the ends add as of independent benchmarks.
    low = [one.value - one.ci95[0] for one in numbers]
    assert row["mean"].ci95[0] == pytest.approx(row["mean"].value - np.hypot(*low) / 2)
    assert "The mean is over named and people" in section_of(comparison, "Verification accuracy").text


def test_seeds_are_shown_by_their_mean_and_range(comparison, evaluated):
    name = "FNMR at FMR 10%"
    first, second = (own(evaluated[key], name, {}).value for key in ("one", "two"))
    cell = table(comparison, "Verification: named", "listed pairs")["seeded", None][name]
    assert first != second
    assert (cell.value, cell.range) == (pytest.approx((first + second) / 2), tuple(sorted((first, second))))
    assert (cell.ci95, cell.of["runs"]) == (None, "2")
    areas = [own(evaluated[key], "AUROC", {"score": "quality"}, "ood", "non-faces").value for key in ("one", "two")]
    cell = table(comparison, "Faces against non-faces", "faces and people, non-faces things")["seeded", "quality"][
        "AUROC"
    ]
    assert (cell.value, cell.range) == (pytest.approx(sum(areas) / 2), tuple(sorted(areas)))
    assert "Of several training runs" in comparison.text


def test_numbers_of_one_run_are_those_of_its_result(comparison, evaluated):
    faces = "Faces against non-faces"
    for title, part, kind, data, name, of in (
        (faces, "faces and people, non-faces things", "ood", "non-faces", "AUROC", ALL_FACES),
        (faces, "faces people, non-faces things", "ood", "non-faces", "TNR at TPR 95%", OF_PEOPLE),
        ("Error versus reject: named", "listed pairs, FNMR at FMR 5%", "reject", "named", "5% left out", {}),
        ("Error versus reject: named", "listed pairs, FNMR at FMR 5%", "reject", "named", "pAUC to 95%", {}),
    ):
        rows = table(comparison, title, part)
        expected = own(evaluated["poor"], name, {"score": "norm", **of}, kind, data)
        assert (rows["bad", "norm"][name].value, rows["bad", "norm"][name].ci95) == (expected.value, expected.ci95)
        # Sharpness is of the images alone: it is nobody's, stands once, and rejects on nobody's embedding.
        assert [method for method, score in rows if score == "sharpness"] == ["any"] * (kind == "ood")


def test_the_best_is_marked_only_where_a_paired_test_says_so(evaluated, two):
    _, clear = two
    rows = table(clear, "Verification: named", "listed pairs")
    assert rows["plain", None]["AUROC"].mark == "best"
    assert not any(cell.mark for cell in rows["poor", None].values())
    assert not table(clear, "Verification accuracy")["plain", None]["mean"].mark
    assert TESTED in clear.text
    same, _ = compare([f"a={evaluated['plain']}", f"b={evaluated['plain']}"])
    assert not any(one.mark for section in same.sections for one in section.measures)
    # A difference from the mean of seeds has no test.
    seeds, _ = compare([evaluated["poor"], f"s={evaluated['one']}", f"s={evaluated['two']}"])
    rows = table(seeds, "Verification: named", "listed pairs")
    assert not any(cell.mark for row in rows.values() for cell in row.values())


@pytest.mark.parametrize(("label", "key"), [(None, "plain"), ("bad", "poor")])
def test_all_qualities_are_measured_on_the_chosen_embedding(evaluated, label, key):
    labels = [f"good={evaluated['plain']}", f"bad={evaluated['poor']}"]
    found, drawn = compare(
        [*labels, f"s={evaluated['one']}", f"s={evaluated['two']}"],
        embedding=label,
    )
    name = "good" if label is None else label
    assert found.embedding == name
    prefix = "verification/named/"
    _, base = load_result(evaluated[key])
    rows = table(found, "Error versus reject on one embedding: named")
    for method, runs in (("good", ["plain"]), ("bad", ["poor"]), ("s", ["one", "two"])):
        for score in ("quality", "norm"):
            expected = []
            for run in runs:
                _, arrays = load_result(evaluated[run])
                pairs = compare_listed(*(base[prefix + key] for key in ("scores", "same", "pairs")), None)
                measured = error_versus_reject(pairs, {score: arrays[prefix + score]}, [OPTIONS.fmr], replicates=0)
                expected.append(measured[OPTIONS.fmr].by[score])
            curves = np.array([curve.fnmr for curve in expected])
            np.testing.assert_allclose(drawn[f"named/{method}/{score}"], curves.mean(axis=0))
            if len(runs) > 1:
                np.testing.assert_allclose(drawn[f"named/{method}/{score}/high"], curves.max(axis=0))
            cells = rows[method, score]
            assert cells["pAUC to 20%"].value == pytest.approx(np.mean([curve.pauc[0.2].value for curve in expected]))
            assert cells["20% left out"].value == pytest.approx(np.mean(curves[:, 20]))
    # On its own embedding a quality has what its own section says, with the same intervals.
    expected_area = own(evaluated[key], "pAUC to 20%", {"score": "quality"}, "reject")
    assert rows[name, "quality"]["pAUC to 20%"].ci95 == pytest.approx(expected_area.ci95, abs=1e-6)


@pytest.mark.parametrize(("name", "unit"), [("named", "subjects"), ("people", "pairs")])
def test_a_worse_model_has_differences_on_the_wrong_side_and_small_p(evaluated, two, name, unit):
    found, turned = two
    assert (found.reference.label, found.reference.sha256) == ("plain", "a" * 64)
    section = section_of(found, name)
    assert section.interval == f"bootstrap over {unit}"
    # The lowest rate that 100 impostor pairs can show.
    assert [one.name for one in section.measures] == ["accuracy", "AUROC", "FNMR at FMR 1%"]
    for one in section.measures:
        first, second = (own(evaluated[key], one.name, {}, data=name).value for key in ("poor", "plain"))
        assert one.of == {"model": "poor"}
        assert one.value == pytest.approx(first - second, abs=1e-6)
    accuracy, area, _ = section.measures
    for one in (accuracy, area):
        assert one.value < -0.05
        assert one.ci95[0] <= one.value <= one.ci95[1] < 0
        assert (one.p_value < 0.05, one.mark) == (True, "clear")
    assert section.findings[0].startswith("poor is worse than plain in accuracy: −")
    other_way = section_of(turned, name).measures[1]
    assert other_way.value == pytest.approx(-area.value)
    assert other_way.ci95[0] > 0


def test_differences_of_scores_are_over_all_faces_and_non_faces(evaluated, two):
    section = section_of(two[0], "non-faces")
    assert [(one.of["score"], one.name) for one in section.measures] == [
        (score, name) for score in ("quality", "norm") for name in ("AUROC", "TNR at TPR 95%")
    ]
    for one in section.measures:
        of = {"score": one.of["score"], **ALL_FACES}
        first, second = (own(evaluated[key], one.name, of, "ood", "non-faces") for key in ("poor", "plain"))
        assert one.value == pytest.approx(first.value - second.value, abs=1e-6)


def changed(folder, out, change):
    shutil.copytree(folder, out)
    entries = json.loads((out / "result.json").read_text(encoding="utf-8"))
    change(entries["sections"])
    (out / "result.json").write_text(json.dumps(entries), encoding="utf-8")
    return out


def test_other_data_is_noted_and_gives_no_quality_on_the_chosen_embedding(evaluated, tmp_path):
    other = changed(
        evaluated["poor"],
        tmp_path / "other",
        lambda kinds: kinds["verification"]["named"].update(data_sha256={"named": "0" * 64}),
    )
    found, _ = compare([evaluated["plain"], other])
    assert sum("named" in note and "other images" in note for note in found.notes) == 2
    rows = table(found, "Error versus reject on one embedding: named")
    assert not [method for method, _ in rows if method == "poor"]
    assert "named" in table(found, "Verification accuracy")["poor", None]
    assert "cannot be compared" in section_of(found, "Verification: named").text
    assert not [one for one in found.differences if one.title == "named"]


def test_runs_of_one_label_must_be_of_one_method_on_the_same_data(evaluated, tmp_path):
    def refused(folder):
        with pytest.raises(DataError) as error:
            compare([f"s={evaluated['one']}", f"s={folder}"])
        return str(error.value)

    assert "results of the same model" in refused(evaluated["one"])
    less = changed(evaluated["two"], tmp_path / "less", lambda kinds: kinds["verification"].pop("people"))
    assert f"{less} has no verification of people" in refused(less)
    other = changed(
        evaluated["two"],
        tmp_path / "other",
        lambda kinds: kinds["ood"]["non-faces"]["data_sha256"].update(things="0" * 64),
    )
    assert "other images" in refused(other)
    shutil.copytree(evaluated["two"], tmp_path / "rts")
    content = json.loads((tmp_path / "rts" / "result.json").read_text())
    content["model"]["method"] = "rts"
    (tmp_path / "rts" / "result.json").write_text(json.dumps(content))
    assert "of method unknown" in refused(tmp_path / "rts")


def test_what_a_result_lacks_has_no_row(evaluated, named, tmp_path):
    run_pairs(Seeded("less", 5), ["verification"], [named], tmp_path / "less", OPTIONS)
    found, _ = compare([evaluated["plain"], tmp_path / "less"])
    assert list(table(found, "Verification accuracy")["less", None]) == ["named"]
    rows = table(found, "Error versus reject: named", "listed pairs, FNMR at FMR 5%")
    assert {method for method, _ in rows} == {"plain"}


def test_other_pairs_of_the_same_images_are_left_out_too(evaluated, named, tmp_path):
    other = shutil.copytree(named.parent, tmp_path / "more") / named.name
    lines = named.read_text().splitlines(keepends=True)
    other.write_text("".join([*lines, lines[1]]))
    run_pairs(Plain(), ["verification"], [other], tmp_path / "other", OPTIONS)
    results = [load_result(folder)[0] for folder in (evaluated["plain"], tmp_path / "other")]
    hashes = [result.of_kind("verification")["named"].data_sha256 for result in results]
    assert hashes[0] == hashes[1]
    with pytest.raises(DataError, match="has nothing in common with"):
        compare([evaluated["plain"], tmp_path / "other"])
    # Too few impostor pairs for any rate: accuracy and area are compared.
    genuine, impostors = ([line for line in lines if line.split(",")[2] == flag] for flag in "10")
    other.write_text("".join([lines[0], *genuine[:30], *impostors[::20]]))
    for name, model in (("plain", Plain()), ("poor", Seeded("poor", 9, 0.5))):
        run_pairs(model, ["verification"], [other], tmp_path / name, OPTIONS)
    section = section_of(compare([tmp_path / "plain", tmp_path / "poor"])[0], "named")
    assert [one.name for one in section.measures] == ["accuracy", "AUROC"]
    assert section.measures[0].value < 0


def test_what_cannot_be_compared_is_refused(evaluated, drawn_faces, non_faces, tmp_path):
    run_ood(Plain(), [str(drawn_faces / "person_0000")], [str(non_faces)], tmp_path / "ood", OPTIONS)
    with pytest.raises(DataError, match=r"nothing in common with .*ood: evaluate them on the same"):
        compare([evaluated["plain"], tmp_path / "ood"])
    with pytest.raises(DataError, match="at least two"):
        compare([evaluated["plain"]])
    with pytest.raises(DataError, match=r"no result\.json here"):
        compare([evaluated["plain"], tmp_path / "gone"])
    with pytest.raises(DataError, match="--embedding takes one of plain, poor"):
        compare([evaluated["plain"], evaluated["poor"]], embedding="rts")
