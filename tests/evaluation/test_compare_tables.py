"""Tables of several methods, with seeds, on drawn faces; every number against the results' own or a plain recipe."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from facerts.errors import DataError
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.compare import compare
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.results.comparison_result import Comparison, ComparisonTable, TableCell
from facerts.metrics.compared_pairs import compare_listed
from facerts.metrics.error_versus_reject import error_versus_reject
from tests.evaluation.conftest import Plain, Seeded

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("few_replicates")]

OPTIONS = EvaluationOptions(keep_crops=False, flip=False, fmr=0.05)


@pytest.fixture(scope="module")
def folders(
    named: Path,
    benchmark_folder: Path,
    drawn_faces: Path,
    non_faces: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Plain, far worse noise, and two seeds of a third method, on two benchmarks and on faces and others."""
    home = tmp_path_factory.mktemp("methods")
    models = [Plain(), Seeded("poor", 9, 0.5), Seeded("seeded", 1), Seeded("seeded", 2)]
    found = {}
    for key, model in zip(("plain", "poor", "one", "two"), models, strict=True):
        out = found[key] = home / key
        run_pairs(model, ["verification", "reject"], [named, benchmark_folder / "people.bin"], out, OPTIONS)
        run_ood(model, [str(drawn_faces), str(benchmark_folder / "people")], [str(non_faces)], out, OPTIONS)
    return found


@pytest.fixture(scope="module")
def comparison(folders: dict[str, Path]) -> Comparison:
    labels = {"plain": "good", "one": "seeded", "poor": "bad", "two": "seeded"}
    return compare([f"{label}={folders[key]}" for key, label in labels.items()])


def content(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))


def table(comparison: Comparison, title: str) -> ComparisonTable:
    (found,) = [one for one in comparison.tables if one.title == title]
    return found


def row(found: ComparisonTable, method: str, score: str | None = None) -> dict[str, TableCell | None]:
    (cells,) = [one.cells for one in found.rows if (one.method, one.score) == (method, score)]
    return cells


def test_accuracy_of_one_run_is_the_results_with_its_interval(
    comparison: Comparison, folders: dict[str, Path]
) -> None:
    found = table(comparison, "Verification accuracy")
    assert found.columns == ["named", "people", "mean"]
    own = content(folders["poor"])["verification"]
    for name in ("named", "people"):
        cell = row(found, "bad")[name]
        assert (cell.value, cell.ci95, cell.range) == (
            own[name]["accuracy"]["value"],
            tuple(own[name]["accuracy"]["ci95"]),
            None,
        )
    mean = np.mean([own[name]["accuracy"]["value"] for name in ("named", "people")])
    assert row(found, "bad")["mean"].value == pytest.approx(mean)
    assert "100 genuine and 100 impostor pairs" in found.note


def test_seeds_are_shown_by_their_mean_and_range(comparison: Comparison, folders: dict[str, Path]) -> None:
    first, second = (
        content(folders[key])["verification"]["named"]["tar_at_far"]["0.1"]["value"] for key in ("one", "two")
    )
    cell = row(table(comparison, "Verification on named"), "seeded")["TAR at FAR 0.1"]
    assert first != second
    assert cell.value == pytest.approx((first + second) / 2)
    assert cell.range == (min(first, second), max(first, second))
    assert cell.values == [first, second]
    assert cell.ci95 is None
    areas = [content(folders[key])["ood"]["by"]["quality"]["auroc"] for key in ("one", "two")]
    cell = row(table(comparison, "All faces against things"), "seeded", "quality")["AUROC"]
    assert (cell.value, cell.range) == (pytest.approx(sum(areas) / 2), tuple(sorted(areas)))


def test_rejection_of_others_is_told_pooled_and_by_source(
    comparison: Comparison, folders: dict[str, Path]
) -> None:
    own = content(folders["plain"])["ood"]["by"]["norm"]
    for title, entries in (
        ("All faces against things", own),
        ("people against things", own["per_source"]["people"]),
    ):
        cells = row(table(comparison, title), "good", "norm")
        assert cells["AUROC"].value == entries["auroc"]
        assert cells["TNR@TPR90"].value == entries["tnr_at_tpr"]["0.90"]
        assert cells["TNR@TPR95"].ci95 == tuple(entries["ci95"]["0.95"])
    # Sharpness is of the images alone: it is nobody's, and stands once.
    scores = [(one.method, one.score) for one in table(comparison, "All faces against things").rows]
    assert [method for method, score in scores if score == "sharpness"] == ["any"]


def test_the_best_is_marked_only_where_a_paired_test_says_so(folders: dict[str, Path]) -> None:
    clear = compare([folders["poor"], folders["plain"]])
    found = table(clear, "Verification on named")
    assert row(found, "plain")["AUROC"].best
    assert not any(cell.best for cell in row(found, "poor").values())
    assert not row(table(clear, "Verification accuracy"), "plain")["mean"].best
    same = table(compare([f"a={folders['plain']}", f"b={folders['plain']}"]), "Verification on named")
    assert not any(cell.best for one in same.rows for cell in one.cells.values())
    # A difference from the mean of seeds has no test.
    seeds = compare([folders["poor"], f"s={folders['one']}", f"s={folders['two']}"])
    found = table(seeds, "Verification on named")
    assert not any(cell.best for one in found.rows for cell in one.cells.values())
    assert "Nothing is bold" in found.note


def test_error_versus_reject_is_the_results_on_its_own_embedding(
    comparison: Comparison, folders: dict[str, Path]
) -> None:
    cells = row(
        table(comparison, "Error versus reject on named, each quality on its own embedding"), "bad", "quality"
    )
    (own,) = [curve for curve in content(folders["poor"])["reject"]["named"] if curve["by"] == "quality"]
    at = dict(zip(own["rejected"], own["fnmr"], strict=True))
    for column, share in (("0%", 0.0), ("5%", 0.05), ("10%", 0.1), ("20%", 0.2)):
        assert cells[column].value == at[share]
    assert (cells["pAUC to 20%"].value, cells["pAUC to 95%"].ci95) == (
        own["area"]["0.2"],
        tuple(own["ci95"]["0.95"]),
    )
    assert cells["5%"].ci95 == (own["fnmr_ci95"][0][5], own["fnmr_ci95"][1][5])


@pytest.mark.parametrize(("label", "key"), [(None, "plain"), ("bad", "poor")])
def test_all_qualities_are_measured_on_the_chosen_embedding(
    folders: dict[str, Path], label: str | None, key: str
) -> None:
    found = compare(
        [f"good={folders['plain']}", f"bad={folders['poor']}", f"s={folders['one']}", f"s={folders['two']}"],
        embedding=label,
    )
    name = "good" if label is None else label
    assert found.embedding == name
    prefix = "verification/named/"
    _, base = load_result(folders[key])
    cells = {
        (one.method, one.score): one.cells
        for one in table(
            found, f"Error versus reject on named, all qualities on the embedding of {name}"
        ).rows
    }
    curves = {(one.method, one.score): one.fnmr for one in found.curves["named"].by}
    for method, runs in (("good", ["plain"]), ("bad", ["poor"]), ("s", ["one", "two"])):
        for score in ("quality", "norm"):
            expected = []
            for run in runs:
                _, arrays = load_result(folders[run])
                pairs = compare_listed(*(base[prefix + key] for key in ("scores", "same", "pairs")), None)
                measured = error_versus_reject(
                    pairs, {score: arrays[prefix + score]}, [OPTIONS.fmr], replicates=0
                )
                expected.append(measured[OPTIONS.fmr].by[score])
            np.testing.assert_allclose(curves[method, score], [curve.fnmr for curve in expected])
            entries = cells[method, score]
            assert entries["pAUC to 20%"].value == pytest.approx(
                np.mean([curve.pauc[0.2].value for curve in expected])
            )
            assert entries["20%"].value == pytest.approx(np.mean([curve.fnmr[20] for curve in expected]))
    # On its own embedding a quality has what its own section says, with the same intervals.
    own = next(curve for curve in content(folders[key])["reject"]["named"] if curve["by"] == "quality")
    assert cells[name, "quality"]["pAUC to 20%"].ci95 == pytest.approx(own["ci95"]["0.2"], abs=1e-6)


def test_sections_that_are_missing_are_empty_cells(
    folders: dict[str, Path], named: Path, tmp_path: Path
) -> None:
    run_pairs(Seeded("less", 5), ["verification"], [named], tmp_path / "less", OPTIONS)
    found = compare([folders["plain"], tmp_path / "less"])
    accuracy = row(table(found, "Verification accuracy"), "less")
    assert accuracy["named"] is not None
    assert (accuracy["people"], accuracy["mean"]) == (None, None)
    assert set(row(table(found, "All faces against things"), "less").values()) == {None}
    reject = table(found, "Error versus reject on named, each quality on its own embedding")
    assert set(row(reject, "less").values()) == {None}


def changed(folder: Path, out: Path, change: Any) -> Path:
    shutil.copytree(folder, out)
    entries = content(out)
    change(entries)
    (out / "result.json").write_text(json.dumps(entries), encoding="utf-8")
    return out


def test_other_data_is_noted_and_gives_no_quality_on_the_chosen_embedding(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    other = changed(
        folders["poor"],
        tmp_path / "other",
        lambda entries: entries["verification"]["named"].update(data_sha256="0" * 64),
    )
    found = compare([folders["plain"], other])
    assert sum("named" in note and "other images" in note for note in found.notes) == 2
    cells = row(table(found, "Error versus reject on named, all qualities on the embedding of plain"), "poor")
    assert set(cells.values()) == {None}
    assert row(table(found, "Verification accuracy"), "poor")["named"] is not None


def test_runs_of_one_label_must_be_of_one_method_on_the_same_data(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    def refused(folder: Path) -> str:
        with pytest.raises(DataError) as error:
            compare([f"s={folders['one']}", f"s={folder}"])
        return str(error.value)

    assert "results of the same model" in refused(folders["one"])
    less = changed(folders["two"], tmp_path / "less", lambda entries: entries["verification"].pop("people"))
    assert f"{less} has no verification of people" in refused(less)
    other = changed(
        folders["two"],
        tmp_path / "other",
        lambda entries: entries["ood"]["data_sha256"].update(things="0" * 64),
    )
    assert "other images" in refused(other)
    of_rts = changed(folders["two"], tmp_path / "rts", lambda entries: entries["model"].update(method="rts"))
    assert "of method unknown" in refused(of_rts)


def test_an_embedding_of_no_label_is_refused(folders: dict[str, Path]) -> None:
    with pytest.raises(DataError, match="--embedding takes one of plain, poor"):
        compare([folders["plain"], folders["poor"]], embedding="rts")
