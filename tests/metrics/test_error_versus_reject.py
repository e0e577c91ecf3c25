"""Areas under error versus reject, against hand calculations and slow loops that say what they do."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from facerts.metrics import error_versus_reject as module
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.compared_pairs import compare_listed
from facerts.metrics.error_versus_reject import (
    RATES,
    error_versus_reject,
    pair_quality,
    pauc,
)
from facerts.metrics.intervals import Estimate, mean_estimate, pair_weights, subject_counts

PEOPLE, IMAGES = 14, 4
FMRS = (0.05, 0.01)
SOME = RATES[::5]


@pytest.fixture(scope="module")
def people():
    return np.random.default_rng(5).permutation(np.repeat(np.arange(PEOPLE), IMAGES))


@pytest.fixture(scope="module")
def blur():
    return np.random.default_rng(6).random(PEOPLE * IMAGES)


def embed(people, noise, seed):
    vectors = np.random.default_rng(7).normal(size=(PEOPLE, 24))[people]
    vectors += np.random.default_rng(seed).normal(size=vectors.shape) * noise[:, None]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def embedding(people, blur):
    return embed(people, 0.4 + 1.2 * blur, 1)


@pytest.fixture(scope="module")
def every(embedding, people):
    return compare_all(embedding, people)


@pytest.fixture(scope="module")
def qualities(blur):
    random = np.random.default_rng(8)
    return {
        "good": -blur,
        "same order": np.exp(-3 * blur),
        "nearly": -blur + 0.005 * random.normal(size=len(blur)),
        "nothing": random.random(len(blur)),
        "coarse": np.floor(-4 * blur),
    }


def as_list(every, people):
    """The same pairs as a list, impostors first and in an order of their own."""
    shuffled = np.random.default_rng(9).permutation(every.impostors)
    scores = np.concatenate([every.tail[shuffled], every.genuine])
    pairs = np.concatenate([every.tail_pairs[shuffled], every.genuine_pairs])
    return compare_listed(scores, np.arange(len(scores)) >= every.impostors, pairs, people)


# By hand.


QUALITY = [float(value) for person in range(10) for value in (person + 1, person + 11)]


def two_images_each(wrong):
    """Ten people with two images each: the worse ones have qualities 1 to 10, the better ones 11 to 20.

    The genuine pairs whose worse image has a quality in ``wrong`` score 0.35, the others 0.9. Four impostor pairs score
    0.5, 0.4, 0.3 and 0.2, and their worse images have the qualities 1, 3, 5 and 7.
    """
    pairs = [(2 * person, 2 * person + 1) for person in range(10)] + [(0, 3), (4, 7), (8, 11), (12, 15)]
    scores = [0.35 if person + 1 in wrong else 0.9 for person in range(10)] + [0.5, 0.4, 0.3, 0.2]
    return compare_listed(scores, [True] * 10 + [False] * 4, np.array(pairs), np.repeat(range(10), 2))


def test_areas_of_rejected_pairs_by_hand():
    """Errors are the pairs of quality 1, 2 and 10: FNMR falls from 3/10 to 2/9 and 1/8, then rises."""
    pairs = two_images_each([1, 2, 10])
    found = error_versus_reject(pairs, {"q": QUALITY}, [0.3], replicates=0)[0.3]
    assert (found.genuine, found.impostors, found.accepted) == (10, 4, 1)
    assert found.threshold == np.nextafter(0.4, 1)
    assert found.fnmr.value == pytest.approx(3 / 10)
    # Flat over 0.099, then a step over 0.001.
    first = 0.099 * 3 / 10 + 0.001 * (3 / 10 + 2 / 9) / 2
    second = 0.099 * 2 / 9 + 0.001 * (2 / 9 + 1 / 8) / 2
    third = 0.099 * 1 / 8 + 0.001 * (1 / 8 + 1 / 7) / 2
    # From 0.3 in steps of 0.01: flat over 0.09, then a step over 0.01; the last one ends at 0.95.
    rest = sum(0.09 / left + 0.01 * (1 / left + 1 / (left - 1)) / 2 for left in range(7, 1, -1)) + 0.05
    areas = found.by["q"].area
    assert areas[0.2].value == pytest.approx((first + second) / 0.2 / 0.3)
    assert areas[0.3].value == pytest.approx((first + second + third) / 0.3 / 0.3)
    assert areas[0.95].value == pytest.approx((first + second + third + rest) / 0.95 / 0.3)
    assert found.by["q"].pauc[0.3].value == pytest.approx((first + second + third) / 0.3)
    assert found.by["q"].ci95 is None
    assert areas[0.3].replicates.shape == (0,)
    assert areas[0.3].interval() is None


def test_a_genuine_pair_must_beat_the_impostor_that_is_rejected():
    impostors = [0.5, 0.4, 0.3, 0.2]
    genuine = [score for limit in impostors for score in (limit, np.nextafter(limit, 1))]
    same = np.arange(12) < 8
    pairs = compare_listed(genuine + impostors, same, np.arange(24).reshape(12, 2), None)
    found = error_versus_reject(pairs, {"q": np.arange(24)}, [0.25], replicates=20)[0.25]
    assert found.fnmr.value == 5 / 8  # 0.4 is not accepted, the next higher number is
    for replicate, drawn in enumerate(pair_weights(same, None, replicates=20)):
        allowed = 0.25 * drawn[8:].sum() + 1e-9
        limit = next(score for k, score in enumerate(impostors) if drawn[8 : 9 + k].sum() > allowed)
        wrong = np.array(genuine) <= limit
        assert found.fnmr.replicates[replicate] == pytest.approx(np.average(wrong, weights=drawn[:8]))
        assert found.by["q"].fnmr[0] == found.fnmr.value


# Slow loops.


def slow_curve(pairs, quality, fmr):
    """FNMR at ``SOME`` rates, pair by pair: whole pairs are rejected, of equal ranks each by the same part."""
    ranks = [min(quality[row] for row in pair) for pair in pairs.genuine_pairs]
    highest = float(pairs.tail[int(fmr * pairs.impostors + 1e-9)])  # of the impostors that are rejected
    curve = []
    for share in SOME:
        amount = min(np.floor(share * len(ranks) + 1e-9), len(ranks) - 1)
        left = {}
        for rank in sorted(set(ranks)):
            gone = min(amount, ranks.count(rank))
            amount -= gone
            left[rank] = 1 - gone / ranks.count(rank)
        wrong = sum(left[rank] for rank, score in zip(ranks, pairs.genuine, strict=True) if score <= highest)
        curve.append(wrong / sum(left[rank] for rank in ranks))
    return curve


@pytest.mark.parametrize("label", ["good", "coarse"])
def test_a_curve_is_that_of_a_slow_loop(every, people, qualities, label):
    quality = {label: qualities[label]}
    found = error_versus_reject(every, quality, FMRS, replicates=0)
    for fmr in FMRS:
        slow = slow_curve(every, qualities[label], fmr)
        np.testing.assert_allclose(found[fmr].by[label].fnmr[::5], slow, atol=1e-9)
        assert found[fmr].fnmr.value == pytest.approx(slow[0])


@pytest.mark.parametrize("people_known", [True, False])
def test_intervals_of_a_curve_are_those_of_its_replicates(every, qualities, people_known):
    """Each replicate at its own threshold, found among repeated pairs."""
    pairs = as_list(every, every.people if people_known else None)
    assert pairs.unit == ("subjects" if people_known else "pairs")
    curves = []
    for limits, drawn in pairs.resampled([0.05], replicates=20, seed=2):
        weights = drawn[pairs.genuine_units]
        rows = np.repeat(np.arange(len(weights)), weights.astype(int))
        ranks = pair_quality(qualities["coarse"], pairs.genuine_pairs)[rows]
        wrong = pairs.genuine[rows] <= limits[0]
        order = np.argsort(ranks, kind="stable")
        means = {rank: wrong[ranks == rank].mean() for rank in np.unique(ranks)}
        removed = np.concatenate([[0], np.cumsum([means[rank] for rank in ranks[order]])])
        gone = np.array(RATES) * len(rows)
        curves.append((wrong.sum() - np.interp(gone, np.arange(len(rows) + 1), removed)) / (len(rows) - gone))
    quality = {"coarse": qualities["coarse"]}
    found = error_versus_reject(pairs, quality, [0.05], replicates=20, seed=2)[0.05].by["coarse"].ci95
    np.testing.assert_allclose(found, np.quantile(curves, [0.025, 0.975], axis=0), atol=1e-12)


# Properties.


def assert_equal(one, other):
    assert (one.genuine, one.impostors, one.accepted) == (other.genuine, other.impostors, other.accepted)
    assert one.threshold == pytest.approx(other.threshold, abs=1e-6)
    assert_same_estimate(one.fnmr, other.fnmr)
    assert one.by.keys() == other.by.keys()
    for label in one.by:
        np.testing.assert_allclose(one.by[label].fnmr, other.by[label].fnmr, atol=1e-12)
        for end in (0.2, 0.3, 0.95):
            assert_same_estimate(one.by[label].area[end], other.by[label].area[end])


def assert_same_estimate(one, other):
    np.testing.assert_allclose(one.value, other.value, atol=1e-12)
    np.testing.assert_allclose(one.replicates, other.replicates, atol=1e-12)


def test_a_list_gives_what_all_pairs_give_however_many_replicates_fit_into_memory(every, qualities, monkeypatch):
    whole = error_versus_reject(every, qualities, FMRS, replicates=30, seed=1)
    monkeypatch.setattr(module, "CHUNK", 3 * 2 * len(every.genuine))
    for pairs in (every, as_list(every, every.people)):
        found = error_versus_reject(pairs, qualities, FMRS, replicates=30, seed=1)
        for fmr in FMRS:
            assert_equal(whole[fmr], found[fmr])


def test_no_order_is_better_than_the_oracle(every, qualities):
    for areas in error_versus_reject(every, qualities, FMRS, replicates=50).values():
        for label in qualities:
            assert (areas.by["oracle"].fnmr <= areas.by[label].fnmr + 1e-12).all()
            for end in (0.2, 0.3, 0.95):
                best, area = areas.by["oracle"].area[end], areas.by[label].area[end]
                assert best.value < area.value
                assert (best.replicates <= area.replicates + 1e-12).all()


def test_differences_are_paired(every, qualities):
    found = error_versus_reject(every, qualities, [0.05], replicates=100)[0.05].by
    areas = {label: curve.area[0.3] for label, curve in found.items()}
    assert areas["same order"].minus(areas["good"]).interval() == (0, 0)
    interval, alone = areas["nearly"].minus(areas["good"]).interval(), areas["good"].interval()
    assert alone == pytest.approx(tuple(np.quantile(areas["good"].replicates, [0.025, 0.975])))
    assert interval[0] <= areas["nearly"].value - areas["good"].value <= interval[1]
    assert interval[1] - interval[0] < (alone[1] - alone[0]) / 3


def test_means_and_ratios_are_of_each_replicate():
    one, other = Estimate(0.5, np.array([0.4, np.nan, 0.7])), Estimate(0.1, np.array([0.1, 0.2, 0.0]))
    average, ratio = mean_estimate([one, other]), one.over(other)
    assert (average.value, ratio.value) == pytest.approx((0.3, 5.0))
    np.testing.assert_allclose(average.replicates, [0.25, np.nan, 0.35])
    np.testing.assert_allclose(ratio.replicates, [4.0, np.nan, np.nan])
    assert mean_estimate([one, one]).minus(one).interval() == (0, 0)
    assert Estimate(0.0, np.array([np.nan, np.nan])).interval() is None


def test_thresholds_may_come_from_other_images_of_the_same_people(every, people, blur, qualities):
    poor = compare_all(embed(people, 0.8 + 1.4 * blur, 2), people)
    clean, own, found = (
        error_versus_reject(pairs, qualities, FMRS, replicates=40, seed=3, thresholds_on=on)
        for pairs, on in ((every, None), (poor, None), (poor, every))
    )
    for fmr in FMRS:
        assert found[fmr].threshold == clean[fmr].threshold != own[fmr].threshold
        assert found[fmr].fnmr.value == np.mean(poor.genuine < clean[fmr].threshold)
        assert found[fmr].accepted == np.sum(poor.tail >= clean[fmr].threshold)
        counts = next(subject_counts(PEOPLE, 1, 3)).astype(np.float64)
        limit = clean_limit(every, counts, fmr)
        weights = counts[people[poor.genuine_pairs[:, 0]]]
        assert found[fmr].fnmr.replicates[0] == pytest.approx(np.average(poor.genuine <= limit, weights=weights))
    again = error_versus_reject(poor, qualities, FMRS, replicates=40, seed=3, thresholds_on=replace(poor))
    assert_equal(again[0.05], own[0.05])


def clean_limit(every, counts, fmr):
    weights = counts[every.people][every.tail_pairs].prod(axis=1)
    running = np.cumsum(weights)
    return float(every.tail[np.flatnonzero(running > fmr * running[-1] + 1e-9)[0]])


def test_where_nothing_is_wrong_there_is_nothing_to_gain(people):
    apart = np.eye(PEOPLE, dtype=np.float32)[people]
    pairs = compare_all(apart, people)
    found = error_versus_reject(pairs, {"any": np.arange(len(people))}, [0.05], replicates=5)[0.05]
    assert found.fnmr.value == 0
    assert np.isnan(found.by["any"].area[0.3].value)
    assert found.by["any"].area[0.3].interval() is None


# Refusals.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fmrs": [1e-4]}, "needs at least 10,000 impostor pairs, and there are 1,456"),
        ({"qualities": {"oracle": np.arange(56)}}, "give the quality another label"),
        ({"qualities": {"q": np.arange(55)}}, r"q: qualities are \(55,\), but there are 56 images"),
        ({"qualities": {"q": np.arange(57)}}, r"q: qualities are \(57,\), but there are 56 images"),
        ({"qualities": {"q": [np.nan, *range(55)]}}, "q: the quality of image 0 is not finite"),
    ],
)
def test_what_cannot_be_measured_is_refused(every, options, message):
    given = {"qualities": {"q": np.arange(56)}, "fmrs": [0.05], **options}
    with pytest.raises(ValueError, match=message):
        error_versus_reject(every, **given)


def test_thresholds_come_from_the_same_pairs(every, people):
    quality = {"q": np.arange(len(people))}
    for other in (as_list(every, None), replace(every, genuine_pairs=every.genuine_pairs[::-1])):
        with pytest.raises(ValueError, match="the same pairs of other images"):
            error_versus_reject(every, quality, [0.05], thresholds_on=other)


def test_a_list_must_agree_with_its_people():
    pairs = np.array([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="pair 1 is impostor"):
        compare_listed([0.9, 0.1], [True, False], pairs, np.array([3, 3, 3]))
    with pytest.raises(ValueError, match=r"pairs are \(2, 2\), but there are 3 scores"):
        compare_listed([0.9, 0.1, 0.2], [True, False, False], pairs, None)


def test_images_outside_a_list_do_not_count(people):
    """Of 22 images two are in no pair, one of which has no finite quality."""
    pairs = two_images_each([1, 2, 10])
    listed = np.concatenate([pairs.genuine_pairs, pairs.tail_pairs]) + 1
    more = compare_listed(
        np.concatenate([pairs.genuine, pairs.tail]),
        np.arange(14) < 10,
        listed,
        np.array([99, *np.repeat(range(10), 2), 98]),
    )
    one, other = (
        error_versus_reject(each, {"q": quality}, [0.3], replicates=20)
        for each, quality in ((pairs, QUALITY), (more, [np.nan, *QUALITY, -5]))
    )
    assert_equal(one[0.3], other[0.3])
    assert list(combinations(more.images[:2], 2)) == [(1, 2)]


def test_the_area_of_a_straight_line():
    rates = [0.0, 0.1, 0.25, 0.5]
    lines = np.stack([1 - np.array(rates), np.full(4, 0.3)])
    np.testing.assert_allclose(pauc(lines, rates, 0.25), [0.875, 0.3])
    np.testing.assert_allclose(pauc(lines, rates, 0.5), [0.75, 0.3])


@pytest.mark.parametrize(("rates", "end"), [((0.0, 0.1), 0.2), ((0.1, 0.2), 0.2), ((0.0, 0.1, 0.3), 0.2)])
def test_it_must_end_at_one_of_the_rates(rates, end):
    with pytest.raises(ValueError, match="not one of the rates"):
        pauc(np.ones(len(rates)), rates, end)
