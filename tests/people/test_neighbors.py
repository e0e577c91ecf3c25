import numpy as np
import pytest

from facerts.errors import MissingExtraError
from facerts.people import neighbors
from facerts.people.neighbors import nearest, similar_pairs


def unit(rows, size=32, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(rows, size))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def test_all_similar_pairs_are_found():
    embedding = unit(200)
    first, second = similar_pairs(embedding, 0.4, k=200)
    rows, columns = np.nonzero(np.triu(embedding @ embedding.T >= 0.4, 1))
    assert list(zip(first, second, strict=True)) == list(zip(rows, columns, strict=True))


def test_of_many_similar_faces_the_nearest_are_paired():
    embedding = unit(50, size=2)
    first, second = similar_pairs(embedding, -1.0, k=3)
    order = np.argsort(-(embedding @ embedding.T), axis=1)
    expected = {(min(a, b), max(a, b)) for a in range(50) for b in order[a, :4].tolist() if a != b}
    assert set(zip(first.tolist(), second.tolist(), strict=True)) == expected


def test_without_faiss_the_pairs_are_the_same(monkeypatch):
    embedding = unit(300)
    expected = similar_pairs(embedding, 0.3)
    monkeypatch.setattr(neighbors, "import_module", _not_installed)
    for mine, theirs in zip(similar_pairs(embedding, 0.3), expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    with pytest.raises(MissingExtraError, match="faiss"):
        similar_pairs(embedding, 0.3, exact=False)


def _not_installed(name):
    raise ImportError(name)


def test_an_index_finds_nearly_all():
    embedding = unit(3000, size=16)
    exact, found = (nearest(embedding, embedding[:200], 10, exact=exact).templates for exact in (True, False))
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(exact.tolist(), found.tolist(), strict=True)])
    assert recall > 0.95


def test_fewer_than_two_faces_have_no_pairs():
    assert [len(rows) for rows in similar_pairs(unit(1), 0.0)] == [0, 0]
