"""The numbers that prose gives are those of the tables of results, and of the models' manifests; figures draw them."""

import html
import json
import re
from functools import cache
from operator import sub, truediv
from typing import Any

import pytest
import yaml

from tests.command import ROOT
from tests.scripts import TOOLS, load_script

results = load_script("docs_results", TOOLS)
# With an interval, if there is one.
SHOWN = rf"({results.NUMBER}(?:%? \[{results.NUMBER}, {results.NUMBER}\])?)"
MODELS = {"manifest": "models/manifest.json", "catalog": "facerts/hub/catalog.json"}


def expanded(source: str) -> list[str]:
    """The source for each of the names in braces."""
    names = re.search(r"\{(.*)\}", source)
    return [source] if names is None else [source.replace(names[0], name) for name in names[1].split("; ")]


CLAIMS = [
    (page, sentence, [place for source in sources for place in expanded(source)])
    for page, claims in yaml.safe_load((ROOT / "tests/claims.yaml").read_text(encoding="utf-8")).items()
    for sentence, sources in claims.items()
]


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def cell(place: str) -> list[float]:
    """The numbers of a cell of ``docs/results/tables``, from the one after the ``@`` on, or of a model's manifest."""
    place, _, first = place.partition(" @ ")
    table, name, *_, column = place.split(" > ")
    if table not in MODELS:
        return results.number(place)[int(first or 0) :]
    (model,) = [each for each in json.loads(text_of(MODELS[table]))["models"] if each["name"] == name]
    return [model["measured"][column]]


def value(source: str) -> list[float]:
    for sign, operation in ((" / ", truediv), (" - ", sub)):
        if sign in source:
            left, right = source.split(sign)
            return [operation(cell(left)[0], cell(right)[0])]
    return cell(source)


@pytest.mark.parametrize(("page", "sentence", "sources"), CLAIMS, ids=[f"{page}: {says}" for page, says, _ in CLAIMS])
def test_a_number_is_that_of_its_table(page, sentence, sources):
    pattern = re.escape(" ".join(sentence.split())).replace(r"\{\}", SHOWN)
    matches = re.findall(pattern, " ".join(text_of(page).split()))
    assert matches, f"{page} says nothing like this"
    for match in matches:
        for shown, source in zip([match] if isinstance(match, str) else match, sources, strict=True):
            # Not all sources have intervals.
            for number, exact in zip(re.findall(results.NUMBER, shown), value(source), strict=False):
                rounding = 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
                (said,) = results.numbers(number)
                assert any(abs(said - factor * exact) <= rounding for factor in (1, 100, 0.01)), (
                    shown,
                    source,
                    exact,
                )


@pytest.mark.parametrize(
    ("models", "name"),
    [("manifest", "facerts-small")]
    + [("catalog", name) for name in ("MobileFaceNet", "MobileFaceNet-GNAP", "edgeface-xs-q")],
)
def test_what_facerts_models_lists_is_what_the_tables_have(models, name):
    places = {
        "LFW": "accuracy > {} > LFW > accuracy",
        "CFP-FF": "accuracy > {} > CFP-FF > accuracy",
        "CFP-FP": "accuracy > {} > CFP-FP > accuracy",
        "TAR at FMR 0.0001 on LFW": "accuracy > {} > all of LFW > 0.0001",
        "time": "speed_crop > {} > relative to MobileFaceNet",
    }
    for measured, place in places.items():
        assert cell(f"{models} > {name.lower()} > {measured}")[0] == cell(place.format(name))[0], measured


@pytest.mark.parametrize("name", results.figures())
def test_a_figure_shows_the_numbers_of_its_tables(name):
    figure: dict[str, Any] = results.figures()[name]
    drawn = (results.FIGURES / f"results_{name}.svg").read_text(encoding="utf-8")
    description = re.search(r"<dc:description>(.*?)</dc:description>", drawn, re.DOTALL)
    assert description is not None
    assert html.unescape(description[1]) == repr(results.values(figure)), "python tools/docs_results.py draws it again"
    pages = (ROOT / "docs/results").glob("*.md")
    assert any(f"figures/results_{name}.svg" in page.read_text(encoding="utf-8") for page in pages)


def test_every_table_is_on_a_page_and_has_rows_of_one_length():
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    pages += "".join(path.read_text(encoding="utf-8") for path in (ROOT / "models").glob("*.md"))
    for path in sorted(results.TABLES.glob("*.csv")):
        assert f"tables/{path.name})" in pages, path
        header, *body = results.rows(path)
        assert {len(row) for row in body} == {len(header)}, path


def test_the_page_of_installation_has_the_table_of_the_readme():
    pages = (results.DOCS.parent / "README.md", results.DOCS / "install.md")
    readme, page = (
        re.findall(r"^\|.*MiB \|$.*?\n\n", page.read_text("utf-8"), re.DOTALL | re.MULTILINE) for page in pages
    )
    assert len(readme) == 1
    assert readme == page
