import numpy as np
import pytest

from facerts.datasets.sampler import identity_order
from facerts.errors import DataError


def case():
    """Shuffled labels of people with 1, 2, 3, 5 and 8 images."""
    labels = np.repeat(np.arange(5), [1, 2, 3, 5, 8])
    return np.random.default_rng(0).permutation(labels)


def test_each_run_is_of_one_person_with_at_least_two_images():
    labels = case()
    order = identity_order(labels, 4, 24, seed=1, epoch=0)
    assert len(order) == 24
    runs = labels[order].reshape(-1, 4)
    assert (runs == runs[:, :1]).all()
    assert 0 not in runs
    assert set(runs[:, 0]) <= {1, 2, 3, 4}


def test_all_images_of_a_person_are_used_before_any_repeats():
    labels = case()
    whole = identity_order(labels, 4, 4 * (1 + 1 + 2 + 2), seed=3, epoch=0)
    for person, images in ((1, 2), (2, 3), (3, 5), (4, 8)):
        counts = np.bincount(whole[labels[whole] == person], minlength=len(labels))
        counts = counts[labels == person]
        assert counts.min() >= 1
        assert counts.max() - counts.min() <= 1
        assert len(counts) == images


def test_the_order_depends_only_on_the_key():
    labels = case()
    one = identity_order(labels, 2, 16, seed=1, epoch=2)
    np.testing.assert_array_equal(one, identity_order(labels, 2, 16, seed=1, epoch=2))
    assert not np.array_equal(one, identity_order(labels, 2, 16, seed=1, epoch=3))
    assert not np.array_equal(one, identity_order(labels, 2, 16, seed=2, epoch=2))


def test_a_set_of_people_with_one_image_each_is_refused():
    with pytest.raises(DataError, match="two or more images"):
        identity_order(np.arange(5), 2, 4, seed=0, epoch=0)
