"""Decisions to constraints, against a slow reading of them, and numbers of groups from run to run."""

from itertools import combinations, product

import numpy as np
import pytest

from facerts.people.constraints import constraints_of, keep_numbers, settle
from facerts.people.decisions import NOBODY, Action, PeopleDecision, standing
from facerts.people.found_faces import FaceKey, FoundFaces

FACES = 9


def table(faces=FACES, boxes=None):
    """A table of aligned crops, one face each; or of one photo with boxes."""
    count = faces if boxes is None else len(boxes)
    images = count if boxes is None else 1
    names = np.array([sha256(image) for image in range(images)])
    return FoundFaces(
        "{}",
        "drawn",
        "a" * 64,
        sha256=names,
        path=names,
        image=np.arange(images, dtype=np.int32),
        size=np.ones(images, np.int64),
        mtime=np.ones(images, np.int64),
        error=np.array([""] * images),
        face_image=np.arange(count, dtype=np.int32) if boxes is None else np.zeros(count, np.int32),
        number=np.zeros(count, np.int32) if boxes is None else np.arange(count, dtype=np.int32),
        box=np.full((count, 4), np.nan, np.float32) if boxes is None else np.array(boxes, np.float32),
        points=np.full((count, 10), np.nan, np.float32),
        embedding=np.eye(count, FACES, dtype=np.float32),
        quality=np.zeros(count, np.float32),
        percentile=np.full(count, 50, np.float32),
        reasons=np.array([""] * count),
    )


def sha256(image):
    return f"{image:064x}"


def decision(
    action,
    faces,
    joined=(),
    left=(),
    name="",
    to=1,
):
    changed, kept, rest = (tuple(FaceKey(sha256(row), None) for row in rows) for rows in (faces, joined, left))
    return PeopleDecision(action, changed, (1,) * len(changed), to, kept, rest, name)


def slowly(decisions):
    """Pairs that are together and apart, each decided by the last decision that says anything of it.

    A pair is together if a chain of pairs is; so what is united takes along all that either side was together with.
    """
    together, apart = set[frozenset[int]](), set[frozenset[int]]()

    def whole(rows):
        grown = rows | {other for pair in together if pair & rows for other in pair}
        return grown if grown == rows else whole(grown)

    for each in decisions:
        faces, joined, left = ({int(key.image, 16) for key in keys} for keys in (each.faces, each.joined, each.left))
        if each.action is Action.MOVE:
            together = {pair for pair in together if not pair & faces}
            apart = {pair for pair in apart if not pair & faces}
        united = whole(faces | joined)
        pairs = {frozenset(pair) for pair in combinations(sorted(united), 2)}
        together |= pairs
        apart -= pairs
        apart |= {frozenset(pair) for pair in product(faces, left - united)}
    return together, apart


def test_the_last_decision_that_says_anything_of_two_faces_holds():
    random = np.random.default_rng(3)
    seen = set()
    for _ in range(400):
        decisions = []
        for _ in range(int(random.integers(1, 7))):
            cuts = np.sort(random.choice(np.arange(1, FACES), 3, replace=False))
            order = random.permutation(FACES)
            sets = [rows.tolist() for rows in np.split(order, cuts)][:3]
            kind = int(random.integers(3))
            seen.add(kind)
            decisions.append(
                decision(Action.MERGE, *sets[:2])
                if kind == 0
                else decision(Action.MOVE, sets[0], sets[1] if kind == 1 else [], sets[2])
            )
        constraints = constraints_of(decisions, table())
        together = {frozenset(pair) for rows in constraints.together for pair in combinations(rows.tolist(), 2)}
        apart = {frozenset(pair) for one, other in constraints.apart for pair in product(one.tolist(), other.tolist())}
        assert (together, apart) == slowly(decisions)
        assert not together & apart
    assert len(seen) == 3


def test_names_follow_the_people_that_faces_are_of():
    decisions = [
        decision(Action.NAME, [], [0, 1], name="Anna"),
        decision(Action.NAME, [], [2, 3], name="Ben"),
        decision(Action.MERGE, [4], [6, 7]),
        decision(Action.MOVE, [1], [3], [0]),
    ]
    constraints = constraints_of(decisions, table())
    people = {tuple(rows.tolist()): name for rows, name in constraints.known}
    assert people == {(0,): "Anna", (1, 2, 3): "Ben", (4, 6, 7): ""}
    pairs = {frozenset(pair) for one, other in constraints.apart for pair in product(one.tolist(), other.tolist())}
    assert pairs == {frozenset((0, other)) for other in (1, 2, 3)}
    # Who gets a name that somebody has is that person, and of two who become one the first keeps the name.
    again = [*decisions, decision(Action.NAME, [], [6], name="Ben"), decision(Action.MERGE, [6], [0])]
    (whole,) = constraints_of(again, table()).known
    assert (whole[0].tolist(), whole[1]) == ([0, 1, 2, 3, 4, 6, 7], "Anna")


def test_faces_that_were_moved_to_nobody_are_in_no_constraint_until_they_are_moved_again():
    decisions = [decision(Action.MERGE, [1, 2], [0]), decision(Action.MOVE, [1], to=NOBODY)]
    constraints = constraints_of(decisions, table())
    assert [rows.tolist() for rows in constraints.together] == [[0, 2]]
    assert np.flatnonzero(constraints.removed).tolist() == [1]
    again = constraints_of([*decisions, decision(Action.MOVE, [1], [2])], table())
    assert [rows.tolist() for rows in again.together] == [[0, 1, 2]]
    assert not again.removed.any()


def test_an_undo_takes_back_the_last_decision_that_stands():
    one, two, three = (decision(Action.MERGE, [other], [0]) for other in (1, 2, 3))
    undo = PeopleDecision(Action.UNDO)
    assert standing([undo, one, two, undo, three, undo, undo]) == []
    assert standing([one, two, undo, three]) == [one, three]


def test_faces_are_found_by_their_boxes_whatever_the_detector():
    found = table(boxes=[[0, 0, 100, 100], [60, 0, 160, 100], [300, 300, 310, 312]])
    keys = [
        FaceKey(sha256(0), (10, 10, 100, 110)),
        FaceKey(sha256(0), (62, -3, 158, 99)),
        FaceKey(sha256(0), (34, 0, 128, 100)),
        FaceKey(sha256(0), (500, 500, 600, 600)),
        FaceKey(sha256(1), (0, 0, 100, 100)),
        FaceKey(sha256(0), None),
    ]
    assert found.rows_of(keys).tolist() == [0, 1, 1, -1, -1, -1]
    assert found.rows_of(found.key(row) for row in range(3)).tolist() == [0, 1, 2]
    crop = table(1)
    assert crop.rows_of([FaceKey(sha256(0), (1, 2, 3, 4)), FaceKey(sha256(0), None)]).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("group", "earlier", "numbers"),
    [
        ([0, 0, 1, 1, -1], [5, 5, 2, 2, 2], {0: 5, 1: 2}),
        # Split: the larger part keeps the number, the other gets a new one.
        ([0, 1, 1, 1, 2], [3, 3, 3, 3, -1], {0: 10, 1: 3, 2: 11}),
        # United: the number of the larger part.
        ([4, 4, 4, 4, 4], [1, 1, 2, 2, 2], {4: 2}),
        # Numbers of people who are gone are not used again.
        ([0, 0, 1, 1, 1], [-1, -1, -1, -1, -1], {1: 10, 0: 11}),
    ],
)
def test_groups_keep_the_numbers_of_those_that_they_share_most_faces_with(group, earlier, numbers):
    assert keep_numbers(np.array(group), np.array(earlier), 9) == numbers


def test_groups_that_obey_the_decisions_are_left_alone():
    decisions = [decision(Action.MERGE, [1], [0]), decision(Action.MOVE, [2], left=[3, 4])]
    constraints = constraints_of(decisions, table())
    usable = np.ones(FACES, dtype=bool)
    group = np.array([1, 1, 2, 3, 3, 3, 1, -1, -1])
    settled, highest = settle(group, usable, constraints, 3)
    assert (settled.tolist(), highest) == (group.tolist(), 3)
    broken = np.array([1, 4, 3, 3, 3, 3, 1, -1, -1])
    settled, highest = settle(broken, usable, constraints, 4)
    assert settled[0] == settled[1]
    assert (settled[2], highest) == (5, 5)
    # Poor faces that people made a person of stay one, whomever they were attached to.
    usable[[0, 1]] = False
    settled, _ = settle(np.array([3, 3, 2, 3, 3, 3, 1, -1, -1]), usable, constraints, 3)
    assert settled.tolist() == [4, 4, 2, 3, 3, 3, 1, -1, -1]
