"""The numbers that prose gives are those of the tables of results, and of the models' manifests."""

from __future__ import annotations

import json
import re
from functools import cache
from operator import sub, truediv

import pytest
import yaml

from tests.command import ROOT

NUMBER = r"[-+−]?\d+(?:,\d{3})*(?:\.\d+)?"
# With an interval, if there is one.
SHOWN = rf"({NUMBER}(?:%? \[{NUMBER}, {NUMBER}\])?)"
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


def numbers(text: str) -> list[str]:
    return [number.replace(",", "").replace("−", "-") for number in re.findall(NUMBER, text)]


def cell(place: str) -> list[float]:
    """The numbers of a cell, from the one after the ``@`` on: ``PAGE > HEADING > ROW'S FIRST CELLS > COLUMN``, or those
    of ``manifest > MODEL > MEASURED``."""
    place, _, first = place.partition(" @ ")
    page, heading, *row, column = place.split(" > ")
    if page in MODELS:
        (model,) = [each for each in json.loads(text_of(MODELS[page]))["models"] if each["name"] == heading]
        return [model["measured"][column]]
    page = page if "/" in page else f"docs/results/{page}.md"
    (section,) = re.findall(
        rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text_of(page), re.DOTALL | re.MULTILINE
    )
    names: list[str] = []
    found = []
    for line in section.splitlines():
        cells = [part.strip() for part in re.sub("[*`]", "", line).strip("| ").split("|")]
        names = [] if not line.startswith("|") else names or cells
        if column in names and cells[: len(row)] == row:
            found.append(cells[names.index(column)])
    # Of several tables below a heading the first.
    return [float(number) for number in numbers(found[0])][int(first or 0) :]


def value(source: str) -> list[float]:
    for sign, operation in ((" / ", truediv), (" - ", sub)):
        if sign in source:
            left, right = source.split(sign)
            return [operation(cell(left)[0], cell(right)[0])]
    return cell(source)


@pytest.mark.parametrize(
    ("page", "sentence", "sources"), CLAIMS, ids=[f"{page}: {says}" for page, says, _ in CLAIMS]
)
def test_a_number_is_that_of_its_table(page: str, sentence: str, sources: list[str]) -> None:
    pattern = re.escape(" ".join(sentence.split())).replace(r"\{\}", SHOWN)
    matches = re.findall(pattern, " ".join(text_of(page).split()))
    assert matches, f"{page} says nothing like this"
    for match in matches:
        for shown, source in zip([match] if isinstance(match, str) else match, sources, strict=True):
            # Not all sources have intervals.
            for number, exact in zip(numbers(shown), value(source), strict=False):
                rounding = 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
                assert any(abs(float(number) - factor * exact) <= rounding for factor in (1, 100, 0.01)), (
                    shown,
                    source,
                    exact,
                )
