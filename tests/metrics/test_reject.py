from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from facerts.metrics.reject import (
    error_versus_reject,
    normalized_area,
    oracle_quality,
    pair_quality,
    partial_area,
    random_area,
    reject_curve,
    reject_intervals,
    resampled_curves,
    resampled_fmr_limits,
)
from facerts.metrics.resample import pair_weights
from facerts.metrics.verification import fmr_threshold, trapezoid


def case(
    seed: int = 0, pairs: int = 600
) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.float64]]:
    random = np.random.default_rng(seed)
    same = random.random(pairs) < 0.5
    quality = random.random(pairs)
    return random.normal(same * (0.5 + 1.5 * quality), 0.5), same, quality


@pytest.mark.parametrize("convention", ["fixed", "per_rate"])
def test_the_curve_matches_a_slow_reference(convention: str) -> None:
    scores, same, quality = case()
    curve = error_versus_reject(scores, same, quality, fmr=0.01, convention=convention)  # type: ignore[arg-type]
    for rate, fnmr in zip(curve.rejected, curve.fnmr, strict=True):

        def kept(flag: bool, rate: float = rate) -> NDArray[np.intp]:
            rows = np.flatnonzero(same == flag)
            worst_first = rows[np.argsort(quality[rows])]
            return worst_first[int(np.floor(rate * len(rows) + 1e-9)) :]

        impostors = np.flatnonzero(~same) if convention == "fixed" else kept(False)
        threshold = fmr_threshold(scores[impostors], 0.01)
        assert fnmr == pytest.approx(np.mean(scores[kept(True)] < threshold))


def test_ties_give_the_mean_over_every_order() -> None:
    same = np.array([True] * 5 + [False] * 3)
    scores = np.array([0.9, 0.1, 0.8, 0.2, 0.7, 0.3, 0.4, 0.5])
    quality = np.array([1.0, 1.0, 1.0, 2.0, 2.0, 0, 0, 0])
    curve = error_versus_reject(scores, same, quality, fmr=0.0, rates=(0.0, 0.2, 0.4, 0.6, 0.8))
    errors = scores[:5] < curve.threshold[0]
    for gone, fnmr in enumerate(curve.fnmr):
        means = []
        for order in permutations(range(5)):
            if quality[list(order)].tolist() == sorted(quality[:5]):
                means.append(errors[list(order)[gone:]].mean())
        assert fnmr == pytest.approx(np.mean(means))


def test_a_constant_quality_gives_a_flat_curve() -> None:
    scores, same, _ = case(1)
    curve = error_versus_reject(scores, same, np.zeros(len(scores)), fmr=0.01)
    np.testing.assert_allclose(curve.fnmr, curve.fnmr[0])
    assert partial_area(curve, 0.95) == pytest.approx(random_area(curve))


def test_no_quality_beats_the_oracle() -> None:
    scores, same, quality = case(2)
    best = error_versus_reject(scores, same, oracle_quality(scores, same), fmr=0.01)
    for candidate in (quality, -quality, np.random.default_rng(0).random(len(scores))):
        curve = error_versus_reject(scores, same, candidate, fmr=0.01)
        assert (best.fnmr <= curve.fnmr + 1e-12).all()
    gone = best.rejected >= best.fnmr[0] + 0.01
    assert (best.fnmr[gone] == 0).all()


def test_a_good_quality_lowers_the_curve_and_its_negative_raises_it() -> None:
    scores, same, quality = case(3, 4000)
    area = {
        name: partial_area(error_versus_reject(scores, same, q, fmr=0.01), 0.2)
        for name, q in (("good", quality), ("bad", -quality))
    }
    base = random_area(error_versus_reject(scores, same, quality, fmr=0.01))
    assert area["good"] < base < area["bad"]


def test_the_area_of_a_straight_line() -> None:
    curve = error_versus_reject(*case(), fmr=0.01)
    line = type(curve)(curve.rejected, 1 - curve.rejected, curve.threshold, curve.impostors)
    assert partial_area(line, 0.2) == pytest.approx(0.9)
    assert partial_area(line, 0.155) == pytest.approx(1 - 0.155 / 2)
    with pytest.raises(ValueError, match=r"not from 0 to 0\.99"):
        partial_area(line, 0.99)


def test_a_pair_is_as_good_as_its_worse_image() -> None:
    assert pair_quality([3.0, 1.0, 2.0], np.array([[0, 1], [0, 2]])).tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("quality", "rates", "message"),
    [
        ([1.0, np.nan], (0.0,), "finite quality"),
        ([1.0], (0.0,), "finite quality"),
        ([1.0, 2.0], (1.0,), r"\[0, 1\)"),
    ],
)
def test_invalid_input_is_refused(quality: list[float], rates: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        error_versus_reject([0.1, 0.2], [True, False], quality, rates=rates)


def test_pair_qualities_are_combined_as_requested() -> None:
    pairs = np.array([[0, 1], [0, 2]])
    assert pair_quality([3.0, 1.0, 2.0], pairs, "mean").tolist() == [2.0, 2.5]
    assert pair_quality([3.0, 1.0, 2.0], pairs, "product").tolist() == [3.0, 6.0]
    with pytest.raises(ValueError, match="needs both to be positive"):
        pair_quality([3.0, -1.0, 2.0], pairs, "product")


def test_the_area_of_a_replicate_equals_that_of_repeated_pairs() -> None:
    scores, same, quality = case(5, 300)
    quality = np.round(quality, 1)
    rates = tuple(np.linspace(0, 0.5, 41))
    genuine, impostors = np.flatnonzero(same), np.flatnonzero(~same)
    areas = []
    for weights in pair_weights(same, None, replicates=40, seed=9):
        limit = fmr_threshold(np.repeat(scores[impostors], weights[impostors].astype(int)), 0.05)
        rows = np.repeat(genuine, weights[genuine].astype(int))
        # Only shares of whole pairs: between them the replicate's curve is linear within a tie.
        wrong, gone = scores[rows] < limit, np.asarray(rates) * len(rows)
        by_quality = np.argsort(quality[rows], kind="stable")
        means = {q: wrong[quality[rows] == q].mean() for q in np.unique(quality[rows])}
        removed = np.concatenate([[0], np.cumsum([means[q] for q in quality[rows][by_quality]])])
        fnmr = (wrong.sum() - np.interp(gone, np.arange(len(rows) + 1), removed)) / (len(rows) - gone)
        areas.append(trapezoid(np.asarray(rates), fnmr) / 0.5)
    found = reject_intervals(
        scores[same],
        quality[same],
        resampled_fmr_limits(scores, same, None, 0.05, replicates=40, seed=9),
        rates=rates,
        ends=(0.5,),
    )
    assert found.area[0.5] == pytest.approx(tuple(np.quantile(areas, [0.025, 0.975])))
    assert len(found.low) == 41
    assert (found.low <= found.high).all()


def test_a_curve_at_a_known_threshold_matches_the_one_that_chooses_it() -> None:
    scores, same, quality = case(6)
    whole = error_versus_reject(scores, same, quality, fmr=0.02)
    part = reject_curve(scores[same], quality[same], float(whole.threshold[0]), int((~same).sum()))
    np.testing.assert_array_equal(whole.fnmr, part.fnmr)


def test_a_normalized_area_is_relative_to_an_uninformative_quality() -> None:
    scores, same, quality = case(2)
    curves = [
        error_versus_reject(scores, same, one, fmr=0.02) for one in (quality, -quality, np.ones(len(quality)))
    ]
    found = normalized_area([curve.fnmr for curve in curves], curves[0].rejected.tolist(), 0.3)
    expected = [partial_area(curve, 0.3) / random_area(curve) for curve in curves]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert found[0] < 0.9 < 1.05 < found[1]
    assert found[2] == pytest.approx(1)
    assert np.isnan(normalized_area([0.0, 0.0, 0.0], (0.0, 0.1, 0.2), 0.2))


@pytest.mark.parametrize(("rates", "end"), [((0.0, 0.1), 0.2), ((0.1, 0.2), 0.2), ((0.0, 0.1, 0.3), 0.2)])
def test_a_normalized_area_must_end_at_one_of_the_rates(rates: tuple[float, ...], end: float) -> None:
    with pytest.raises(ValueError, match="not one of the rates"):
        normalized_area(np.ones(len(rates)), rates, end)


def test_a_replicate_without_genuine_pairs_is_nan_and_ignored_in_intervals() -> None:
    scores, same, quality = case(3)
    whole = np.ones(int(same.sum()), dtype=np.float32)
    replicates = [(0.4, whole), (0.4, 0 * whole), (0.4, whole)]
    curves = resampled_curves(scores[same], quality[same], replicates, rates=(0.0, 0.1, 0.2))
    assert curves.shape == (3, 3)
    assert np.isnan(curves[1]).all()
    np.testing.assert_array_equal(curves[0], curves[2])
    assert curves[0, 0] == pytest.approx(np.mean(scores[same] <= 0.4))
    found = reject_intervals(scores[same], quality[same], replicates, rates=(0.0, 0.1, 0.2), ends=(0.2,))
    np.testing.assert_array_equal(found.low, curves[0])
    assert found.area[0.2][0] == found.area[0.2][1]


@given(st.integers(0, 1000))
def test_order_and_monotone_transforms_of_scores_and_quality_do_not_matter(seed: int) -> None:
    scores, same, quality = case(seed, 60)
    order = np.random.default_rng(seed).permutation(60)
    one = error_versus_reject(scores, same, quality, fmr=0.05)
    other = error_versus_reject(np.exp(scores[order]), same[order], quality[order] ** 3, fmr=0.05)
    np.testing.assert_allclose(one.fnmr, other.fnmr)
