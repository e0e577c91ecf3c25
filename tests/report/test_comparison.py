"""The files that a comparison writes: tables in Markdown, figures, and the page."""

import json
import re
import shutil
from xml.etree import ElementTree

import numpy as np
import pytest
from markupsafe import escape
from matplotlib.axes import Axes

from facerts.errors import DataError
from facerts.evaluation.comparison import compare_methods
from facerts.evaluation.measure import Plot, Series
from facerts.evaluation.method_runs import MethodRuns, methods_of, with_logs
from facerts.evaluation.saved_result import load_labeled
from facerts.report.comparison_report import write_comparison_report
from facerts.report.figures import Drawn, draw
from facerts.report.table import cell, measure_tables, plain

pytestmark = pytest.mark.slow

LOG = [{"kind": "train", "step": s, "epoch": s / 4, "v_p5": 1.0, "v_p50": 1.5 + s, "v_p95": 9.0} for s in range(1, 5)]


@pytest.fixture(scope="module")
def methods(evaluated, tmp_path_factory):
    """Two seeds of "A=1", of which the first has a training log, and "B", much worse."""
    trained = shutil.copytree(evaluated["one"], tmp_path_factory.mktemp("compared") / "trained")
    (trained / "log.jsonl").write_text("\n".join(map(json.dumps, LOG)))
    return methods_of(load_labeled([f"A=1={trained}", f"A=1={evaluated['two']}", f"B={evaluated['poor']}"]))


@pytest.fixture(scope="module")
def compared(methods):
    return compare_methods(methods)


@pytest.fixture(scope="module")
def comparison(compared):
    return compared[0]


@pytest.fixture(scope="module")
def written(methods, compared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    write_comparison_report(methods, *compared, folder, title="A & B")
    return folder


def texts(path):
    """All text of a figure by itself, whose ink is that of white paper."""
    assert "currentColor" not in path.read_text(encoding="utf-8")
    return " ".join(text for text in ElementTree.parse(path).getroot().itertext() if text.strip())


def markdown_row(text, heading, first):
    """Cells of a row of the table under a heading."""
    part = re.split(f"#+ {re.escape(heading)}\n", text)[1].split("\n#")[0]
    (line,) = [line for line in part.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def test_tables_in_markdown_have_the_comparisons_numbers(written, comparison, methods):
    text = (written / "tables.md").read_text(encoding="utf-8")
    name = "FNMR at FMR 10%"
    first, second, own = (
        run.of_kind("verification")["named"].measure(name) for method in methods for run in method.runs
    )
    both = sorted((100 * first.value, 100 * second.value))
    rows = {label: markdown_row(text, "listed pairs", label) for label in ("A=1", "B")}
    assert rows["A=1"][1] == "2"
    assert f"{np.mean(both):.2f}% ({both[0]:.2f} to {both[1]:.2f})" in rows["A=1"]
    assert plain(cell(own)) in rows["B"]
    for section in (*comparison.sections, *comparison.differences):
        for table in measure_tables([("", section)]):
            assert f"### {table.title}\n" in text or not table.title
        assert section.text in text or section in comparison.differences
    assert name in text
    assert not re.search(r"\bTAR\b|TNR@", text)
    # Said once, not under every table.
    assert text.count("Nothing is bold: no paired test was made") == 1
    for file in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text):
        assert (written / file).is_file()


def test_every_figure_is_a_file_of_its_own_that_names_the_methods(written):
    drawn = {path.stem: texts(path) for path in written.glob("*.svg")}
    assert set(drawn) == {"balance", "scores", "reject_named", "reject_people", "blur_people", "uncertainty"}
    assert all(label in drawn["balance"] for label in ("A=1", "B", "AUROC of quality"))
    for name in ("scores", "blur_people"):
        assert all(label in drawn[name] for label in ("A=1, run 1", "A=1, run 2", "B", "quality"))
    labels = ("A=1", "B", "best possible", "at random", "norm", "FNMR at FMR 5%, named")
    assert all(label in drawn["reject_named"] for label in labels)
    assert "A=1: median, 5 to 95%" in drawn["uncertainty"]


def test_figures_show_the_score_that_is_asked_for(methods, compared, tmp_path):
    write_comparison_report(methods, *compared, tmp_path, score="norm")
    drawn = {path.stem: texts(path) for path in tmp_path.glob("*.svg")}
    assert "AUROC of norm" in drawn["balance"]
    assert all("norm" in drawn[name] for name in ("scores", "blur_people"))


def test_the_page_has_the_tables_and_figures(written, comparison):
    page = (written / "report.html").read_text(encoding="utf-8")
    section = page.split('<section id="methods">')[1].split("</section>")[0]
    assert section.count("<svg") == 6
    tables = [table for one in comparison.sections for table in measure_tables([("", one)])]
    assert section.count("<table") == len(tables)
    for table in tables:
        for row in table.rows:
            assert all(escape(found.text) in section for found in row)
    text = re.sub(r"<[^>]*>", " ", page.split('<section id="glossary">')[0])
    assert not re.search(r"\b(TAR|FAR)\b|TNR@|FMR 0", text)
    assert "Differences from A=1, run 1" in page
    assert "<title>A &amp; B</title>" in page


def test_the_best_is_bold(methods, tmp_path):
    single = [MethodRuns("A", methods[0].runs[:1]), methods[1]]
    comparison, arrays = compare_methods(single)
    write_comparison_report(single, comparison, arrays, tmp_path)
    text = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert re.search(r"\*\*\d+\.?\d*%\*\* \[", " ".join(markdown_row(text, "listed pairs", "A")))
    assert "**" not in "".join(markdown_row(text, "listed pairs", "B"))
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    marked = sum(one.mark == "best" for section in comparison.sections for one in section.measures)
    section = page.split('<section id="methods">')[1].split("</section>")[0]
    assert section.count('class="clear"') == marked > 0


def test_logs_are_the_folders_own_or_given_by_label(methods, tmp_path):
    ((_, runs), (_, others)) = methods
    assert [len(run.log) for run in runs] == [4, 0]
    assert not others[0].log
    (tmp_path / "log.jsonl").write_text(json.dumps(LOG[0]))
    given = [f"A=1={tmp_path}", f"A=1={tmp_path / 'log.jsonl'}", f"B={tmp_path}"]
    ((_, runs), (_, others)) = with_logs(methods, given)
    assert [run.series("train", "v_p50")[1] for run in (*runs, *others)] == [[2.5]] * 3
    for wrong, words in (
        ([f"C={tmp_path}"], "with the label of a result: A=1, B"),
        ([str(tmp_path)], "give it as LABEL=PATH"),
        ([f"B={tmp_path}"] * 2, "2 logs for 1 results"),
        ([f"B={tmp_path / 'gone'}"], "no such training log"),
    ):
        with pytest.raises(DataError, match=words):
            with_logs(methods, wrong)


def test_a_point_has_bars_to_both_ends_of_both_numbers(monkeypatch):
    drawn = []
    monkeypatch.setattr(Axes, "errorbar", lambda self, *given, **look: drawn.append(given))
    ends = {"low": "y_low", "high": "y_high", "x_low": "x_low", "x_high": "x_high"}
    point = Series(label="one", x=["x"], y="y", mark="name", **ends)
    plot = Plot(name="balance", caption="", x="AUROC", y="accuracy", panels={"": [point]}, percent="xy")
    values = {"x": 0.93, "y": 0.83, "x_low": 0.9, "x_high": 0.96, "y_low": 0.8, "y_high": 0.87}
    draw([Drawn("", plot, {key: np.array([value]) for key, value in values.items()})])
    (found,) = (np.hstack([np.ravel(part) for part in given]) for given in drawn)
    np.testing.assert_allclose(found, [0.93, 0.83, 0.03, 0.04, 0.03, 0.03])


def test_names_of_two_points_at_one_place_do_not_lie_on_each_other():
    series = [Series(label=label, x=["x"], y="y", mark="name") for label in ("first", "second")]
    plot = Plot(name="balance", caption="", x="AUROC", y="accuracy", panels={"": series}, percent="xy")
    drawn = draw([Drawn("", plot, {"x": np.array([0.9]), "y": np.array([0.8])})])
    found = re.findall(r'<text[^>]* x="([\d.]+)" y="([\d.]+)"[^>]*>(first|second)<', drawn)
    places = {label: (float(x), float(y)) for x, y, label in found}
    assert set(places) == {"first", "second"}
    assert abs(places["first"][1] - places["second"][1]) > 8
