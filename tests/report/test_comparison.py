"""The files that a comparison writes: tables in Markdown, figures, and the page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.axes import Axes

from facerts.errors import DataError
from facerts.evaluation.benchmark_runs import run_pairs
from facerts.evaluation.compare import MethodRuns, compare_methods, methods_of
from facerts.evaluation.corruption_benchmark import run_corruptions
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.labeled import Measured, load_labeled
from facerts.evaluation.ood import run_ood
from facerts.evaluation.results import Comparison
from facerts.report import figures
from facerts.report.comparison_report import subjects_of, write_comparison_report
from facerts.report.comparison_tables import method_tables
from tests.evaluation.conftest import Seeded

pytestmark = pytest.mark.slow

LOG = [
    {"kind": "train", "step": s, "epoch": s / 4, "v_p5": 1.0, "v_p50": 1.5 + s, "v_p95": 9.0}
    for s in range(1, 5)
]


@pytest.fixture(scope="module")
def methods(named: Path, non_faces: Path, tmp_path_factory: pytest.TempPathFactory) -> list[MethodRuns]:
    """Two seeds of "A=1" with training logs, and "B", much worse."""
    people = named.parent
    home = tmp_path_factory.mktemp("compared")
    options = EvaluationOptions(flip=False, keep_crops=False, fmr=0.05)
    labeled = []
    for number, (label, noise) in enumerate((("A=1", 0.02), ("A=1", 0.02), ("B", 0.5))):
        out, model = home / str(number), Seeded(label, number, noise)
        run_pairs(model, ["verification", "reject"], [named], out, options)
        run_ood(model, [str(people)], [str(non_faces)], out, options)
        run_corruptions(model, [str(people)], out, options, images=12)
        labeled.append(f"{label}={out}")
    (home / "0" / "log.jsonl").write_text("\n".join(map(json.dumps, LOG)))
    return methods_of(load_labeled(labeled))


@pytest.fixture(scope="module")
def comparison(methods: list[MethodRuns]) -> Comparison:
    return compare_methods(methods)


@pytest.fixture(scope="module")
def written(
    methods: list[MethodRuns], comparison: Comparison, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("written")
    write_comparison_report(methods, subjects_of(methods), comparison, folder, title="A & B")
    return folder


def texts(path: Path) -> str:
    """All text of a figure by itself, whose ink is that of white paper."""
    assert "currentColor" not in path.read_text(encoding="utf-8")
    return " ".join(text for text in ElementTree.parse(path).getroot().itertext() if text.strip())


def markdown_row(text: str, heading: str, first: str) -> list[str]:
    """Cells of a row of the table under a heading."""
    part = text.split(f"### {heading}\n")[1].split("\n#")[0]
    (line,) = [line for line in part.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_tables_in_markdown_have_the_comparisons_numbers(
    written: Path, comparison: Comparison, methods: list[MethodRuns]
) -> None:
    text = (written / "tables.md").read_text(encoding="utf-8")
    both = [100 * run.content.verification["named"].accuracy.value for run in methods[0].runs]
    assert markdown_row(text, "Verification accuracy", "A=1") == [
        *("A=1", "2", f"{np.mean(both):.2f}% ({min(both):.2f} to {max(both):.2f})")
    ]
    own = methods[1].runs[0].content.verification["named"].accuracy
    low, high = (100 * end for end in own.ci95)
    assert markdown_row(text, "Verification accuracy", "B")[2] == (
        f"{100 * own.value:.2f}% [{low:.2f}, {high:.2f}]"
    )
    for table in method_tables(comparison):
        assert f"### {table.title}\n" in text
        assert table.note in text
    assert "FNMR at FMR 10%" in text
    assert not re.search(r"\bTAR\b|TNR@", text)
    for name in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (written / name).is_file()


def test_every_figure_is_a_file_of_its_own_that_names_the_methods(written: Path) -> None:
    drawn = {path.stem: texts(path) for path in written.glob("*.svg")}
    assert set(drawn) == {"balance", "scores", "reject_named", "blur_people", "uncertainty"}
    assert all(label in drawn["balance"] for label in ("A=1", "B", "AUROC of quality"))
    for name in ("scores", "blur_people"):
        assert all(f"quality, {run}" in drawn[name] for run in ("A=1, run 1", "A=1, run 2", "B"))
    labels = ("A=1", "B", "best possible", "at random", "norm", "FNMR at FMR 5%, named")
    assert all(label in drawn["reject_named"] for label in labels)
    assert "A=1: median, 5 to 95%" in drawn["uncertainty"]


def test_figures_show_the_score_that_is_asked_for(
    methods: list[MethodRuns], comparison: Comparison, tmp_path: Path
) -> None:
    write_comparison_report(methods, subjects_of(methods), comparison, tmp_path, score="norm")
    drawn = {path.stem: texts(path) for path in tmp_path.glob("*.svg")}
    assert "AUROC of norm" in drawn["balance"]
    assert all("norm, B" in drawn[name] for name in ("scores", "blur_people"))


def test_the_page_has_the_tables_and_figures(written: Path, comparison: Comparison) -> None:
    page = (written / "report.html").read_text(encoding="utf-8")
    section = page.split('<section id="methods">')[1].split("</section>")[0]
    assert section.count("<svg") == 5
    assert section.count("<table") == len(comparison.tables)
    for table in comparison.tables:
        for row in table.rows:
            for column, cell in row.cells.items():
                if cell is not None:
                    value = 1 - cell.value if column.startswith("TAR") else cell.value
                    assert f"{100 * value:.2f}%" in section
    text = re.sub(r"<[^>]*>", " ", page.split('<section id="glossary">')[0])
    assert not re.search(r"\b(TAR|FAR)\b|TNR@|FMR 0", text)
    assert "Differences from A=1, run 1" in page
    assert "<title>A &amp; B</title>" in page


def test_the_best_is_bold(methods: list[MethodRuns], tmp_path: Path) -> None:
    single = [MethodRuns("A", methods[0].runs[:1]), methods[1]]
    comparison = compare_methods(single)
    write_comparison_report(single, subjects_of(single), comparison, tmp_path)
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    best = markdown_row(text, "Verification on named", "A")[-1]
    assert re.fullmatch(r"\*\*\d+\.\d\d%\*\* \[.*\]", best)
    assert "**" not in "".join(markdown_row(text, "Verification on named", "B"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    marked = sum(
        bool(cell and cell.best)
        for table in comparison.tables
        for row in table.rows
        for cell in row.cells.values()
    )
    section = page.split('<section id="methods">')[1].split("</section>")[0]
    assert section.count('class="clear"') == marked > 0


def test_logs_are_the_folders_own_or_given_by_label(methods: list[MethodRuns], tmp_path: Path) -> None:
    ((_, runs), (_, others)) = subjects_of(methods)
    assert [len(run.log) for run in runs] == [4, 0]
    assert others[0].log == []
    (tmp_path / "log.jsonl").write_text(json.dumps(LOG[0]))
    given = [f"A=1={tmp_path}", f"A=1={tmp_path / 'log.jsonl'}", f"B={tmp_path}"]
    ((_, runs), (_, others)) = subjects_of(methods, given)
    assert [run.series("train", "v_p50")[1] for run in (*runs, *others)] == [[2.5]] * 3
    for wrong, words in (
        ([f"C={tmp_path}"], "with the label of a result: A=1, B"),
        ([str(tmp_path)], "give it as LABEL=PATH"),
        ([f"B={tmp_path}"] * 2, "2 logs for 1 results"),
        ([f"B={tmp_path / 'gone'}"], "no such training log"),
    ):
        with pytest.raises(DataError, match=words):
            subjects_of(methods, wrong)


def test_the_balance_of_several_runs_has_their_mean_and_range(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Axes, "errorbar", lambda self, *given, **look: drawn.append(given))
    plotted: list[tuple[Any, ...]] = []
    monkeypatch.setattr(Axes, "plot", lambda self, *given, **look: plotted.append(given))
    runs = [
        (Measured(auroc, (0.1, 0.99)), Measured(accuracy, (0.2, 0.98)))
        for auroc, accuracy in ((0.90, 0.80), (0.96, 0.82), (0.93, 0.87))
    ]
    figures.balance([("three", runs), ("none", []), ("one", runs[:1])], "quality", ["lfw"])
    three, one = (np.hstack([np.ravel(part) for part in given]) for given in drawn)
    np.testing.assert_allclose(three, [0.93, 0.83, 0.03, 0.04, 0.03, 0.03])
    np.testing.assert_allclose(one, [0.90, 0.80, 0.6, 0.18, 0.8, 0.09])
    assert plotted == [((0.90, 0.96, 0.93), (0.80, 0.82, 0.87), "o")]


def test_labels_of_the_balance_do_not_lie_on_each_other() -> None:
    """Two points at one place: their labels stand at two."""
    point = (Measured(0.9, (0.88, 0.92)), Measured(0.8, (0.79, 0.81)))
    drawn = figures.balance([("first", [point]), ("second", [point])], "quality", ["lfw"])
    found = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(first|second)<', drawn)
    places = {label: (float(x), float(y)) for x, y, label in found}
    assert set(places) == {"first", "second"}
    assert abs(places["first"][1] - places["second"][1]) > 8
