"""The section on groups, from images whose groups, qualities and pairs are known."""

import re

import numpy as np
import pytest

from facerts.errors import Error
from facerts.evaluation.group_differences import MatchedPairs, groups_of
from facerts.evaluation.wording import measured, points, points_interval
from facerts.metrics.all_pairs import all_pairs
from facerts.report.figures import Drawn, draw

PEOPLE, IMAGES = 60, 4


@pytest.fixture(scope="module")
def people():
    return np.repeat(np.arange(PEOPLE), IMAGES)


@pytest.fixture(scope="module")
def values(people):
    """Half of the people are young, the last has no age; two cameras, one with ten images."""
    age = np.where(people < PEOPLE // 2, "below 20", "20 and above")
    age[people == PEOPLE - 1] = ""
    return {"age": age, "camera": np.where(np.arange(len(people)) < 10, "door", "gate")}


@pytest.fixture(scope="module")
def pairs(people):
    """Young people resemble each other, and their own images are less alike."""
    random = np.random.default_rng(2)
    centers = random.normal(size=(PEOPLE, 8))
    centers[: PEOPLE // 2, 0] += 1.5
    noise = np.where(people < PEOPLE // 2, 1.1, 0.5)[:, None]
    vectors = centers[people] + noise * random.normal(size=(len(people), 8))
    return all_pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), people)


@pytest.fixture(scope="module")
def quality(people):
    """The young have lower quality; the first image has none."""
    drawn = np.random.default_rng(3).normal(size=len(people)) + (people >= PEOPLE // 2)
    drawn[0] = np.nan
    return drawn


def numbers(section, name, table=""):
    """A column of a section's tables, by group; ``table`` is the beginning of its title."""
    return {
        next(iter(one.of.values())): one for one in section.measures if one.name == name and one.table.startswith(table)
    }


def test_accepted_shares_at_the_threshold_that_keeps_a_share_of_all(values, quality):
    sections = groups_of(values, {"quality": quality}, keep=0.8, notes=["A note."])
    section, _ = sections["age"]
    accepted = numbers(section, "accepted by quality")
    known = quality[1:]
    threshold = sorted(known.tolist(), reverse=True)[int(np.ceil(0.8 * len(known))) - 1]
    young = quality[(values["age"] == "below 20") & ~np.isnan(quality)]
    assert list(accepted) == ["below 20", "20 and above", "all"]
    group = accepted["below 20"]
    assert (group.n, group.threshold, group.mark) == (len(young), threshold, "worst")
    assert group.value == np.mean(young >= threshold)
    assert accepted["all"].value == np.mean(known >= threshold)
    assert {name: one.value for name, one in numbers(section, "images").items()} == {
        "below 20": PEOPLE // 2 * IMAGES,
        "20 and above": (PEOPLE // 2 - 1) * IMAGES,
        "all": PEOPLE * IMAGES,
    }
    difference = section.measure("worst minus best", rate="accepted by quality")
    assert difference.value == group.value - accepted["20 and above"].value
    assert difference.value < difference.ci95[1] < 0
    ends = points_interval(difference.ci95)
    assert section.findings == [
        f"By quality, images of age below 20 ({measured(group.value, group.ci95)}) are accepted least, and those of "
        f"age 20 and above ({measured(accepted['20 and above'].value, accepted['20 and above'].ci95)}) most: "
        f"{points(difference.value)} percentage points {ends}."
    ]
    assert f"{IMAGES} images are in no group." in section.text
    assert "keep 80% of all images" in section.text
    assert (section.interval, section.notes) == ("Wilson's, over images", ["A note."])
    given = groups_of(values, {"quality": quality}, thresholds={"quality": 0.25})["age"][0]
    assert numbers(given, "accepted by quality")["below 20"].threshold == 0.25
    assert "keep" not in given.text
    # Ten images are shown, but too few to be called the worst or the best.
    camera, _ = sections["camera"]
    assert numbers(camera, "accepted by quality")["door"].n == 9
    assert camera.findings == ["By quality, no two groups of camera are large enough to be compared."]
    few = groups_of(values, {"q": quality}, min_images=9)["camera"][0]
    assert few.find("worst minus best") is not None


def test_the_figure_has_a_row_for_each_group_and_a_color_for_each_quality(values, quality):
    odd = {"age": np.where(values["age"] == "below 20", "below $13$", values["age"])}
    section, arrays = groups_of(odd, {"head": quality, "other": -quality})["age"]
    (plot,) = section.plots
    drawn = draw([Drawn("", plot, arrays)])
    texts = re.findall(r">([^<>]+)</text>", drawn)
    shown = ["20 and above", "below $13$", "head", "other"]
    assert [text for text in texts if text in shown] == shown


def test_errors_with_and_without_rejected_images(values, quality, people, pairs):
    compared = {"net": MatchedPairs(pairs, 0.6)}
    section, _ = groups_of(values, {"q": quality}, people=people, compared=compared, replicates=50)["age"]
    assert section.interval == "bootstrap over people"
    genuine = {group: one.value for group, one in numbers(section, "genuine pairs").items()}
    impostors = {group: one.value for group, one in numbers(section, "impostor pairs").items()}
    assert genuine["below 20"] == PEOPLE // 2 * IMAGES * (IMAGES - 1) // 2
    assert impostors["below 20"] == 120 * 119 // 2 - genuine["below 20"]
    assert (genuine["all"], impostors["all"]) == (len(pairs.genuine), pairs.impostors)
    fnmr, fmr = (numbers(section, name) for name in ("FNMR", "FMR"))
    assert fnmr["all"].value == pytest.approx(np.mean(pairs.genuine < 0.6))
    assert fmr["all"].value == pytest.approx(pairs.accepted(0.6) / pairs.impostors)
    assert fnmr["below 20"].threshold == 0.6
    for kind, column in (("FNMR", fnmr), ("FMR", fmr)):
        assert [group for group, one in column.items() if one.mark] == ["below 20"]
        ratio, over_mean = (
            section.measure(name, rate=f"{kind} by net").value for name in ("worst / best", "worst / geometric mean")
        )
        assert ratio == pytest.approx(column["below 20"].value / column["20 and above"].value)
        assert over_mean == pytest.approx(ratio**0.5)  # of two groups
        (sentence,) = [one for one in section.findings if one.startswith(f"net: {kind} is highest in age below 20 (")]
        assert "and lowest in age 20 and above (" in sentence
        assert f", {ratio:.1f} times as high [" in sentence
    accepted = numbers(section, "accepted by q")
    kept = quality >= accepted["below 20"].threshold
    of_all = kept[pairs.genuine_pairs].all(axis=1)
    rest = numbers(section, "FNMR of accepted by q")
    assert rest["all"].value == pytest.approx(np.mean(pairs.genuine[of_all] < 0.6))


def test_groups_without_pairs_are_shown_and_not_compared(pairs, people):
    age = np.where(people == 0, "one person", np.where(np.arange(len(people)) == 7, "one image", "others"))
    section, _ = groups_of({"age": age}, {}, people=people, compared={"net": MatchedPairs(pairs, 0.6)}, replicates=20)[
        "age"
    ]
    genuine, impostors = (numbers(section, f"{kind} pairs") for kind in ("genuine", "impostor"))
    assert genuine["one person"].value == IMAGES * (IMAGES - 1) // 2
    assert [numbers["one image"].value for numbers in (genuine, impostors)] == [0, 0]
    fmr = numbers(section, "FMR")["one person"]
    assert (impostors["one person"].value, fmr.value, fmr.ci95) == (0, None, None)
    assert section.find("worst minus best") is None
    assert section.plots == []


def test_groups_with_too_few_expected_matches_have_no_worst_fmr(values, people, pairs):
    threshold = pairs.threshold(15 / pairs.impostors)
    section, _ = groups_of(values, {}, compared={"net": MatchedPairs(pairs, threshold)}, replicates=20)["age"]
    assert numbers(section, "FMR")["all"].value == pytest.approx(15 / pairs.impostors)
    rates = [one.of["rate"] for one in section.measures if one.name == "worst minus best"]
    assert rates == ["FNMR by net"]


def test_what_cannot_be_measured_is_named(values, quality, people):
    with pytest.raises(Error, match="q: no image has this quality"):
        groups_of(values, {"q": np.full(len(people), np.nan)})
    vectors = np.random.default_rng(0).normal(size=(len(people), 4))
    short = all_pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), people, tail=100)
    with pytest.raises(Error, match=r"net: the threshold 0\.1 lies below the tail.*; choose a higher"):
        groups_of(values, {"q": quality}, compared={"net": MatchedPairs(short, 0.1)})
