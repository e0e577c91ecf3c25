"""Near-duplicates and similar pairs, checked against loops over all pairs, for several block sizes."""

import numpy as np
import pytest

from facerts.curation import pairwise
from facerts.curation.pairwise import (
    EmbeddingSubset,
    check_threshold,
    find_near_duplicates,
    identity_means,
    leave_one_out_cosines,
    rows_by_label,
    similar_pairs,
)
from facerts.errors import Error

THRESHOLD = 0.9


@pytest.fixture(scope="module")
def vectors():
    """Ninety unit vectors in clusters, of which about every third is similar to another."""
    random = np.random.default_rng(5)
    centers = random.normal(size=(40, 6))
    rows = centers[random.integers(40, size=90)] + random.normal(0, 0.25, (90, 6))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(params=[4, 7, 2048])
def block(request, monkeypatch):
    monkeypatch.setattr(pairwise, "BLOCK", request.param)
    monkeypatch.setattr(pairwise, "MAX_ROWS", 5 if request.param < 100 else 1 << 16)


@pytest.mark.usefixtures("block")
def test_near_duplicates_of_kept_rows_are_found(vectors):
    duplicates = find_near_duplicates(vectors, THRESHOLD)
    kept = []
    for row, vector in enumerate(vectors):
        if any(float(vector @ vectors[other]) >= THRESHOLD for other in kept):
            assert duplicates.original[row] in kept
            assert duplicates.cosine[row] == pytest.approx(float(vector @ vectors[duplicates.original[row]]), abs=1e-6)
            assert duplicates.cosine[row] >= THRESHOLD
        else:
            assert duplicates.original[row] == -1
            kept.append(row)
    assert 20 < len(kept) < 70


@pytest.mark.usefixtures("block")
@pytest.mark.parametrize("subset", [False, True])
def test_similar_pairs_are_found_exactly_once(vectors, subset):
    rows = np.random.default_rng(0).permutation(90)[:50] if subset else np.arange(90)
    embedding = EmbeddingSubset(vectors, rows) if subset else vectors
    actual = [
        (int(first), int(second), round(float(cosine), 5))
        for part in similar_pairs(embedding, THRESHOLD, "")
        for first, second, cosine in zip(*part, strict=True)
    ]
    selected = vectors[rows]
    expected = [
        (first, second, round(float(selected[first] @ selected[second]), 5))
        for first in range(len(selected))
        for second in range(first + 1, len(selected))
        if float(selected[first] @ selected[second]) >= THRESHOLD
    ]
    assert sorted((first, second) for first, second, _ in actual) == [pair[:2] for pair in expected]
    cosines = [{pair[:2]: pair[2] for pair in pairs} for pairs in (actual, expected)]
    assert cosines[0] == pytest.approx(cosines[1], abs=2e-5)
    assert len(actual) > 10


def test_a_pair_just_below_the_threshold_is_not_found():
    at = np.float32(THRESHOLD)
    cosines = np.array([np.nextafter(at, np.float32(0)), at, np.nextafter(at, np.float32(1))])
    # Each row's cosine to the first is its first entry, exactly; the others are at right angles to each other.
    rows = np.zeros((4, 4), dtype=np.float32)
    rows[0, 0] = 1
    rows[1:, 0] = cosines
    rows[1:, 1:] = np.diag(np.sqrt(1 - cosines**2))
    found = [
        (int(first), int(second))
        for part in similar_pairs(rows, THRESHOLD, "")
        for first, second, _ in zip(*part, strict=True)
    ]
    assert sorted(found) == [(0, 2), (0, 3)]
    assert find_near_duplicates(rows, THRESHOLD).original.tolist() == [-1, -1, 0, 0]


@pytest.mark.parametrize("value", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_that_finds_nothing_or_everything_is_refused(value):
    with pytest.raises(Error, match="--threshold"):
        check_threshold(value, "--threshold")


def test_an_image_is_compared_with_the_others_of_its_identity(vectors):
    own = leave_one_out_cosines(vectors[:9])
    for row in range(9):
        others = np.delete(vectors[:9], row, axis=0).mean(axis=0)
        assert own[row] == pytest.approx(float(vectors[row] @ others / np.linalg.norm(others)), abs=1e-5)


def test_identity_means_include_only_kept_images(vectors):
    labels = np.random.default_rng(1).integers(0, 5, 90)
    kept = (np.arange(90) % 3 > 0) & (labels != 4)
    means = identity_means(vectors, labels, kept, 6)
    for label in range(4):
        mean = vectors[(labels == label) & kept].mean(axis=0)
        np.testing.assert_allclose(means[label], mean / np.linalg.norm(mean), atol=1e-6)
    assert not means[4:].any()
    rows = list(rows_by_label(labels))
    assert [set(part.tolist()) for part in rows] == [
        set(np.flatnonzero(labels == label).tolist()) for label in range(5)
    ]
