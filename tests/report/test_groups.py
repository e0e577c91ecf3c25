"""Groups in reports and on the terminal."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from facerts.cli.results import show_groups
from facerts.evaluation.results.groups_result import GroupsResult
from facerts.report.figures import accepted_by_group
from facerts.report.group_tables import accepted_table, errors_table, group_findings


def contrast(worst: str, best: str, difference: float, half: float, **changes: Any) -> dict[str, Any]:
    return {
        "worst": worst,
        "best": best,
        "difference": difference,
        "difference_ci95": [difference - half, difference + half],
        "ratio": 2.5,
        "ratio_ci95": [1.5, 4.25],
        "over_mean": 1.25,
        **changes,
    }


def share(images: int, accepted: float) -> dict[str, Any]:
    low, high = accepted - 0.03125, min(accepted + 0.03125, 1.0)
    return {"images": images, "people": None, "accepted": accepted, "ci95": [low, high], "median": 0.5}


def errors(genuine: int, fnmr: float | None, impostors: int, fmr: float | None) -> dict[str, Any]:
    def rate(pairs: int, value: float | None) -> dict[str, Any]:
        ends = None if value is None else [value / 2, value * 2]
        return {"pairs": pairs, "errors": round(pairs * (value or 0)), "rate": value, "ci95": ends}

    return {"images": 50, "people": 20, "fnmr": rate(genuine, fnmr), "fmr": rate(impostors, fmr)}


@pytest.fixture
def section() -> GroupsResult:
    every_pair = {
        "everybody": errors(300, 0.2, 90_000, 0.001),
        "groups": {
            "below $13$": errors(80, 0.25, 20_000, 0.002),
            "13 and above": errors(100, 0.125, 30_000, 0.0005),
            "[one]": errors(0, None, 0, None),
        },
        "fnmr_contrast": contrast("below $13$", "13 and above", 0.125, 0.25),
        "fmr_contrast": contrast("below $13$", "13 and above", 0.0015, 0.001, ratio_ci95=None),
    }
    rest = {
        **every_pair,
        "fnmr_contrast": None,
        "fmr_contrast": None,
        "everybody": errors(200, 0.0625, 50_000, 0.001),
    }
    accepted = {
        "threshold": -0.5,
        "keep": 0.95,
        "images": 1700,
        "accepted": 0.9375,
        "groups": {"below $13$": share(500, 0.875), "13 and above": share(1200, 1.0)},
        "contrast": contrast("below $13$", "13 and above", -0.125, 0.0625),
    }
    other = {**accepted, "groups": {"13 and above": share(40, 0.5)}, "contrast": None}
    age = {
        "images": 1703,
        "unknown": 3,
        "accepted": {"head": accepted, "norm": other},
        "matching": {
            "net": {"threshold": 0.3, "fmr": 0.001, "every_pair": every_pair, "accepted": {"head": rest}}
        },
    }
    content = {"by": {"age": age}, "min_images": 30, "interval": "Wilson's", "notes": ["A note."]}
    return GroupsResult.model_validate(content)


def test_sentences_name_the_worst_and_the_best_and_whether_that_is_clear(section: GroupsResult) -> None:
    found = list(group_findings("age", section.by["age"]))
    assert found == [
        "By head, images of age below $13$ (87.5% [84.4, 90.6]) are accepted least, and those of age 13 and above "
        "(100.0% [96.9, 100.0]) most: −12.50 percentage points [−18.75, −6.25].",
        "By norm, no two groups of age are large enough to be compared.",
        "net: FNMR is highest in age below $13$ (25.0% [12.5, 50.0]) and lowest in age 13 and above (12.5% [6.2, "
        "25.0]), 2.5 times as high [1.5, 4.2], no clear difference.",
        "net: FMR is highest in age below $13$ (0.2000% [0.1000, 0.4000]) and lowest in age 13 and above (0.0500% "
        "[0.0250, 0.1000]), 2.5 times as high.",
    ]


def test_the_report_has_a_table_for_each_attribute_with_the_worst_in_words(section: GroupsResult) -> None:
    age = section.by["age"]
    accepted, matching = accepted_table("age", age), errors_table("age", "net", age.matching["net"])
    cells = {row[0].text: [(cell.text, cell.small) for cell in row[1:]] for row in accepted.rows}
    assert list(accepted.columns) == ["age", "images", "accepted by head", "accepted by norm"]
    assert cells == {
        "below $13$": [("500", ""), ("87.5%", "worst [84.4, 90.6]"), ("–", "")],
        "13 and above": [("1,200", ""), ("100.0%", "[96.9, 100.0]"), ("50.0%", "[46.9, 53.1]")],
        "all": [("1,703", ""), ("93.75%", ""), ("93.75%", "")],
    }
    assert accepted.note == "3 images are in no group."
    assert list(matching.columns) == [
        *("age", "genuine pairs", "FNMR", "FNMR of accepted by head"),
        *("impostor pairs", "FMR", "FMR of accepted by head"),
    ]
    worst = [
        (row[0].text, at) for row in matching.rows for at, cell in enumerate(row) if "worst" in cell.small
    ]
    assert worst == [("below $13$", 2), ("below $13$", 5)]
    texts = [cell.text for cell in matching.rows[-1]]
    assert texts == ["all", "300", "20.00%", "6.25%", "90,000", "0.1000%", "0.1000%"]
    assert [cell.text for cell in matching.rows[2]] == ["[one]", "0", "–", "–", "0", "–", "–"]


def test_the_figure_has_a_row_for_each_group_and_a_color_for_each_quality(section: GroupsResult) -> None:
    drawn = accepted_by_group(section.by["age"])
    ElementTree.fromstring(drawn)
    texts = re.findall(r">([^<>]+)</text>", drawn)
    assert [text for text in texts if text in ("below $13$", "13 and above", "head", "norm")] == [
        *("below $13$", "13 and above", "head", "norm")
    ]


def test_the_terminal_shows_the_same(section: GroupsResult, capsys: pytest.CaptureFixture[str]) -> None:
    show_groups(section)
    shown = capsys.readouterr().out
    assert "87.5% worst [84.4, 90.6]" in shown
    assert "By head, images of age below $13$ (87.5% [84.4, 90.6]) are accepted least" in shown
