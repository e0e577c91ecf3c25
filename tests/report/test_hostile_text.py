"""Names in pages, Markdown and figures are text: no markup, no formulas, no control characters."""

import xml.etree.ElementTree as ElementTree

import pytest

from facerts.errors import Error
from facerts.evaluation.evaluation_options import check_names
from facerts.evaluation.saved_result import split_label
from facerts.report.figures import draw_labels, legend, new_figure, rate_axes, svg
from facerts.report.markdown import write_markdown
from facerts.report.page_elements import Figure, PagePart, PageSection
from facerts.report.table import Cell, Table, to_markdown

NAME = "<b>&\"'|$\\frac{$ [x](javascript:1)\x1b[31m\u202e\x9b\u2028."
SHOWN = r"""<b>&"'|$\frac{$ [x](javascript:1)\x1b[31m\u202e\x9b\u2028."""


@pytest.mark.filterwarnings("error")
def test_text_in_figures_is_what_it_says():
    figure, axes = new_figure()
    axes.set_title(NAME)
    axes.set(xlabel=NAME, xscale="log")
    axes.plot([0.01, 0.02, 0.05], [1, 2, 3], label=NAME)
    axes.set_yticks([1, 2], [NAME, NAME])
    rate_axes(axes, "x")
    legend(axes)
    draw_labels(figure, axes, [(NAME, (0.02, 2), "#000000")])
    drawn = svg(figure)
    # Percentages have a no-break space.
    assert drawn.replace("\n", "").isprintable()
    texts = [element.text or "" for element in ElementTree.fromstring(drawn).iter() if element.tag.endswith("text")]
    assert texts.count(SHOWN) == 6
    assert not any("mathdefault" in text for text in texts)


def test_text_in_markdown_is_what_it_says(tmp_path):
    table = Table([NAME, "number"], [[Cell(NAME), Cell("1", "[0, 2]")]], title=NAME)
    lines = to_markdown(table).splitlines()
    text = r"""\<b>&"'|$\\frac{$ [x\](javascript:1)\\x1b[31m\\u202e\\x9b\\u2028."""
    cell = text.replace("|", r"\|")
    assert lines == [*(f"### {text}", "", f"| {cell} | number |", "| --- | ---: |", f"| {cell} | 1 [0, 2] |")]
    part = PagePart(NAME, figures=[Figure("<svg></svg>", NAME, "figure")], text=NAME, notes=[NAME])
    write_markdown(tmp_path, NAME, NAME, [PageSection("id", "entry", NAME, [part])])
    written = (tmp_path / "tables.md").read_text(encoding="utf-8")
    assert written.count(text) == 7
    assert written.replace(text, "").split() == ["#", "##", "![](figure.svg)", "-"]


def test_names_of_results_can_be_stored():
    assert split_label("a\x1b\udcff=folder") == (r"a\x1b\udcff", "folder")
    check_names(["a", "ä", "\x1b"])
    with pytest.raises(Error, match="which is not UTF-8"):
        check_names(["a", "b\udcff"])
    with pytest.raises(Error, match="two sources have the same name, 'a'"):
        check_names(["a", "b", "a"])
