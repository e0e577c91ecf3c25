"""eval/people_groups.py: the sets that it draws, and methods that group well-separated people rightly."""

from __future__ import annotations

import numpy as np
import pytest

from facerts.metrics.same_person import SamePerson
from tests.scripts import load_script

script = load_script("people_groups")
RATIO = SamePerson((-10.0, 40.0, 0.0, 0.0))


def faces(sizes: list[int], good: bool = True) -> object:
    """Faces of people, each close to an axis of its own."""
    person = np.repeat(np.arange(len(sizes)), sizes)
    embedding = np.eye(len(sizes), 40)[person] + 0.05 * np.random.default_rng(0).normal(size=(len(person), 40))
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    some = np.full(len(person), good)
    return script.Faces(embedding.astype(np.float32), np.where(some, 80.0, 1.0), some, some, person)


@pytest.mark.parametrize("name", script.METHODS)
def test_people_who_are_far_apart_are_told_apart_by_each_method(name):
    each = faces([4, 3, 3, 2, 2])
    for quality in (False, True):
        group = script.grouped(each, script.METHODS[name], 0.5, RATIO, quality=quality)
        assert script.group_agreement(each.person, group).f == 1


def test_sizes_of_people_fall_by_a_power_law():
    person = np.repeat(np.arange(2000), 10)
    rows = script.draw_people(person, 1000, seed=0)
    sizes = np.bincount(np.unique(person[rows], return_inverse=True)[1])
    assert len(sizes) == 1000
    assert 0.55 < np.mean(sizes == 1) < 0.68
    assert 0.1 < np.mean(sizes == 2) < 0.2
    assert len(np.unique(rows)) == len(rows)


def test_half_of_a_mixed_set_is_degraded_and_non_faces_are_nobody_else():
    clean, degraded = faces([50, 50]), faces([50, 50], good=False)
    others = faces([1, 1])
    others = script.Faces(*[*vars(others).values()][:-1], np.array([-1, -2]))
    each = script.mixed(clean, degraded, others, 0)
    assert each.person[:100].tolist() == clean.person.tolist()
    assert each.person[100:].tolist() == [-1, -2]
    assert 30 < np.count_nonzero(each.good[:100]) < 70


def test_the_setting_with_the_best_groups_is_chosen():
    each = faces([4, 3, 3, 2, 2])
    apart = each.embedding @ each.embedding.T
    largest = apart[each.person[:, None] != each.person[None]].max()
    chosen = script.chosen(script.components, [each], RATIO, False)
    assert chosen > largest or chosen == min(script.COSINES)


def test_probabilities_are_compared_with_what_is_right():
    table = script.probabilities_table([faces([4, 3, 3])], RATIO)
    assert table.splitlines()[-1].split("|")[2].strip() == "1.000 of 10"


def test_the_summary_pairs_both_rows_of_a_method():
    rows = [
        ["set", "a", "without", "0.5 [0, 1]"],
        ["set", "a", "with", "0.7 [0, 1]"],
        ["set", "b", "with", "0.9"],
    ]
    assert [line.split("|")[2].strip() for line in script.summary_table(rows).splitlines()[2:]] == [
        "0.5 0.7",
        "– 0.9",
    ]
