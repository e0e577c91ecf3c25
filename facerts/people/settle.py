"""Groups that obey every decision, whatever put the faces into them, and that keep their numbers from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from facerts.people.constraints import Constraints, constraints_of
from facerts.people.decisions import NOBODY, Action, PeopleDecision, standing
from facerts.people.found_faces import FoundFaces, Rows
from facerts.people.groups_file import PeopleGroups
from facerts.people.people import usable_faces


def carry_out(
    groups: PeopleGroups, found: FoundFaces, decisions: Sequence[PeopleDecision]
) -> tuple[PeopleGroups, Constraints]:
    """Groups after all decisions, of which those that were made after they were written are carried out now.

    So a decision holds from the moment when it is stored, whatever happens to the process that stores it.

    Args:
        decisions: all, in order, those that take back others included.

    Returns:
        The groups, and the constraints of the decisions that stand.
    """
    for done in range(min(groups.decisions, len(decisions)), len(decisions)):
        groups = _moved(groups, found, standing(decisions[:done]), decisions[done])
        groups = _settled(groups, found, decisions[: done + 1])[0]
    # No number is used twice, even if the file of the groups was lost.
    used = [number for each in decisions for number in (each.to, *each.was)]
    return _settled(replace(groups, highest=max(groups.highest, *used, 0)), found, decisions)


def _moved(
    groups: PeopleGroups, found: FoundFaces, before: Sequence[PeopleDecision], decision: PeopleDecision
) -> PeopleGroups:
    """Groups after one more decision, before others are settled with it."""
    group, probability = groups.group.copy(), groups.probability.copy()
    undoes = decision.action is Action.UNDO
    taken = before[-1] if undoes and before else decision
    rows = found.rows_of(taken.faces)
    numbers = np.array(taken.was if undoes else [taken.to] * len(rows), dtype=np.int64)
    group[rows[rows >= 0]] = numbers[rows >= 0]
    if taken.to != NOBODY:
        # Somebody said so; what it was before that is not known, and the next run tells.
        probability[rows[rows >= 0]] = np.nan if undoes else 1
    highest = max(groups.highest, numbers.max(initial=0))
    return replace(groups, group=group, probability=probability, highest=int(highest))


def _settled(
    groups: PeopleGroups, found: FoundFaces, decisions: Sequence[PeopleDecision]
) -> tuple[PeopleGroups, Constraints]:
    """Groups in which every face is where decisions say."""
    constraints = constraints_of(standing(decisions), found)
    usable = usable_faces(found, groups.min_quality)
    group, highest = settle(groups.group, usable, constraints, groups.highest)
    return replace(groups, group=group, highest=highest, decisions=len(decisions)), constraints


def keep_numbers(group: Rows, earlier: Rows, highest: int) -> dict[int, int]:
    """New numbers for groups: those of the earlier groups with which they share most faces, or unused ones.

    Args:
        group: ``(F,)`` groups of a run in any numbers; −1 for none.
        earlier: ``(F,)`` groups of the run before, likewise.
        highest: the highest number that was ever used.

    Returns:
        The number of each group. Of two groups that share faces with one earlier group, that with more of them gets its
        number; unused numbers go to large groups first.
    """
    both = (group >= 0) & (earlier >= 0)
    pairs, shared = np.unique(np.stack([group[both], earlier[both]]), axis=1, return_counts=True)
    numbers: dict[int, int] = {}
    taken: set[int] = set()
    for at in np.argsort(-shared, kind="stable").tolist():
        new, old = pairs[:, at].tolist()
        if new not in numbers and old not in taken:
            numbers[new] = old
            taken.add(old)
    others, sizes = np.unique(group[group >= 0], return_counts=True)
    for new in others[np.argsort(-sizes, kind="stable")].tolist():
        if new not in numbers:
            highest += 1
            numbers[new] = highest
    return numbers


def settle(
    group: Rows, usable: NDArray[np.bool_], constraints: Constraints, highest: int
) -> tuple[Rows, int]:
    """Put faces where decisions say that they belong.

    Poor faces that people put into a group stay in it, although they join no groups by themselves. Groups that obey
    the decisions already are not changed.

    Args:
        group: ``(F,)`` number of each face's group; −1 for none.
        usable: ``(F,)`` whether each face may join groups with others.
        constraints: what was decided.
        highest: the highest number that was ever used.

    Returns:
        The groups, and the highest number that was used.
    """
    settled = group.copy()
    settled[constraints.removed] = -1
    for rows, _ in constraints.known:
        good = rows[usable[rows]]
        numbers = settled[good if len(good) else rows]
        numbers = numbers[numbers >= 0]
        # Poor faces alone are a person only because somebody said so, and in no group with others.
        alone = not len(good) and len(numbers) and not _only_in(settled, int(numbers[0]), rows, usable)
        if not len(numbers) or alone:
            highest += 1
            settled[rows] = highest
        else:
            settled[rows] = np.bincount(numbers).argmax()
    for one, other in constraints.apart:
        for number in np.intersect1d(settled[one], settled[other]).tolist():
            if number >= 0:
                highest += 1
                settled[one[settled[one] == number]] = highest
    return settled, highest


def _only_in(group: Rows, number: int, rows: Rows, usable: NDArray[np.bool_]) -> bool:
    """Whether a group has no good face besides some rows."""
    good = (group == number) & usable
    good[rows] = False
    return not good.any()
