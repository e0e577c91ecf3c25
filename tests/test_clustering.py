from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.cluster import pair_confusion_matrix

from tests.scripts import load_script

group_agreement = load_script("clustering").group_agreement


def test_agreement_is_that_of_the_definitions():
    random = np.random.default_rng(0)
    person, group = random.integers(0, 9, 60), random.integers(-1, 12, 60)
    own = np.where(group < 0, 100 + np.arange(60), group)
    weight = random.integers(1, 4, 60)
    same_person, same_group = person[:, None] == person[None], own[:, None] == own[None]
    both = (same_person & same_group).sum(axis=1)
    agreement = group_agreement(person, group, weight)
    repeated = np.repeat(np.arange(60), weight)
    assert agreement.precision == pytest.approx((both / same_group.sum(axis=1))[repeated].mean())
    assert agreement.recall == pytest.approx((both / same_person.sum(axis=1))[repeated].mean())
    precision, recall = agreement.precision, agreement.recall
    assert agreement.f == pytest.approx(2 * precision * recall / (precision + recall))
    (_, false), (missed, right) = pair_confusion_matrix(person, own)
    assert agreement.pair_precision == pytest.approx(right / (right + false))
    assert agreement.pair_recall == pytest.approx(right / (right + missed))
    assert agreement.unclear == pytest.approx((group < 0)[repeated].mean())
    assert (agreement.groups, agreement.people) == (len(np.unique(own)), len(np.unique(person)))


def test_nothing_to_compare_is_refused():
    with pytest.raises(ValueError, match="2 faces with people, and 1 with groups"):
        group_agreement([1, 2], [1])
    with pytest.raises(ValueError, match="0 faces"):
        group_agreement([], [])
