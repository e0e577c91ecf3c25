"""Rates by group: counted by hand, pair by pair, and resampled person by person."""

import itertools

import numpy as np
import pytest

from facerts.metrics.all_pairs import AllPairs, all_pairs
from facerts.metrics.group_rates import GroupRates, extremes, fmr_by_group, fnmr_by_group, share_by_group

IMAGES, GROUPS = 60, 3


@pytest.fixture(scope="module")
def drawn():
    """Embeddings of 14 people, whose images are in one of three groups or none."""
    random = np.random.default_rng(4)
    people = np.sort(random.integers(0, 14, IMAGES)) * 7
    vectors = random.normal(size=(100, 6))[people] + 0.9 * random.normal(size=(IMAGES, 6))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors.astype(np.float32), people, random.integers(-1, GROUPS, IMAGES)


@pytest.fixture(scope="module")
def pairs(drawn):
    return all_pairs(drawn[0], drawn[1])


def made(genuine, impostors, people):
    """Pairs with given similarities, of images with given people; all impostor pairs are in the tail."""
    ordered = sorted(impostors, key=lambda pair: -pair[2])

    def columns(listed):
        scores = np.array([score for *_, score in listed], dtype=np.float32)
        return scores, np.array([pair[:2] for pair in listed], dtype=np.int32).reshape(-1, 2)

    of_genuine, of_impostors = columns(genuine), columns(ordered)
    return AllPairs(
        genuine=of_genuine[0],
        genuine_pairs=of_genuine[1],
        tail=of_impostors[0],
        tail_pairs=of_impostors[1],
        impostors=len(impostors),
        people=np.array(people),
        counts=np.zeros(0, dtype=np.int64),
    )


def test_accepted_shares_by_hand():
    accepted = np.array([True, False, True, True, False, True, True])
    group = np.array([0, 0, 0, 0, 1, 1, -1])
    found = share_by_group(accepted, group, 3)
    assert found.events.tolist() == [3, 1, 0]
    assert found.trials.tolist() == [4, 2, 0]
    assert found.people is None
    assert found.rate[:2].tolist() == [0.75, 0.5]
    # Wilson's interval of 3 of 4 (as R's prop.test(3, 4, correct = FALSE) has it) and of 1 of 2.
    assert (found.low[0], found.high[0]) == pytest.approx((0.3006418, 0.9544127), abs=1e-6)
    assert (found.low[1], found.high[1]) == pytest.approx((0.0945312, 0.9054688), abs=1e-6)
    assert np.isnan([found.rate[2], found.low[2], found.high[2]]).all()


def slow_replicates(events, group, person_pairs, seed):
    """Rates of each replicate, counting one event after the other as often as its people were sampled."""
    people = sorted(set().union(*(p for p, g in zip(person_pairs, group, strict=True) if g >= 0)))
    random = np.random.default_rng(seed)
    rates = []
    for _ in range(30):
        sampled = [people[number] for number in random.integers(0, len(people), len(people))]
        hits, trials = [0] * GROUPS, [0] * GROUPS
        for event, place, persons in zip(events, group, person_pairs, strict=True):
            weight = int(np.prod([sampled.count(person) for person in persons]))
            if place >= 0:
                hits[place] += weight * bool(event)
                trials[place] += weight
        rates.append([hit / trial if trial else np.nan for hit, trial in zip(hits, trials, strict=True)])
    return np.array(rates)


def test_the_bootstrap_over_people_is_that_of_a_slow_loop(drawn):
    quality, people, group = drawn[0][:, 0], drawn[1], drawn[2]
    found = share_by_group(quality > 0, group, GROUPS, people, replicates=30, seed=5)
    slow = slow_replicates(quality > 0, group, [{int(person)} for person in people], 5)
    np.testing.assert_allclose(found.replicates, slow)
    np.testing.assert_allclose(found.low, np.nanquantile(slow, 0.025, axis=0))
    np.testing.assert_allclose(found.high, np.nanquantile(slow, 0.975, axis=0))
    assert found.people.tolist() == [len(set(people[group == number].tolist())) for number in range(GROUPS)]


@pytest.mark.parametrize("rejecting", [False, True])
def test_error_rates_are_those_of_every_pair_one_by_one(drawn, pairs, rejecting):
    vectors, people, group = drawn
    kept = vectors[:, 1] > -0.4 if rejecting else None
    threshold = 0.45
    listed = list(itertools.combinations(range(IMAGES), 2))
    of_pair = np.array(
        [group[a] if group[a] == group[b] and (kept is None or (kept[a] and kept[b])) else -1 for a, b in listed]
    )
    same = np.array([people[a] == people[b] for a, b in listed])
    matching = np.array([float(vectors[a] @ vectors[b]) >= threshold for a, b in listed])
    for measure, chosen, events in ((fnmr_by_group, same, ~matching), (fmr_by_group, ~same, matching)):
        found = measure(pairs, group, GROUPS, threshold, kept=kept, replicates=30, seed=2)
        inside = [chosen & (of_pair == number) for number in range(GROUPS)]
        assert found.trials.tolist() == [int(rows.sum()) for rows in inside]
        assert found.events.tolist() == [int(events[rows].sum()) for rows in inside]
        assert min(found.events) > 0
        persons = [{int(people[a]), int(people[b])} for a, b in listed]
        alone = np.where(chosen, of_pair, -1)
        # A replicate of FMR draws from everybody in a group, and each of them has an impostor pair there.
        drawn_people = set().union(*(both for both, place in zip(persons, alone, strict=True) if place >= 0))
        in_group = (group >= 0) if kept is None else (group >= 0) & kept
        assert measure is fnmr_by_group or drawn_people == set(people[in_group].tolist())
        np.testing.assert_allclose(found.replicates, slow_replicates(events, alone, persons, 2))


def test_rates_by_hand_with_pairs_inside_and_across_groups():
    # Images 0–3 are in group 0 (people 0, 0, 1, 2), images 4–5 in group 1 (people 3, 3).
    found = made(
        genuine=[(0, 1, 0.5), (4, 5, 0.2)],
        impostors=[(0, 2, 0.5), (1, 2, 0.1), (0, 3, 0.3), (1, 3, 0.6), (2, 3, 0.0)]
        + [(a, b, 0.8) for a in range(4) for b in (4, 5)],
        people=[0, 0, 1, 2, 3, 3],
    )
    group = np.array([0, 0, 0, 0, 1, 1])
    missed, matched = (measure(found, group, 2, 0.5) for measure in (fnmr_by_group, fmr_by_group))
    assert (missed.events.tolist(), missed.trials.tolist()) == ([0, 1], [1, 1])
    assert (matched.events.tolist(), matched.trials.tolist()) == ([2, 0], [5, 0])
    assert matched.rate[0] == 0.4
    assert np.isnan(matched.rate[1])  # one person has no impostor pair
    assert matched.people.tolist() == [3, 1]
    # One person has genuine pairs in each group, so nothing is known.
    assert (missed.low[0], missed.high[0]) == (0.0, 1.0)
    assert (missed.low[1], missed.high[1]) == (0.0, 1.0)


def test_without_an_error_the_interval_extends_to_the_rule_of_three():
    people = list(range(40))
    impostors = [(a, b, 0.1) for a, b in itertools.combinations(people, 2)]
    one = made([], impostors, people)
    found = fmr_by_group(one, np.zeros(40, dtype=int), 1, 0.5)
    assert found.events[0] == 0
    assert (found.low[0], found.high[0]) == (0.0, pytest.approx(3 / (40 * 39 / 2)))
    every = share_by_group(np.ones(80, dtype=bool), np.zeros(80, dtype=int), 1, np.repeat(people, 2))
    assert (every.low[0], every.high[0]) == (pytest.approx(1 - 3 / 40), 1.0)


def test_thresholds_below_the_tail_are_refused(drawn):
    short = all_pairs(drawn[0], drawn[1], tail=100)
    assert len(short.tail) < short.impostors
    end = float(short.tail[-1])
    assert fmr_by_group(short, np.zeros(IMAGES, dtype=int), 1, end).events[0] == len(short.tail)
    with pytest.raises(ValueError, match="below the tail"):
        fmr_by_group(short, np.zeros(IMAGES, dtype=int), 1, end - 1e-3)


def rates(rate, replicates, trials=100):
    values, number = np.array(rate), len(rate)
    counts = np.where(np.isnan(values), 0, trials).astype(np.int64)
    return GroupRates(
        np.nan_to_num(values * trials).astype(np.int64),
        counts,
        None,
        values,
        *np.full((2, number), np.nan),
        np.array(replicates),
    )


def test_worst_and_best_by_hand():
    replicates = [[0.1 + 0.001 * number, 0.4, 0.2] for number in range(41)]
    found = extremes(rates([0.1, 0.4, 0.2], replicates), np.ones(3, dtype=bool), high_is_worse=True)
    assert (found.worst, found.best) == (1, 0)
    assert (found.difference, found.ratio) == (pytest.approx(0.3), pytest.approx(4))
    # Only the first group varies, by up to 0.04, of which 0.038 is the 95% point.
    assert found.difference_ci95 == pytest.approx((0.3 - 0.038, 0.3 + 0.038))
    assert found.ratio_ci95 == pytest.approx((4 / 1.38, 4 * 1.38), rel=1e-3)
    assert found.over_mean == pytest.approx(0.4 / (0.1 * 0.4 * 0.2) ** (1 / 3))
    accepted = extremes(rates([0.1, 0.4, 0.2], replicates), np.ones(3, dtype=bool), high_is_worse=False)
    assert (accepted.worst, accepted.best, accepted.difference) == (0, 1, pytest.approx(-0.3))
    assert accepted.ratio == pytest.approx(0.25)


def test_the_intervals_cover_the_choice_of_the_groups():
    """Of 15 groups with one rate, the worst and the best may be called different in 5% of all samples."""
    random = np.random.default_rng(6)
    group, groups = np.repeat(np.arange(15), 60), 15
    clear = 0
    for _ in range(60):
        rates_of_15 = share_by_group(random.random(len(group)) < 0.7, group, groups)
        found = extremes(rates_of_15, np.ones(groups, dtype=bool), high_is_worse=False)
        clear += found.difference_ci95[1] < 0
    assert clear <= 8
    # A true difference is found.
    shares = np.where(group == 3, 0.3, 0.7)
    found = extremes(
        share_by_group(random.random(len(group)) < shares, group, groups),
        np.ones(groups, dtype=bool),
        high_is_worse=False,
    )
    assert found.worst == 3
    assert found.difference_ci95[1] < 0


def test_small_and_empty_groups_are_neither_worst_nor_best():
    values = rates([0.0, 0.4, 0.2, np.nan], [[0.0, 0.4, 0.2, np.nan]])
    found = extremes(values, np.array([False, True, True, True]), high_is_worse=True)
    assert (found.worst, found.best) == (1, 2)
    assert extremes(values, np.array([False, True, False, True]), high_is_worse=True) is None


def test_a_rate_of_zero_has_no_ratio():
    found = extremes(rates([0.0, 0.4], [[0.0, 0.4]] * 9), np.ones(2, dtype=bool), high_is_worse=True)
    assert (found.difference, found.ratio, found.ratio_ci95, found.over_mean) == (0.4, None, None, None)
    # A tenth of the replicates without an error: the ratio has no upper end.
    replicates = [[0.0 if number == 0 else 0.1, 0.4] for number in range(10)]
    found = extremes(rates([0.1, 0.4], replicates), np.ones(2, dtype=bool), high_is_worse=True)
    assert (found.ratio, found.ratio_ci95) == (pytest.approx(4), None)


def test_groups_without_images_have_no_rates(drawn, pairs):
    nowhere = np.full(IMAGES, -1)
    for found in (
        fnmr_by_group(pairs, nowhere, 2, 0.5),
        fmr_by_group(pairs, nowhere, 2, 0.5),
        share_by_group(np.ones(IMAGES, dtype=bool), nowhere, 2, drawn[1]),
        share_by_group(np.ones(IMAGES, dtype=bool), nowhere, 2),
    ):
        assert found.trials.tolist() == [0, 0]
        assert np.isnan(found.rate).all()
        assert np.isnan(found.low).all()
        assert extremes(found, np.ones(2, dtype=bool), high_is_worse=True) is None
