from __future__ import annotations

import json
from pathlib import Path

import pytest

from facerts.errors import DataError
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.compare import compare
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.results.comparison_result import Comparison, VerificationDifference
from tests.evaluation.conftest import Plain, Seeded

MEASURES = ("accuracy", "auroc", "tar_at_far")
BARE = EvaluationOptions(keep_crops=False)


@pytest.fixture(scope="module")
def folders(
    named: Path,
    benchmark_folder: Path,
    drawn_faces: Path,
    non_faces: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Path]:
    """Results of two models on a list that names people, on a .bin set, and on faces and other things."""
    home = tmp_path_factory.mktemp("compared")
    for name, model in (("plain", Plain()), ("poor", Seeded("poor", 9, 0.5))):
        run_pairs(model, ["verification"], [named, benchmark_folder / "people.bin"], home / name, BARE)
        run_ood(model, [str(drawn_faces)], [str(non_faces)], home / name, BARE)
    return {"plain": home / "plain", "poor": home / "poor"}


def difference_of(comparison: Comparison, name: str) -> VerificationDifference:
    (row,) = comparison.verification[name]
    return row


@pytest.mark.slow
def test_a_worse_model_has_differences_below_0_and_small_p(folders: dict[str, Path]) -> None:
    comparison = compare([folders["plain"], folders["poor"]])
    assert (comparison.reference.label, comparison.reference.sha256) == ("plain", "a" * 64)
    assert [(model.label, model.folder) for model in comparison.models] == [("poor", "poor")]
    results = {name: json.loads((folder / "result.json").read_text()) for name, folder in folders.items()}
    for name, unit in (("named", "subjects"), ("people", "pairs")):
        row = difference_of(comparison, name)
        assert row.model == comparison.models[0]
        # The lowest rate that 100 impostor pairs can show.
        assert row.far == 0.01
        sections = {model: result["verification"][name] for model, result in results.items()}
        auroc, tar = (
            [read(sections[model]) for model in ("poor", "plain")]
            for read in (
                lambda section: section["auroc"],
                lambda section: section["tar_at_far"]["0.01"]["value"],
            )
        )
        assert row.auroc.value == pytest.approx(auroc[0] - auroc[1], abs=1e-6)
        assert row.tar_at_far.value == pytest.approx(tar[0] - tar[1], abs=1e-6)
        assert {getattr(row, key).unit for key in MEASURES} == {unit}
        for key in ("accuracy", "auroc"):
            difference = getattr(row, key)
            assert difference.value < -0.05
            assert difference.ci95[0] <= difference.value <= difference.ci95[1] < 0
            assert difference.p_value < 0.01
        turned = difference_of(compare([folders["poor"], folders["plain"]]), name)
        assert turned.auroc.value == pytest.approx(-row.auroc.value)
        assert turned.auroc.ci95[0] > 0


def beside(named: Path, folder: Path, lines: list[str]) -> Path:
    """Another list of the same name over the same images."""
    folder.mkdir()
    for person in named.parent.iterdir():
        if person.is_dir():
            (folder / person.name).symlink_to(person)
    (folder / named.name).write_text("".join(lines))
    return folder / named.name


def test_other_pairs_of_the_same_images_are_left_out_too(
    folders: dict[str, Path], named: Path, tmp_path: Path
) -> None:
    lines = named.read_text().splitlines(keepends=True)
    more = beside(named, tmp_path / "more", [*lines, lines[1]])
    run_pairs(Plain(), ["verification"], [more], tmp_path / "other", BARE)
    hashes = [
        json.loads((folder / "result.json").read_text())["verification"]["named"]["data_sha256"]
        for folder in (folders["plain"], tmp_path / "other")
    ]
    assert hashes[0] == hashes[1]
    with pytest.raises(DataError, match="has nothing in common with"):
        compare([folders["plain"], tmp_path / "other"])


def test_a_set_with_too_few_impostors_for_any_rate_is_compared(named: Path, tmp_path: Path) -> None:
    lines = named.read_text().splitlines(keepends=True)
    genuine, impostors = ([line for line in lines if line.split(",")[2] == flag] for flag in "10")
    few = beside(named, tmp_path / "few", [lines[0], *genuine[:30], *impostors[::20]])
    for name, model in (("plain", Plain()), ("poor", Seeded("poor", 9, 0.5))):
        run_pairs(model, ["verification"], [few], tmp_path / name, BARE)
    row = difference_of(compare([tmp_path / "plain", tmp_path / "poor"]), "named")
    assert row.accuracy.value < 0


def test_results_with_nothing_in_common_are_refused(
    folders: dict[str, Path], drawn_faces: Path, non_faces: Path, tmp_path: Path
) -> None:
    run_ood(Plain(), [str(drawn_faces / "person_0000")], [str(non_faces)], tmp_path / "ood", BARE)
    with pytest.raises(DataError, match=r"nothing in common with .*ood: evaluate them on the same"):
        compare([folders["plain"], tmp_path / "ood"])
    with pytest.raises(DataError, match="at least two"):
        compare([folders["plain"]])
    with pytest.raises(DataError, match=r"no result\.json here"):
        compare([folders["plain"], tmp_path / "gone"])
