import numpy as np
import pytest

from facerts.metrics.pooling import pool, ranked_weights


def unit(rows, seed):
    vectors = np.random.default_rng(seed).normal(size=(rows, 5)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_pooling_matches_a_slow_reference():
    random = np.random.default_rng(0)
    vectors, weights = unit(40, 1), random.random(40) + 0.1
    template = np.concatenate([np.arange(7), random.integers(0, 7, 33)])
    media = random.integers(0, 3, 40)
    pooled = pool(vectors, template, media=media, weights=weights)
    for row in range(7):
        total = np.zeros(5)
        for medium in np.unique(media[template == row]):
            inside = (template == row) & (media == medium)
            mean = np.average(vectors[inside], axis=0, weights=weights[inside])
            total += weights[inside].mean() * mean
        np.testing.assert_allclose(pooled[row], total / np.linalg.norm(total), atol=1e-6)


@pytest.mark.parametrize("block", [1, 7, 40, 1000])
def test_blocks_do_not_matter_and_never_split_a_template(monkeypatch, block):
    random = np.random.default_rng(5)
    # Template 3 alone is larger than most blocks.
    template = random.permutation(np.concatenate([np.arange(20), np.full(60, 3), random.integers(0, 20, 120)]))
    vectors, weights, media = unit(200, 6), random.random(200) + 0.1, random.integers(0, 4, 200)
    whole = pool(vectors, template, media=media, weights=weights, templates=20)
    monkeypatch.setattr("facerts.metrics.pooling.BLOCK", block)
    np.testing.assert_array_equal(pool(vectors, template, media=media, weights=weights, templates=20), whole)


def test_invalid_input_is_refused():
    with pytest.raises(ValueError, match="weight 1 is 0"):
        pool(unit(2, 0), [0, 0], weights=[1.0, 0.0])
    with pytest.raises(ValueError, match="template 1 has no image"):
        pool(unit(2, 0), [0, 2])
    with pytest.raises(ValueError, match="must have the same length"):
        pool(unit(2, 0), [0])


def test_ranked_weights_depend_only_on_the_order():
    assert ranked_weights([-3.0, 10.0, -3.0, 0.5]).tolist() == [0.5, 1.0, 0.5, 0.75]
    quality = np.random.default_rng(0).normal(size=30)
    np.testing.assert_array_equal(ranked_weights(quality), ranked_weights(np.exp(quality)))
