"""The section on groups, from images whose groups, qualities and pairs are known."""

from __future__ import annotations

import numpy as np
import pytest

from facerts.errors import Error
from facerts.evaluation.group_differences import MatchedPairs, groups_of
from facerts.metrics.all_pairs import AllPairs, all_pairs

PEOPLE, IMAGES = 60, 4


@pytest.fixture(scope="module")
def people() -> np.ndarray:
    return np.repeat(np.arange(PEOPLE), IMAGES)


@pytest.fixture(scope="module")
def values(people: np.ndarray) -> dict[str, np.ndarray]:
    """Half of the people are young, the last has no age; two cameras, one with ten images."""
    age = np.where(people < PEOPLE // 2, "below 20", "20 and above")
    age[people == PEOPLE - 1] = ""
    return {"age": age, "camera": np.where(np.arange(len(people)) < 10, "door", "gate")}


@pytest.fixture(scope="module")
def pairs(people: np.ndarray) -> AllPairs:
    """Young people resemble each other, and their own images are less alike."""
    random = np.random.default_rng(2)
    centers = random.normal(size=(PEOPLE, 8))
    centers[: PEOPLE // 2, 0] += 1.5
    noise = np.where(people < PEOPLE // 2, 1.1, 0.5)[:, None]
    vectors = centers[people] + noise * random.normal(size=(len(people), 8))
    return all_pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), people)


@pytest.fixture(scope="module")
def quality(people: np.ndarray) -> np.ndarray:
    """The young have lower quality; the first image has none."""
    drawn = np.random.default_rng(3).normal(size=len(people)) + (people >= PEOPLE // 2)
    drawn[0] = np.nan
    return drawn


def test_accepted_shares_at_the_threshold_that_keeps_a_share_of_all(
    values: dict[str, np.ndarray], quality: np.ndarray
) -> None:
    found = groups_of(values, {"quality": quality}, keep=0.8, notes=["A note."])
    accepted = found.by["age"].accepted["quality"]
    known = quality[1:]
    assert accepted.threshold == sorted(known.tolist(), reverse=True)[int(np.ceil(0.8 * len(known))) - 1]
    assert (accepted.keep, accepted.images) == (0.8, PEOPLE * IMAGES - 1)
    assert list(accepted.groups) == ["below 20", "20 and above"]
    young = quality[(values["age"] == "below 20") & ~np.isnan(quality)]
    group = accepted.groups["below 20"]
    assert (group.images, group.people) == (len(young), None)
    assert group.accepted == np.mean(young >= accepted.threshold)
    assert group.median == np.median(young)
    assert accepted.contrast is not None
    assert (accepted.contrast.worst, accepted.contrast.best) == ("below 20", "20 and above")
    assert accepted.contrast.difference < accepted.contrast.difference_ci95[1] < 0
    assert (found.by["age"].images, found.by["age"].unknown) == (PEOPLE * IMAGES, IMAGES)
    assert (found.interval, found.notes) == ("Wilson's, over images", ["A note."])
    given = (
        groups_of(values, {"quality": quality}, thresholds={"quality": 0.25}).by["age"].accepted["quality"]
    )
    assert (given.threshold, given.keep) == (0.25, None)
    # Ten images are shown, but too few to be called the worst or the best.
    camera = found.by["camera"].accepted["quality"]
    assert camera.groups["door"].images == 9
    assert camera.contrast is None
    assert groups_of(values, {"q": quality}, min_images=9).by["camera"].accepted["q"].contrast is not None


def test_errors_with_and_without_rejected_images(
    values: dict[str, np.ndarray], quality: np.ndarray, people: np.ndarray, pairs: AllPairs
) -> None:
    compared = {"net": MatchedPairs(pairs, 0.6, 0.05)}
    found = groups_of(values, {"q": quality}, people=people, compared=compared, replicates=50)
    assert found.interval == "bootstrap over people"
    matching = found.by["age"].matching["net"]
    assert (matching.threshold, matching.fmr) == (0.6, 0.05)
    young = matching.every_pair.groups["below 20"]
    assert (young.images, young.people) == (PEOPLE // 2 * IMAGES, PEOPLE // 2)
    assert young.fnmr.pairs == PEOPLE // 2 * IMAGES * (IMAGES - 1) // 2
    assert young.fmr.pairs == 120 * 119 // 2 - young.fnmr.pairs
    everybody = matching.every_pair.everybody
    assert (everybody.images, everybody.people) == (PEOPLE * IMAGES, PEOPLE)
    assert everybody.fnmr.pairs == len(pairs.genuine)
    assert everybody.fnmr.errors == int((pairs.genuine < 0.6).sum())
    assert everybody.fmr.pairs == pairs.impostors
    assert everybody.fmr.errors == pairs.accepted(0.6)
    for contrast in (matching.every_pair.fnmr_contrast, matching.every_pair.fmr_contrast):
        assert contrast is not None
        assert (contrast.worst, contrast.best) == ("below 20", "20 and above")
        assert contrast.ratio is not None
        assert contrast.over_mean == pytest.approx(contrast.ratio**0.5)  # of two groups
    threshold = found.by["age"].accepted["q"].threshold
    kept = quality >= threshold
    rest = matching.accepted["q"]
    assert rest.groups["below 20"].images == int((kept & (values["age"] == "below 20")).sum())
    assert rest.everybody.images == int(kept.sum())
    assert rest.everybody.fnmr.pairs == int(kept[pairs.genuine_pairs].all(axis=1).sum())


def test_groups_without_pairs_are_shown_and_not_compared(pairs: AllPairs, people: np.ndarray) -> None:
    age = np.where(people == 0, "one person", np.where(np.arange(len(people)) == 7, "one image", "others"))
    every = groups_of(
        {"age": age}, {}, people=people, compared={"net": MatchedPairs(pairs, 0.6)}, replicates=20
    )
    errors = every.by["age"].matching["net"].every_pair
    assert errors.groups["one person"].fmr.pairs == 0
    assert errors.groups["one person"].fmr.rate is None
    assert errors.groups["one person"].fmr.ci95 is None
    assert errors.groups["one person"].fnmr.pairs == IMAGES * (IMAGES - 1) // 2
    assert (errors.groups["one image"].fnmr.pairs, errors.groups["one image"].fmr.pairs) == (0, 0)
    assert errors.fmr_contrast is errors.fnmr_contrast is None


def test_groups_with_too_few_expected_matches_have_no_worst_fmr(
    values: dict[str, np.ndarray], people: np.ndarray, pairs: AllPairs
) -> None:
    threshold = pairs.threshold(15 / pairs.impostors)
    found = groups_of(values, {}, compared={"net": MatchedPairs(pairs, threshold)}, replicates=20)
    errors = found.by["age"].matching["net"].every_pair
    assert errors.everybody.fmr.errors == 15
    assert errors.fmr_contrast is None
    assert errors.fnmr_contrast is not None


def test_what_cannot_be_measured_is_named(
    values: dict[str, np.ndarray], quality: np.ndarray, people: np.ndarray
) -> None:
    with pytest.raises(Error, match="q: no image has this quality"):
        groups_of(values, {"q": np.full(len(people), np.nan)})
    vectors = np.random.default_rng(0).normal(size=(len(people), 4))
    short = all_pairs(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), people, tail=100)
    with pytest.raises(Error, match=r"net: the threshold 0\.1 lies below the tail.*; choose a higher"):
        groups_of(values, {"q": quality}, compared={"net": MatchedPairs(short, 0.1)})
