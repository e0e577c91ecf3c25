"""The scripts that redraw the RTS paper's tables and figures, on small results."""

from __future__ import annotations

import importlib
import json
import math
import re
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from facerts.benchmarks import PairBenchmark, pairs_from_identities
from facerts.benchmarks.bin_sets import save_bin
from facerts.datasets import open_source
from facerts.datasets.synthetic import write_non_faces, write_synthetic_faces
from facerts.detection.detector import Detection
from facerts.embedding import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.ood import run_ood
from facerts.evaluation.options import EvaluationOptions
from facerts.evaluation.result_folder import load_result
from facerts.evaluation.results.verification import AccuracyResult
from facerts.evaluation.run import run_pairs
from facerts.images.align import TEMPLATE
from facerts.metrics.reject import error_versus_reject, pair_quality
from tests.evaluation.conftest import Plain
from tests.scripts import run_script
from tests.shipped import write_model

pytestmark = pytest.mark.slow

EVAL = Path(__file__).parents[1] / "eval"
FMR = 0.05


class Doubtful(Plain):
    """Sees red alone, in its v too, which it has as RTS has it: its quality is −log v."""

    method = "rts"

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        seen = super().__call__(crops * np.array([1, 0, 0], dtype=np.uint8))
        v = np.exp(-20 * crops[..., 0].astype(np.float32).std(axis=(1, 2)) / 255)
        return FaceOutputs(seen.embedding, seen.norm, -np.log(v), v)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two benchmarks of drawn people: "first" and "second"."""
    folder = tmp_path_factory.mktemp("benchmarks")
    for name, seed in (("first", 11), ("second", 12)):
        write_synthetic_faces(folder / f"{name}_people", identities=20, images=4, seed=seed)
        save_bin(benchmark(folder / f"{name}_people"), folder / f"{name}.bin")
    return folder


def benchmark(people: Path) -> PairBenchmark:
    return pairs_from_identities(open_source(people), genuine=100, impostors=100, seed=2)


@pytest.fixture(scope="module")
def results(
    tmp_path_factory: pytest.TempPathFactory, data: Path, drawn_faces: Path, drawn_things: Path
) -> dict[str, Path]:
    """A folder with all sections for each of two models."""
    folder = tmp_path_factory.mktemp("results")
    options = EvaluationOptions(fmr=FMR, flip=False)
    found = {}
    for embedder in (Plain("plain", "a" * 64), Doubtful("doubtful", "b" * 64)):
        out = found[embedder.name] = folder / embedder.name
        run_pairs(
            embedder, ["verification", "reject"], [data / "first.bin", data / "second.bin"], out, options
        )
        faces = [str(drawn_faces), str(data / "first_people")]
        run_ood(embedder, faces, [str(drawn_things)], out, options)
        run_corruptions(embedder, [str(drawn_faces)], out, options, images=40)
    return found


def script(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run_script(EVAL / f"{name}.py", *arguments)


def table(name: str, *arguments: object) -> list[list[str]]:
    """Cells of the table that a script prints, its header first."""
    ran = script(name, *arguments)
    assert ran.returncode == 0, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert re.fullmatch(r"\|( -+ \|)+( -+: \|)+", lines.pop(1))
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def texts(path: Path) -> str:
    """All text of an SVG file, which must be well-formed and on white paper."""
    root = ElementTree.parse(path).getroot()
    assert root.tag.endswith("svg")
    assert "currentColor" not in path.read_text(encoding="utf-8")
    return " ".join(text for text in root.itertext() if text.strip())


def content(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "result.json").read_text(encoding="utf-8")))


def cell(value: float, interval: Sequence[float]) -> str:
    return f"{100 * value:.2f} [{100 * interval[0]:.2f}, {100 * interval[1]:.2f}]"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Import a script, for what no command shows."""
    monkeypatch.syspath_prepend(str(EVAL))

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def test_the_verification_table_has_the_results_accuracies_in_the_order_asked_for(
    results: dict[str, Path],
) -> None:
    header, *rows = table(
        "verification_table", f"λ=10={results['plain']}", results["doubtful"], "--sets", "second", "first"
    )
    assert header == ["model", "second", "first", "mean"]
    assert [row[0] for row in rows] == ["λ=10", "doubtful"]
    for row, name in zip(rows, ("plain", "doubtful"), strict=True):
        measured = content(results[name])["verification"]
        accuracies = [measured[benchmark]["accuracy"] for benchmark in ("second", "first")]
        assert row[1:3] == [cell(one["value"], one["ci95"]) for one in accuracies]
        assert row[3].startswith(f"{100 * np.mean([one['value'] for one in accuracies]):.2f} [")


def test_benchmarks_of_another_similarity_are_shown_where_they_are_asked_for(
    results: dict[str, Path], tmp_path: Path
) -> None:
    both = tmp_path / "both"
    shutil.copytree(results["plain"], both)
    result = content(both)
    result["verification"]["first (mls)"] = {
        **result["verification"]["first"],
        "similarity": "mls",
        "accuracy": {"value": 0.5, "fold_std": 0.1, "ci95": [0.4, 0.6]},
    }
    (both / "result.json").write_text(json.dumps(result), encoding="utf-8")
    header, row, _ = table("verification_table", f"a={both}", f"b={results['doubtful']}")
    assert header == ["model", "first", "second", "mean"]
    assert row[1:] == table("verification_table", f"a={results['plain']}")[1][1:]
    header, row = table("verification_table", f"a={both}", "--sets", "first (mls)")
    assert (header[1], row[1]) == ("first (mls)", "50.00 [40.00, 60.00]")
    out = tmp_path / "figures"
    ran = script("fig8_error_versus_reject", both, results["doubtful"], "--fmr", FMR, "--out", out)
    assert ran.returncode == 0, ran.stderr
    assert sorted(path.name for path in out.iterdir()) == ["fig8_first.svg", "fig8_second.svg"]


def test_the_interval_of_a_mean_of_equal_independent_ones_is_narrower_by_the_root_of_their_number(
    module: Any, results: dict[str, Path]
) -> None:
    common = module("common")
    (saved,) = common.load_labeled([str(results["plain"])])
    section = saved.verification("first")
    section.accuracy = AccuracyResult(value=0.9, fold_std=0.01, ci95=(0.86, 0.92))
    saved.content.verification = dict.fromkeys("abcd", section)
    mean = common.mean_accuracy(saved, "abcd")
    np.testing.assert_allclose(mean, (0.9, 0.88, 0.91))


def test_rows_sorted_by_label_follow_the_numbers_in_them(results: dict[str, Path]) -> None:
    labeled = [f"δ {delta}={results['plain']}" for delta in (16, 8, 32)]
    _, *rows = table("verification_table", *labeled, "--sort-by", "label", "--caption", "Table 5")
    assert [row[0] for row in rows] == ["δ 8", "δ 16", "δ 32"]


def test_the_ood_table_has_the_results_numbers_of_every_score_and_source(results: dict[str, Path]) -> None:
    """The only source of others by itself is all of them, and stands once."""
    header, *rows = table("ood_table", results["plain"], results["doubtful"], "--per-source")
    assert header == ["model", "score", "faces", "non-faces", "TNR@TPR90", "TNR@TPR95", "AUROC"]
    expected = []
    for name, folder in results.items():
        for score, pooled in content(folder)["ood"]["by"].items():
            for faces, others, result in (
                ("all", "all", pooled),
                *((one, "all", numbers) for one, numbers in pooled["per_source"].items()),
            ):
                numbers = {**result["tnr_at_tpr"], "auroc": result["auroc"]}
                cells = [cell(numbers[key], result["ci95"][key]) for key in ("0.90", "0.95", "auroc")]
                expected.append([name, score, faces, others, *cells])
    assert rows == expected
    assert {row[1] for row in rows} >= {"quality", "norm"}
    assert {row[2] for row in rows} == {"all", "faces", "first_people"}
    assert table("ood_table", results["plain"])[1:] == [
        [*row[:2], *row[4:]] for row in rows if row[0] == "plain" and row[2] == "all"
    ]


def test_the_density_of_t_has_its_area_mode_and_mean_where_the_paper_says(module: Any) -> None:
    density = module("fig3_temperature_density").temperature_density
    t = np.linspace(1e-4, 200, 2_000_001)
    for delta, v in ((3, 0.7), (8, 2.0), (16, 1.0), (32, 0.5)):
        values, step = density(t, delta, v), t[1] - t[0]
        assert values.sum() * step == pytest.approx(1, abs=2e-3)
        assert t[np.argmax(values)] == pytest.approx(v, abs=2 * step)
        assert (t * values).sum() * step == pytest.approx(v * delta / (delta - 2), rel=2e-3)


def test_figure_3_names_every_delta_and_v(tmp_path: Path) -> None:
    ran = script("fig3_temperature_density", "--delta", 4, 64, "--v", 0.25, 3, "--out", tmp_path / "f.svg")
    assert ran.returncode == 0, ran.stderr
    assert all(label in texts(tmp_path / "f.svg") for label in ("δ = 4", "δ = 64", "v = 0.25", "v = 3"))


def write_quality_log(run: Path, start: float, kinds: Sequence[str] = ("clean", "blur", "occlusion")) -> Path:
    """A training log whose median uncertainty of clean faces falls from a start, and of degraded ones rises."""
    run.mkdir(parents=True)
    lines: list[dict[str, Any]] = [{"kind": "train", "step": 10, "epoch": 0.1, "loss": 3.0}]
    for place, step in enumerate((0, 1000, 2000)):
        for kind in kinds:
            middle = start * (1 - 0.25 * place if kind == "clean" else 1 + 0.5 * place)
            lines.append(
                {
                    "kind": "quality", "step": step, "epoch": step / 1000, "name": "people",
                    "corruption": kind if kind == "clean" else f"{kind}/0.8",
                    "uncertainty_p5": 0.5 * middle, "uncertainty_p50": middle, "uncertainty_p95": 2 * middle,
                    "norm_p5": -3.0, "norm_p50": -2.0, "norm_p95": -1.0,
                }
            )  # fmt: skip
    (run / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return run


def test_figure_4_reads_percentiles_of_clean_and_degraded_faces_by_step(module: Any, tmp_path: Path) -> None:
    fig4, log = module("fig4_uncertainty_over_training"), write_quality_log(tmp_path / "run", 2.0)
    read = fig4.percentiles(fig4.read_log(log), "run", "blur", "uncertainty")
    np.testing.assert_allclose(read, [[0, 1000, 2000], [1, 1.5, 2], [2, 3, 4], [4, 6, 8]])
    clear = fig4.percentiles(fig4.read_log(log), "run", "clean", "norm")
    np.testing.assert_allclose(clear, [[0, 1000, 2000], [-3] * 3, [-2] * 3, [-1] * 3])


def test_figure_4_has_a_panel_for_each_label_and_a_line_for_each_run_and_set(tmp_path: Path) -> None:
    first, second, other = (
        write_quality_log(tmp_path / name, start) for name, start in (("rts1", 1), ("rts2", 1.1), ("dul", 3))
    )
    out = tmp_path / "f.svg"
    ran = script("fig4_uncertainty_over_training", f"RTS={first}", f"RTS={second}", other, "--out", out)
    assert ran.returncode == 0, ran.stderr
    shown = texts(out)
    labels = ("RTS", "dul", "clear", "poor: blur", "poor: occlusion", "training step", "uncertainty")
    assert all(shown.count(label) >= 1 for label in labels)
    assert "rts1" not in shown
    # The clear faces of two runs in one panel, thin, and of one in the other; the last line is the legend's.
    drawn = re.findall(r'style="fill: none; stroke: #3d85c6;([^"]*)"', out.read_text(encoding="utf-8"))
    assert [style.count("stroke-width: 1.8") for style in drawn] == [0, 0, 1, 0]
    ran = script("fig4_uncertainty_over_training", other, "--poor", "blur", "--score", "norm", "--out", out)
    assert ran.returncode == 0, ran.stderr
    shown = texts(out)
    assert ("poor: blur" in shown, "occlusion" in shown, "norm" in shown) == (True, False, True)


def test_figure_4_names_a_run_that_has_not_logged_what_is_asked_for(tmp_path: Path) -> None:
    run = write_quality_log(tmp_path / "run", 1, kinds=["clean", "blur"])
    ran = script("fig4_uncertainty_over_training", run, "--out", tmp_path / "f.svg")
    assert ran.returncode == 2
    assert f"{run}: its log has no uncertainty of occlusion faces" in " ".join(ran.stderr.split())
    assert "validation.degraded" in ran.stderr
    assert not (tmp_path / "f.svg").exists()


def test_v_is_not_made_up_for_methods_that_have_none(results: dict[str, Path], tmp_path: Path) -> None:
    ran = script("fig7_blur_distributions", results["plain"], "--score", "v", "--out", tmp_path / "f.svg")
    assert ran.returncode == 2
    assert "method is unknown" in ran.stderr


def test_v_is_computed_from_the_quality(results: dict[str, Path], module: Any) -> None:
    common = module("common")
    (saved,) = common.load_labeled([str(results["doubtful"])])
    quality = saved.arrays["corruptions/faces/blur/1/quality"]
    v = common.corruption_scores(saved, "faces", "blur/1", "v")
    np.testing.assert_allclose(np.log(v), -quality, rtol=1e-6)


def width_of(path: Path) -> float:
    return float(ElementTree.parse(path).getroot().attrib["width"].removesuffix("pt"))


def test_figure_5_has_a_panel_for_each_folder(tmp_path: Path, results: dict[str, Path]) -> None:
    out = tmp_path / "f.svg"
    ran = script("fig5_score_histograms", f"a/b={results['plain']}", results["doubtful"], "--out", out)
    assert ran.returncode == 0, ran.stderr
    shown = texts(out)
    labels = ("quality, a/b", "quality, doubtful", "faces", "first_people", "things")
    assert all(label in shown for label in labels)
    # A legend for both.
    assert shown.count("things") == 1


def test_six_panels_of_figure_5_are_in_three_columns(tmp_path: Path, results: dict[str, Path]) -> None:
    two, six = tmp_path / "two.svg", tmp_path / "six.svg"
    methods = [f"{name}={results['doubtful']}" for name in "ABCDEF"]
    for out, given in ((two, methods[:2]), (six, methods)):
        ran = script(
            "fig5_score_histograms", *given, "--score", "uncertainty", "--faces", "first_people", "--out", out
        )
        assert ran.returncode == 0, ran.stderr
    assert width_of(six) == pytest.approx(1.5 * width_of(two))
    found = re.findall(
        r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>uncertainty, [A-F]<', six.read_text(encoding="utf-8")
    )
    places = [(round(float(x)), round(float(y))) for x, y in found]
    assert len(places) == 6
    assert (len({x for x, _ in places}), len({y for _, y in places})) == (3, 2)
    assert not re.search(r"\bfaces\b", texts(six))


def test_figure_5_refuses_faces_that_were_not_measured(tmp_path: Path, results: dict[str, Path]) -> None:
    out = tmp_path / "f.svg"
    ran = script("fig5_score_histograms", results["plain"], "--faces", "faces", "aaf", "--out", out)
    assert ran.returncode == 2
    assert "no array 'ood/aaf/quality'" in ran.stderr
    assert not out.exists()


def test_figure_6_shows_the_kept_pictures_from_the_lowest_uncertainty_to_the_highest(
    tmp_path: Path, results: dict[str, Path]
) -> None:
    ran = script("fig6_sorted_faces", results["plain"], "--of", "ood/faces", "--out", tmp_path / "f.html")
    assert ran.returncode == 0, ran.stderr
    assert "may not allow" in ran.stderr
    page = (tmp_path / "f.html").read_text(encoding="utf-8")
    _, arrays = load_result(results["plain"])
    rows, ends = arrays["ood/faces/shown_rows"], arrays["ood/faces/shown_ends"]
    order = np.argsort(arrays["ood/faces/uncertainty"][rows], kind="stable")
    assert re.findall(r'title="([^"]*)"', page) == arrays["ood/faces/names"][rows][order].tolist()
    pictures = [
        b64encode(one.tobytes()).decode() for one in np.split(arrays["ood/faces/shown_jpeg"], ends[:-1])
    ]
    assert re.findall(r"base64,([^\"]*)", page) == [pictures[place] for place in order]


def test_figure_6_asks_which_pictures_are_meant(tmp_path: Path, results: dict[str, Path]) -> None:
    ran = script("fig6_sorted_faces", results["plain"], "--out", tmp_path / "f.html")
    assert ran.returncode == 2
    assert "ood/faces, ood/first_people, ood/things, verification/first, verification/second" in " ".join(
        ran.stderr.split()
    )


def test_figure_7_has_a_panel_for_each_method_and_a_histogram_for_each_radius(
    tmp_path: Path, results: dict[str, Path]
) -> None:
    ran = script(
        "fig7_blur_distributions", results["plain"], f"RTS={results['doubtful']}", "--out", tmp_path / "f.svg"
    )
    assert ran.returncode == 0, ran.stderr
    shown = texts(tmp_path / "f.svg")
    labels = (
        "as they are",
        "blur, radius 2",
        "blur, radius 3",
        "blur, radius 5",
        "quality, plain",
        "quality, RTS",
    )
    assert all(label in shown for label in labels)


def test_figure_7_refuses_a_radius_that_was_not_measured(tmp_path: Path, results: dict[str, Path]) -> None:
    ran = script("fig7_blur_distributions", results["plain"], "--radius", 2.5, "--out", tmp_path / "f.svg")
    assert ran.returncode == 2
    assert "blur/0.5/quality" in ran.stderr


def test_figure_8_is_the_reject_section_for_the_first_and_uses_its_similarities_for_the_others(
    module: Any, results: dict[str, Path]
) -> None:
    saved = module("common").load_labeled([str(folder) for folder in results.values()])
    curves, best = module("fig8_error_versus_reject").reject_curves(saved, "first", "quality", FMR)
    section = content(results["plain"])["reject"]["first"]
    own = next(one for one in section if one["by"] == "quality" and one["convention"] == "fixed")
    np.testing.assert_allclose(curves["plain"].fnmr, own["fnmr"], atol=1e-12)
    np.testing.assert_allclose(best.fnmr, own["oracle_fnmr"], atol=1e-12)
    ours, theirs = saved[0].arrays, saved[1].arrays
    quality = pair_quality(theirs["verification/first/quality"], ours["verification/first/pairs"])
    expected = error_versus_reject(
        ours["verification/first/scores"], ours["verification/first/same"], quality, fmr=FMR
    )
    np.testing.assert_allclose(curves["doubtful"].fnmr, expected.fnmr)
    assert (curves["doubtful"].fnmr != curves["plain"].fnmr).any()


def test_figure_8_matches_pictures_by_name_whatever_their_order(
    module: Any, results: dict[str, Path]
) -> None:
    common, fig8 = module("common"), module("fig8_error_versus_reject")
    first, other = common.load_labeled([str(folder) for folder in results.values()])
    straight, _ = fig8.reject_curves([first, other], "first", "quality", FMR)
    for key in ("names", "quality"):
        other.arrays[f"verification/first/{key}"] = other.arrays[f"verification/first/{key}"][::-1]
    turned, _ = fig8.reject_curves([first, other], "first", "quality", FMR)
    np.testing.assert_array_equal(turned["doubtful"].fnmr, straight["doubtful"].fnmr)
    renamed = other.arrays["verification/first/names"].copy()
    lost, renamed[0] = renamed[0], "else"
    other.arrays["verification/first/names"] = renamed
    with pytest.raises(DataError, match=f"first has no image '{lost}'"):
        fig8.reject_curves([first, other], "first", "quality", FMR)


def test_figure_8_is_drawn_for_every_benchmark(tmp_path: Path, results: dict[str, Path]) -> None:
    ran = script("fig8_error_versus_reject", *results.values(), "--fmr", FMR, "--out", tmp_path)
    assert ran.returncode == 0, ran.stderr
    for name in ("first", "second"):
        shown = texts(tmp_path / f"fig8_{name}.svg")
        labels = ("plain", "doubtful", "best possible", "at random", f"FNMR at FMR 0.05, {name}")
        assert all(label in shown for label in labels)


def test_figure_8_refuses_a_rate_that_the_impostor_pairs_cannot_show(
    tmp_path: Path, results: dict[str, Path]
) -> None:
    ran = script("fig8_error_versus_reject", results["plain"], "--out", tmp_path)
    assert ran.returncode == 2
    assert "at least 1,000 impostor pairs" in ran.stderr


def test_figure_9_has_a_labeled_point_for_each_method(tmp_path: Path, results: dict[str, Path]) -> None:
    ran = script(
        "fig9_accuracy_against_ood",
        results["plain"],
        f"RTS={results['doubtful']}",
        "--out",
        tmp_path / "f.svg",
    )
    assert ran.returncode == 0, ran.stderr
    shown = texts(tmp_path / "f.svg")
    assert all(label in shown for label in ("plain", "RTS", "AUROC of quality", "mean of first, second"))


def test_folders_of_one_label_are_one_method_in_figure_9(tmp_path: Path, results: dict[str, Path]) -> None:
    first, out = results["doubtful"], tmp_path / "f.svg"
    second = shutil.copytree(first, tmp_path / "second")
    result = content(second)
    result["model"]["sha256"] = "c" * 64
    result["verification"]["first"]["accuracy"]["value"] -= 0.1
    (second / "result.json").write_text(json.dumps(result), encoding="utf-8")
    given = [results["plain"], f"RTS={first}", f"RTS={second}"]
    ran = script("fig9_accuracy_against_ood", *given, "--out", out)
    assert ran.returncode == 0, ran.stderr
    assert texts(out).count("RTS") == 1
    assert "plain" in texts(out)
    ran = script("fig9_accuracy_against_ood", f"RTS={first}", f"RTS={first}", "--out", out)
    assert ran.returncode == 2
    assert "same model" in " ".join(ran.stderr.split())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("verification_table", "verification"),
        ("ood_table", "ood"),
        ("fig5_score_histograms", "ood"),
        ("fig6_sorted_faces", "ood"),
        ("fig7_blur_distributions", "corruptions"),
        ("fig8_error_versus_reject", "verification"),
        ("fig9_accuracy_against_ood", "ood"),
    ],
)
def test_a_folder_without_the_section_ends_the_script_with_one_sentence(
    tmp_path: Path, results: dict[str, Path], name: str, kind: str
) -> None:
    folder = shutil.copytree(results["doubtful"], tmp_path / "less")
    result = content(folder)
    del result[kind]
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    _, arrays = load_result(folder)
    np.savez(
        folder / "arrays.npz", **{key: value for key, value in arrays.items() if not key.startswith(kind)}
    )
    options = [] if name.endswith("table") else ["--out", tmp_path / "drawn"]
    options += ["--of", "ood/faces"] if name == "fig6_sorted_faces" else []
    ran = script(name, f"1={folder}", *options)
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
    assert ran.stderr.count("error:") == 1
    assert str(folder) in ran.stderr
    assert kind in ran.stderr
    assert not (tmp_path / "drawn").exists()


def test_two_results_of_one_label_are_refused(results: dict[str, Path]) -> None:
    ran = script("ood_table", results["plain"], results["plain"])
    assert ran.returncode == 2
    assert "LABEL=FOLDER" in ran.stderr


def test_results_on_other_pictures_are_told_of(tmp_path: Path, results: dict[str, Path]) -> None:
    folder = shutil.copytree(results["doubtful"], tmp_path / "other")
    result = content(folder)
    result["verification"]["first"]["data_sha256"] = "0" * 64
    (folder / "result.json").write_text(json.dumps(result), encoding="utf-8")
    ran = script("verification_table", results["plain"], folder)
    assert ran.returncode == 0
    assert ran.stderr.count("warning:") == 1
    assert "first:" in ran.stderr


def test_crops_of_the_packages_pictures_are_squares_of_them_and_the_same_every_time(
    tmp_path: Path, module: Any
) -> None:
    ran = script("sample_images", "--out", tmp_path / "a", "--crops", 2)
    assert ran.returncode == 0, ran.stderr
    script("sample_images", "--out", tmp_path / "b", "--crops", 2)
    first, second = (open_source(tmp_path / name) for name in "ab")
    assert len(first) == 2 * len(module("sample_images").image_files()) > 30
    assert all(np.array_equal(first.crop(i), second.crop(i)) for i in range(0, len(first), 7))
    plane = np.arange(90, dtype=np.uint8)[:, None, None] * np.ones((1, 200, 3), dtype=np.uint8)
    for seed in range(20):
        square = module("sample_images").square(plane, np.random.default_rng(seed))
        # A square is no less high than wide: rows rise as in the picture, over 32 to 90 of them.
        assert (np.diff(square[:, 0, 0].astype(int)) >= 0).all()
        assert 30 <= np.ptp(square[:, 0, 0]) <= 89


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory, results: dict[str, Path]) -> Path:
    """Two methods with two training runs each, of which the second runs are the same model."""
    folder = tmp_path_factory.mktemp("seeds")
    for name, model in (
        ("a_seed1", "plain"), ("a_seed2", "doubtful"), ("b_seed1", "doubtful"), ("b_seed2", "doubtful")
    ):  # fmt: skip
        shutil.copytree(results[model], folder / name)
    return folder


PAPER_TABLE = ["--benchmark", "first", "--faces", "faces", "first_people", "--replicates", 20]


def paper_tables(*arguments: object) -> tuple[list[list[str]], list[list[str]]]:
    """Cells of the table of means and of that of differences."""
    ran = script("paper_tables", *arguments)
    assert ran.returncode == 0, ran.stderr
    means, _, differences = ran.stdout.partition("Difference from")
    return tuple(
        [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in text.splitlines()
            if line.startswith("|") and "---" not in line
        ]
        for text in (means, differences)
    )


def student(values: Sequence[float], form: str) -> str:
    """The mean of two values and its interval, in percent; that of shares is within 0 and 100."""
    center, margin = np.mean(values), 12.7062047 * np.std(values, ddof=1) / math.sqrt(2)
    ends = np.array([center - margin, center + margin])
    if not form.startswith("+"):
        ends = ends.clip(0, 1)
    numbers = [100 * number for number in (center, *ends)]
    return "{} [{}, {}]".format(*(f"{number:{form}}" for number in numbers))


def test_a_paper_table_has_means_over_seeds_and_paired_differences(
    seeds: Path, results: dict[str, Path], tmp_path: Path
) -> None:
    means, differences = paper_tables(
        seeds, "reference=a", "b", "its norm=a:norm", *PAPER_TABLE, "--figure", tmp_path / "f.svg"
    )
    plain, doubtful = (content(results[name]) for name in ("plain", "doubtful"))
    header, reference, b, norm = means
    assert header == [
        *("", "seeds", "first, accuracy", "non-faces, AUROC", "non-faces, TNR@TPR95"),
        *("faces, AUROC", "first_people, AUROC", "degraded, AUROC", "first, FNMR to 20 % rejected"),
    ]  # fmt: skip
    assert (reference[:2], b[:2], norm[:2]) == (["reference", "2"], ["b", "2"], ["its norm", "2"])

    def of(result: dict[str, Any], score: str = "quality") -> list[float]:
        ood = result["ood"]["by"][score]
        curve = next(
            one for one in result["reject"]["first"] if one["by"] == score and one["convention"] == "fixed"
        )
        return [
            result["verification"]["first"]["accuracy"]["value"],
            *(ood["auroc"], ood["tnr_at_tpr"]["0.95"]),
            *(ood["per_source"][name]["auroc"] for name in ("faces", "first_people")),
            curve["area"]["0.2"],
        ]

    places = [2, 3, 4, 5, 6, 8]
    for row, score in ((reference, "quality"), (norm, "norm")):
        expected = [student(both, ".2f") for both in zip(of(plain, score), of(doubtful, score), strict=True)]
        assert [row[place] for place in places] == expected
    assert [row[:2] for row in differences[1:]] == [["b", "2"], ["its norm", "2"]]
    for place, ours, theirs in zip(places, of(doubtful), of(plain), strict=True):
        assert differences[1][place].partition(" {")[0] == student([ours - theirs, 0], "+.2f")
        assert ("{" in differences[1][place]) == (place < 8)
    # The second runs are the same, so that half of the difference of the first ones remains, on any images.
    low, high = differences[1][3].partition(" {")[2].rstrip("}").split(", ")
    assert float(low) <= 50 * (of(doubtful)[1] - of(plain)[1]) <= float(high)
    shown = texts(tmp_path / "f.svg")
    assert all(label in shown for label in ("difference from reference", "its norm", "degraded, AUROC"))


def test_clean_faces_are_separated_from_degraded_ones_of_all_kinds_and_of_one(
    seeds: Path, results: dict[str, Path]
) -> None:
    columns = ["--measures", "blur/0.6, AUROC", "degraded, AUROC"]
    means, _ = paper_tables(seeds, "a", "b", *PAPER_TABLE, "--steps", "blur/0.6", *columns)
    assert means[0] == ["", "seeds", *columns[1:]]
    _, arrays = load_result(results["doubtful"])
    steps = {
        "degraded, AUROC": r"corruptions/faces/\w+/(0\.[468]|1)/quality",
        "blur/0.6, AUROC": "corruptions/faces/blur/0.6/quality",
    }
    for name, pattern in steps.items():
        clean = arrays["corruptions/faces/clean/quality"]
        degraded = np.concatenate([arrays[key] for key in arrays if re.fullmatch(pattern, key)])
        expected = np.mean(clean[:, None] > degraded) + np.mean(clean[:, None] == degraded) / 2
        assert means[2][means[0].index(name)] == student([expected, expected], ".2f")


@pytest.fixture
def scales(module: Any) -> Any:
    return module("scale_scores")


def test_scores_of_scales_are_the_means_and_the_mode_of_the_gamma_with_these_moments(scales: Any) -> None:
    v = np.random.default_rng(3).gamma(4.0, size=(50, 16))
    found = {name: score(np.log(v)) for name, score in scales.SCORES.items()}
    np.testing.assert_allclose(np.exp(found["arithmetic mean"]), v.mean(axis=1))
    np.testing.assert_allclose(np.exp(found["geometric mean"]), stats.gmean(v, axis=1))
    mean, variance = v.sum(axis=1) / 14, 2 * (v**2).sum(axis=1) / 14**2
    shape, scale = mean**2 / variance, variance / mean
    np.testing.assert_allclose(found["mode of t"], (shape - 1) * scale)
    equal = np.full((3, 16), math.log(1.7))
    np.testing.assert_allclose(scales.SCORES["mode of t"](equal), 1.7)


def test_scores_of_scales_are_compared_on_models_of_rts_only(
    tmp_path: Path, drawn_faces: Path, drawn_things: Path
) -> None:
    arguments = ["--in", drawn_faces, "--out-of", drawn_things, "--heldout", drawn_faces]
    header, *rows = table("scale_scores", EVAL.parent / "models" / "facerts-small.onnx", *arguments)
    assert header[:2] == ["score", "models"]
    assert [row[:2] for row in rows] == [[n, "1"] for n in ("arithmetic mean", "geometric mean", "mode of t")]
    assert all(0 <= float(value) <= 100 for row in rows for value in row[2:])
    rejected = script("scale_scores", *arguments, write_model(tmp_path / "other.onnx"))
    assert rejected.returncode == 2
    assert "has no output log_scale; only models trained with rts do" in rejected.stderr


def test_a_paper_table_needs_runs_with_a_common_seed(seeds: Path, tmp_path: Path) -> None:
    ran = script("paper_tables", seeds, "c")
    assert ran.returncode == 2
    assert "no results of 'c'" in ran.stderr
    ran = script("paper_tables", seeds, "norm=a:norm", "norm=b:norm")
    assert ran.returncode == 2
    assert "2 rows have the name 'norm'" in ran.stderr
    ran = script("paper_tables", seeds, "a", *PAPER_TABLE, "--measures", "accuracy")
    assert ran.returncode == 2
    assert "--measures 'accuracy': must be one of 'first, accuracy', 'non-faces, AUROC'" in ran.stderr
    shutil.copytree(seeds / "a_seed1", tmp_path / "a_seed1")
    shutil.copytree(seeds / "b_seed2", tmp_path / "b_seed2")
    ran = script("paper_tables", tmp_path, "a", "b", *PAPER_TABLE)
    assert ran.returncode == 2
    assert "no seed in common" in ran.stderr
    shutil.copytree(seeds / "b_seed1", tmp_path / "b_seed1")
    result = content(tmp_path / "b_seed1")
    result["ood"]["data_sha256"]["things"] = 64 * "0"
    (tmp_path / "b_seed1" / "result.json").write_text(json.dumps(result), encoding="utf-8")
    ran = script("paper_tables", tmp_path, "a", "b", *PAPER_TABLE)
    assert ran.returncode == 2
    assert "b_seed1 was measured on other images than" in ran.stderr


def test_photos_are_aligned_by_a_detector_and_others_left_out(
    tmp_path: Path, drawn_faces: Path, module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    align_crops = module("align_crops")
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


def test_several_sources_of_non_faces_are_measured_one_by_one_too(
    drawn_faces: Path, drawn_things: Path, tmp_path: Path
) -> None:
    write_non_faces(tmp_path / "more", images=12, seed=9)
    others = [str(drawn_things), str(tmp_path / "more")]
    for label, embedder in (("a", Plain("plain", "a" * 64)), ("b", Doubtful("doubtful", "b" * 64))):
        run_ood(
            embedder, [str(drawn_faces)], others, tmp_path / f"{label}_seed1", EvaluationOptions(flip=False)
        )
    means, _ = paper_tables(tmp_path, "a", "b", "--faces", "faces", "--replicates", "20")
    for row, label in zip(means[1:], "ab", strict=True):
        by = content(tmp_path / f"{label}_seed1")["ood"]["by"]["quality"]["per_out_source"]
        for name in ("things", "more"):
            assert row[means[0].index(f"non-faces {name}, AUROC")] == f"{100 * by[name]['auroc']:.2f}"
