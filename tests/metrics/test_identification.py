import numpy as np
import pytest

from facerts.metrics import identification
from facerts.metrics.identification import SearchResult, fnir_at_fpir, mate_ranks, rank_rates, search


def unit(rows, seed):
    vectors = np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("blocks", [(1024, 8192), (5, 7), (64, 1)])
def test_search_matches_sorting_all_products(blocks, monkeypatch):
    monkeypatch.setattr(identification, "ROWS", blocks[0])
    monkeypatch.setattr(identification, "COLUMNS", blocks[1])
    gallery, probes = unit(60, 0), unit(33, 1)
    found = search(gallery, probes, 9)
    whole = probes @ gallery.T
    order = np.argsort(-whole, axis=1)[:, :9]
    np.testing.assert_array_equal(found.templates, order)
    np.testing.assert_allclose(found.scores, np.take_along_axis(whole, order, axis=1), atol=1e-6)


@pytest.mark.parametrize("steps", [1, 7, 3000])
def test_a_gallery_that_rises_or_repeats_itself_is_not_sorted(steps, monkeypatch):
    monkeypatch.setattr(identification, "COLUMNS", 1000)
    angles = np.linspace(1.5, 0, 3000)
    angles = angles[np.arange(3000) * steps // 3000 * 3000 // steps]
    gallery = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    lengths = []
    lexsort = np.lexsort
    monkeypatch.setattr(np, "lexsort", lambda keys: lengths.append(len(keys[0])) or lexsort(keys))
    found = search(gallery, gallery[[-1] * 20], 3)
    whole = gallery[-1] @ gallery.T
    expected = np.argsort(-whole, kind="stable")[:3]
    np.testing.assert_array_equal(found.templates, np.tile(expected, (20, 1)))
    assert max(lengths) <= 20 * 3 * 4


def test_a_small_gallery_is_returned_whole_and_an_empty_one_refused():
    assert search(unit(3, 0), unit(2, 1), 10).templates.shape == (2, 3)
    with pytest.raises(ValueError, match="needs a gallery"):
        search(np.empty((0, 6)), unit(2, 1), 1)
    with pytest.raises(ValueError, match="of the same size"):
        search(unit(3, 0), np.ones((2, 5)), 1)


def test_ranks_match_a_slow_reference_with_several_templates_per_person():
    random = np.random.default_rng(2)
    people = random.integers(0, 12, 50)
    subjects = random.integers(0, 15, 40)  # some are not in the gallery
    gallery, probes = unit(50, 3), unit(40, 4)
    ranks = mate_ranks(search(gallery, probes, 50), people, subjects)
    for probe in range(40):
        best = {int(who): float((gallery[people == who] @ probes[probe]).max()) for who in np.unique(people)}
        if int(subjects[probe]) not in best:
            assert ranks[probe] == 0
        else:
            own = best[int(subjects[probe])]
            assert ranks[probe] == 1 + sum(score >= own for who, score in best.items() if who != subjects[probe])


def test_in_a_tie_the_right_person_comes_last():
    found = SearchResult(np.array([[0.9, 0.9, 0.9, 0.5]], dtype=np.float32), np.array([[0, 1, 2, 3]]))
    assert mate_ranks(found, np.array([8, 4, 8, 6]), np.array([8])).tolist() == [2]
    assert mate_ranks(found, np.array([8, 4, 5, 6]), np.array([8])).tolist() == [3]


def test_rank_rates_count_identified_probes():
    assert rank_rates([1, 1, 3, 0], (1, 2, 3)) == {1: 0.5, 2: 0.5, 3: 0.75}


def test_fnir_at_fpir_matches_trying_every_threshold():
    random = np.random.default_rng(5)
    mated, ranks = np.round(random.normal(1, 1, 60), 1), random.integers(0, 3, 60)
    others = np.round(random.normal(0, 1, 40), 1)
    for target in (0.0, 0.01, 0.1, 0.3, 1.0):
        point = fnir_at_fpir(mated, ranks, others, target)
        allowed = [t for t in [*mated, *others, np.inf, -np.inf] if np.mean(others >= t) <= target]
        misses = [np.mean((ranks != 1) | (mated < t)) for t in allowed]
        assert point.fnir == pytest.approx(min(misses))
        assert point.achieved_fpir == np.mean(others >= point.threshold) <= target
    with pytest.raises(ValueError, match="non-mated"):
        fnir_at_fpir(mated, ranks, [], 0.1)
