from __future__ import annotations

import numpy as np

from facerts.metrics.intervals import bootstrap


def test_the_interval_of_a_mean_has_its_textbook_width() -> None:
    values = np.random.default_rng(0).normal(size=400)
    low, high = bootstrap(lambda rows: float(values[rows].mean()), [400], replicates=4000)
    standard_error = values.std() / 20
    assert low < values.mean() < high
    np.testing.assert_allclose(high - low, 2 * 1.96 * standard_error, rtol=0.08)


def test_groups_keep_their_sizes_and_the_seed_decides() -> None:
    sizes = []

    def statistic(first: np.ndarray, second: np.ndarray) -> float:
        sizes.append((len(first), len(second)))
        return float(first.sum())

    assert bootstrap(statistic, [5, 9], replicates=20) == bootstrap(statistic, [5, 9], replicates=20)
    assert set(sizes) == {(5, 9)}


def test_intervals_cover_as_often_as_they_promise() -> None:
    covered = 0
    for seed in range(200):
        flags = np.random.default_rng(seed).random(150) < 0.3
        low, high = bootstrap(lambda rows, flags=flags: float(flags[rows].mean()), [150], replicates=300)
        covered += low <= 0.3 <= high
    assert 180 <= covered <= 199
