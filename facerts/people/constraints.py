"""Decisions to constraints on the faces of a run, and to groups that obey them and keep their numbers.

Constraints say which faces are of one person, which are not, and which are out. Decisions are applied in the order in
which they were made, and a later one overrides what contradicts it in earlier ones, but nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from facerts.people.decisions import NOBODY, Action, PeopleDecision, standing
from facerts.people.found_faces import FaceKey, FoundFaces, Rows
from facerts.people.groups_file import PeopleGroups


@dataclass(frozen=True)
class Constraints:
    """What was decided of the faces of a table.

    Attributes:
        known: people that were decided about: the rows of their faces, and their names; empty for none.
        apart: pairs of sets of rows; no face of the first is of the same person as one of the second.
        removed: ``(F,)`` whether a face is in no group.
    """

    known: tuple[tuple[Rows, str], ...]
    apart: tuple[tuple[Rows, Rows], ...]
    removed: NDArray[np.bool_]

    @property
    def together(self) -> list[Rows]:
        """Sets of rows, two or more, that are each of one person."""
        return [rows for rows, _ in self.known if len(rows) > 1]


def constraints_of(decisions: Iterable[PeopleDecision], found: FoundFaces) -> Constraints:
    """What decisions that stand, in order, put on the faces of a table; other faces are left out."""
    state = _State()
    for each in decisions:
        state.apply(each, *(_present(found, keys) for keys in (each.faces, each.joined, each.left)))
    return state.constraints(len(found))


def _present(found: FoundFaces, keys: Iterable[FaceKey]) -> list[int]:
    rows = found.rows_of(keys)
    return list(dict.fromkeys(rows[rows >= 0].tolist()))


@dataclass(eq=False)
class _Known:
    rows: set[int]
    name: str


@dataclass
class _State:
    """Disjoint sets of rows, each of one person, and pairs of sets that are apart."""

    known: dict[_Known, None] = field(default_factory=dict)
    person: dict[int, _Known] = field(default_factory=dict)
    apart: list[tuple[set[int], set[int]]] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)

    def apply(self, decision: PeopleDecision, faces: list[int], joined: list[int], left: list[int]) -> None:
        if not faces and (decision.action is Action.MOVE or not joined):
            return
        if decision.action is Action.MOVE:
            # They leave whatever they were decided to belong to.
            self._leave(set(faces))
            if decision.to == NOBODY:
                self.removed.update(faces)
                return
            self.removed.difference_update(faces)
        same_name = [known for known in self.known if known.name and known.name == decision.name]
        # The person whom faces join comes first, as it keeps its name.
        person = self._unite([*joined, *faces, *(row for known in same_name for row in known.rows)])
        person.name = decision.name or person.name
        if rest := set(left) - person.rows:
            self.apart.append((set(faces), rest))

    def constraints(self, faces: int) -> Constraints:
        people = [(self._rows(known.rows), known.name) for known in self.known]
        people = [(rows, name) for rows, name in people if len(rows)]
        # People of different names are different people.
        named = [rows for rows, name in people if name]
        apart = [(self._rows(one), self._rows(other)) for one, other in self.apart]
        apart += [(rows, np.concatenate(named[at:])) for at, rows in enumerate(named[:-1], start=1)]
        removed = np.zeros(faces, dtype=bool)
        removed[list(self.removed)] = True
        return Constraints(tuple(people), tuple(pair for pair in apart if len(pair[0]) and len(pair[1])), removed)

    def _rows(self, rows: set[int]) -> Rows:
        return np.array(sorted(rows - self.removed), dtype=np.int64)

    def _unite(self, rows: list[int]) -> _Known:
        """Make one person of rows and of whatever they were decided to belong to; the first name is kept."""
        merged = dict.fromkeys(self.person[row] for row in rows if row in self.person)
        whole = set(rows).union(*(known.rows for known in merged))
        united = _Known(whole, next((known.name for known in merged if known.name), ""))
        for known in merged:
            del self.known[known]
        self.known[united] = None
        self.person.update(dict.fromkeys(whole, united))
        # Of what was apart, nothing may stay apart inside of the united set.
        apart = []
        for one, other in self.apart:
            if one & whole and other & whole:
                apart += [(one - whole, other), (one & whole, other - whole)]
            else:
                apart.append((one, other))
        self.apart = [(one, other) for one, other in apart if one and other]
        return united

    def _leave(self, rows: set[int]) -> None:
        """Take rows out of every set."""
        for row in rows & set(self.person):
            self.person.pop(row).rows.discard(row)
        self.apart = [(one - rows, other - rows) for one, other in self.apart if one - rows and other - rows]


def carry_out(
    groups: PeopleGroups, found: FoundFaces, decisions: Sequence[PeopleDecision]
) -> tuple[PeopleGroups, Constraints]:
    """Groups after all decisions, of which those that were made after they were written are carried out now.

    So a decision holds from the moment when it is stored, whatever happens to the process that stores it. There are all
    decisions, in order, those that take back others included.
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
    usable = found.usable(groups.min_quality)
    group, highest = settle(groups.group, usable, constraints, groups.highest)
    return replace(groups, group=group, highest=highest, decisions=len(decisions)), constraints


def keep_numbers(group: Rows, earlier: Rows, highest: int) -> dict[int, int]:
    """New numbers for groups: those of the earlier groups with which they share most faces, or unused ones.

    Groups ``(F,)`` are in any numbers, −1 for none; ``highest`` is the highest number that was ever used. Of two groups
    that share faces with one earlier group, that with more of them gets its number; unused numbers go to large groups
    first.
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


def settle(group: Rows, usable: NDArray[np.bool_], constraints: Constraints, highest: int) -> tuple[Rows, int]:
    """Put faces where decisions say that they belong.

    Poor faces that people put into a group stay in it, although they join no groups by themselves. Groups that obey the
    decisions already are not changed. ``group`` ``(F,)`` are their numbers, −1 for none; ``usable`` ``(F,)`` are faces
    that may join groups with others. The highest number that was ever used is returned, too.
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
