"""The scripts that redraw the RTS paper's tables and figures, on small results."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.benchmarks import pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.detection.detector import Detection
from facerts.embedding import FaceOutputs
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.result_folder import load_result
from facerts.images.align import TEMPLATE
from facerts.metrics.resample import subject_counts
from tests.evaluation.conftest import Plain
from tests.scripts import EVAL, cells_of, load_script, run_script

FMR = 0.05


class RedOnly(Plain):
    """Sees red alone, in its v too, which it has as RTS has it: its quality is −log v."""

    method = "rts"

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        seen = super().__call__(crops * np.array([1, 0, 0], dtype=np.uint8))
        v = np.exp(-20 * crops[..., 0].astype(np.float32).std(axis=(1, 2)) / 255)
        return FaceOutputs(seen.embedding, seen.norm, -np.log(v), v)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory, few_replicates: None) -> Path:
    """A benchmark of synthetic people."""
    folder = tmp_path_factory.mktemp("benchmarks")
    write_synthetic_faces(folder / "first_people", identities=20, images=4, seed=11)
    pairs = pairs_from_identities(open_source(folder / "first_people"), genuine=100, impostors=100, seed=2)
    save_bin(pairs, folder / "first.bin")
    return folder


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, data: Path, drawn_faces: Path, non_faces: Path
) -> dict[str, Path]:
    """A folder with all sections for each of two models."""
    folder = tmp_path_factory.mktemp("results")
    options = EvaluationOptions(fmr=FMR, flip=False)
    found = {}
    for embedder in (Plain("plain", "a" * 64), RedOnly("red", "b" * 64)):
        out = found[embedder.name] = folder / embedder.name
        run_pairs(embedder, ["verification", "reject"], [data / "first.bin"], out, options)
        faces = [str(drawn_faces), str(data / "first_people")]
        run_ood(embedder, faces, [str(non_faces)], out, options)
        run_corruptions(
            embedder, [str(drawn_faces)], out, options, images=12, kinds=("blur", "jpeg", "rotation")
        )
    return found


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_script(EVAL / f"{name}.py", *arguments)


def content(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, results: dict[str, Path]) -> Path:
    """Two methods with two training runs each, of which the second runs are the same model."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, model in (
        ("a_seed1", "plain"), ("a_seed2", "red"), ("b_seed1", "red"), ("b_seed2", "red")
    ):  # fmt: skip
        shutil.copytree(results[model], folder / name)
    return folder


PAPER_TABLE = ["--faces", "faces", "first_people", "--replicates", 20]


def paper_tables(*arguments: object) -> tuple[list[list[str]], list[list[str]]]:
    """Cells of the table of means and of that of differences."""
    ran = script("paper_tables", *arguments)
    assert ran.returncode == 0, ran.stderr
    means, _, differences = ran.stdout.partition("Difference from")
    return cells_of(means), cells_of(differences)


def student(values: Sequence[float], form: str) -> str:
    """The mean of two values and its interval, in percent; that of shares is within 0 and 100."""
    center, margin = np.mean(values), 12.7062047 * np.std(values, ddof=1) / math.sqrt(2)
    ends = np.array([center - margin, center + margin])
    if not form.startswith("+"):
        ends = ends.clip(0, 1)
    numbers = [100 * number for number in (center, *ends)]
    return "{} [{}, {}]".format(*(f"{number:{form}}" for number in numbers))


def test_a_paper_table_has_means_over_seeds_and_paired_differences(
    seeds: Path, results: dict[str, Path]
) -> None:
    means, differences = paper_tables(seeds, "reference=a", "b", "its norm=a:norm", *PAPER_TABLE)
    plain, red = (content(results[name]) for name in ("plain", "red"))
    header, reference, b, norm = means
    assert header == [
        *("", "seeds", "first, accuracy", "first, TAR@FAR0.01"),
        *("non-faces, AUROC", "non-faces, TNR@TPR90", "non-faces, TNR@TPR95"),
        *("faces, AUROC", "first_people, AUROC", "degraded, AUROC", "first, FNMR to 20% rejected"),
    ]  # fmt: skip
    assert (reference[:2], b[:2], norm[:2]) == (["reference", "2"], ["b", "2"], ["its norm", "2"])

    def of(result: dict[str, Any], score: str = "quality") -> list[float]:
        ood = result["ood"]["by"][score]
        curve = next(one for one in result["reject"]["first"] if one["by"] == score)
        return [
            result["verification"]["first"]["accuracy"]["value"],
            result["verification"]["first"]["tar_at_far"]["0.01"]["value"],
            *(ood["auroc"], ood["tnr_at_tpr"]["0.90"], ood["tnr_at_tpr"]["0.95"]),
            *(ood["per_source"][name]["auroc"] for name in ("faces", "first_people")),
            curve["area"]["0.2"],
        ]

    places = [2, 3, 4, 5, 6, 7, 8, 10]
    for row, score in ((reference, "quality"), (norm, "norm")):
        expected = [student(both, ".2f") for both in zip(of(plain, score), of(red, score), strict=True)]
        assert [row[place] for place in places] == expected
    assert [row[:2] for row in differences[1:]] == [["b", "2"], ["its norm", "2"]]
    for place, ours, theirs in zip(places, of(red), of(plain), strict=True):
        assert differences[1][place].partition(" {")[0] == student([ours - theirs, 0], "+.2f")
        assert ("{" in differences[1][place]) == (place < 10)
    # The second runs are the same, so that half of the difference of the first ones remains, on any images.
    low, high = differences[1][4].partition(" {")[2].rstrip("}").split(", ")
    assert float(low) <= 50 * (of(red)[2] - of(plain)[2]) <= float(high)


def test_a_table_of_kept_values_is_that_of_the_runs_without_intervals_over_images(
    seeds: Path, tmp_path: Path
) -> None:
    kept = tmp_path / "values.csv"
    rows = ["reference=a", "b", "its norm=a:norm"]
    for row in rows:
        assert script("paper_tables", seeds, row, *PAPER_TABLE, "--values", kept).returncode == 0
    means, differences = paper_tables(seeds, *rows, *PAPER_TABLE)
    shutil.copy(kept, tmp_path / "more.csv")
    more = load_script("run_values")
    more.add_values(tmp_path / "more.csv", {("b", 7): {"first, accuracy": 0.5}, ("c", 5): {"another": 0.25}})
    assert more.by_seed(tmp_path / "more.csv", "c") == {5: {"another": 0.25}}
    found = paper_tables(kept, *rows)
    assert found[0] == means
    assert found[1] == [[cell.partition(" {")[0] for cell in row] for row in differences]
    accuracy, _ = paper_tables(tmp_path / "more.csv", "b", "b again=b", "--measures", "first, accuracy")
    assert [row[1] for row in accuracy[1:]] == ["3", "3"]
    more.add_values(tmp_path / "more.csv", {("c", 5): {"first, accuracy": 0.75}, ("d", 1): {"another": 0.5}})
    for arguments, message in (
        (["c=no"], "no run of 'no'"),
        (["a", "c"], "c and a have no seed in common"),
        (["a", "d"], "the rows have no measure in common"),
        (["a", "b", "--measures", "another"], "a with seed 1 has no 'another'"),
    ):
        ran = script("paper_tables", tmp_path / "more.csv", *arguments)
        assert ran.returncode == 2
        assert message in ran.stderr
    (tmp_path / "bad.csv").write_text("label,seed,x\na,one,0.5\n")
    assert "bad.csv, line 2: " in script("paper_tables", tmp_path / "bad.csv", "a").stderr


@pytest.mark.slow
def test_clean_faces_are_separated_from_degraded_ones_of_all_kinds_and_of_one(
    seeds: Path, results: dict[str, Path]
) -> None:
    columns = ["--measures", "blur/0.6, AUROC", "degraded, AUROC"]
    means, _ = paper_tables(seeds, "a", "b", *PAPER_TABLE, "--steps", "blur/0.6", *columns)
    assert means[0] == ["", "seeds", *columns[1:]]
    _, arrays = load_result(results["red"])
    steps = {
        "degraded, AUROC": r"corruptions/faces/(blur|jpeg)/(0\.[468]|1)/quality",
        "blur/0.6, AUROC": "corruptions/faces/blur/0.6/quality",
    }
    for name, pattern in steps.items():
        clean = arrays["corruptions/faces/clean/quality"]
        degraded = np.concatenate([arrays[key] for key in arrays if re.fullmatch(pattern, key)])
        expected = np.mean(clean[:, None] > degraded) + np.mean(clean[:, None] == degraded) / 2
        assert means[2][means[0].index(name)] == student([expected, expected], ".2f")


@pytest.mark.slow
def test_a_paper_table_needs_runs_with_a_common_seed(seeds: Path, tmp_path: Path) -> None:
    apart, other = tmp_path / "apart", tmp_path / "other"
    for name, folder in (("a_seed1", apart), ("b_seed2", apart), ("a_seed1", other), ("b_seed1", other)):
        shutil.copytree(seeds / name, folder / name)
    result = content(other / "b_seed1")
    result["ood"]["data_sha256"]["things"] = 64 * "0"
    (other / "b_seed1" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    for arguments, message in (
        ([seeds, "c"], "no c_seedN with a result.json"),
        ([seeds, "norm=a:norm", "norm=b:norm"], "2 rows have the name 'norm'"),
        (
            [seeds, "a", *PAPER_TABLE, "--measures", "accuracy"],
            "must be one of 'first, accuracy', 'first, TAR",
        ),
        ([apart, "a", "b", *PAPER_TABLE], "no seed in common"),
        ([other, "a", "b", *PAPER_TABLE], "b_seed1 was measured on other images than"),
    ):
        ran = script("paper_tables", *arguments)
        assert ran.returncode == 2
        assert message in ran.stderr


def test_photos_are_aligned_by_a_detector_and_others_left_out(
    tmp_path: Path, drawn_faces: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    align_crops = load_script("align_crops")
    people = open_source(drawn_faces)
    kept = range(0, len(people), 2)
    images = {people.crop(index).tobytes() for index in kept}

    class OfSome:
        identity = "of some images"

        def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
            box = np.array([20.0, 20.0, 90.0, 90.0])
            return [Detection(box, TEMPLATE.astype(np.float64), 0.9)] if image.tobytes() in images else []

    monkeypatch.setattr(align_crops, "open_detector", lambda path: OfSome())
    monkeypatch.setattr(
        "sys.argv", ["align_crops.py", str(drawn_faces), "--detector", "y", "--out", str(tmp_path)]
    )
    align_crops.main()
    written = sorted(str(path.relative_to(tmp_path).with_suffix("")) for path in tmp_path.rglob("*.png"))
    assert written == sorted(str(Path(people.key(index)).with_suffix("")) for index in kept)


@pytest.mark.slow
def test_several_sources_of_non_faces_are_measured_one_by_one_too(
    drawn_faces: Path, non_faces: Path, tmp_path: Path
) -> None:
    write_non_faces(tmp_path / "more", images=12, seed=9)
    others = [str(non_faces), str(tmp_path / "more")]
    for label, embedder in (("a", Plain("plain", "a" * 64)), ("b", RedOnly("red", "b" * 64))):
        run_ood(
            embedder, [str(drawn_faces)], others, tmp_path / f"{label}_seed1", EvaluationOptions(flip=False)
        )
    means, _ = paper_tables(tmp_path, "a", "b", "--faces", "faces", "--replicates", "20")
    for row, label in zip(means[1:], "ab", strict=True):
        by = content(tmp_path / f"{label}_seed1")["ood"]["by"]["quality"]["per_out_source"]
        for name in ("things", "more"):
            assert row[means[0].index(f"non-faces {name}, AUROC")] == f"{100 * by[name]['auroc']:.2f}"


def test_a_rate_of_pairs_is_resampled_by_people() -> None:
    """Against a loop over the resamples: a pair of one person counts as often as it, others as often as both."""
    random = np.random.default_rng(0)
    first, second = random.integers(0, 5, (2, 60))
    counted, among = random.random((2, 60)) > 0.4
    shares = []
    for counts in subject_counts(5, 1000, seed=0):
        weights = np.where(first == second, counts[first], counts[first] * counts[second]) * among
        if weights.sum():
            shares.append(np.average(counted, weights=weights))
    low, high = np.quantile(shares, [0.025, 0.975])
    rate = load_script("common").rate_of_pairs
    assert rate(counted, among, (first, second)) == f"{counted[among].mean():.4f} [{low:.4f}, {high:.4f}]"
    nothing = np.zeros(60, dtype=bool)
    assert rate(nothing, among, (first, second), rule_of_three=True) == "0.0000 [0.0000, 0.6000]"
    assert rate(counted, nothing, (first, second)) == "–"
    by_person = load_script("common").resampled_rate(np.array([1.0, 0, 2]), np.array([1.0, 2, 3]))
    assert by_person[0] == 0.5
    assert ((by_person >= 0) & (by_person <= 1)).all()
