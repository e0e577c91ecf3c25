"""Decisions to constraints on the faces of a run: which are of one person, which are not, and which are out.

Decisions are applied in the order in which they were made, and a later one overrides what contradicts it in earlier
ones, but nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.people.decisions import Action, PeopleDecision
from facerts.people.found_faces import FoundFaces, Rows


@dataclass(frozen=True)
class PersonKnown:
    """Faces that were decided to be of one person.

    Attributes:
        rows: of the faces, without those that were removed.
        name: of the person; empty for none.
        ignored: whether the person is hidden.
    """

    rows: Rows
    name: str
    ignored: bool


@dataclass(frozen=True)
class Constraints:
    """What was decided of the faces of a table.

    Attributes:
        known: people that were decided about.
        apart: pairs of sets of rows; no face of the first is of the same person as one of the second.
        removed: ``(F,)`` whether a face is in no group.
    """

    known: tuple[PersonKnown, ...]
    apart: tuple[tuple[Rows, Rows], ...]
    removed: NDArray[np.bool_]

    @property
    def together(self) -> list[Rows]:
        """Sets of rows, two or more, that are each of one person."""
        return [person.rows for person in self.known if len(person.rows) > 1]


def constraints_of(decisions: Iterable[PeopleDecision], found: FoundFaces) -> Constraints:
    """The constraints that decisions put on the faces of a table.

    Args:
        decisions: those that stand, in order. Faces that are not in the table are left out.
        found: the table.
    """
    state = _State(len(found))
    for decision in decisions:
        sets = [_present(found.rows_of(face.key for face in each)) for each in decision.faces]
        if any(sets):
            state.apply(decision, sets)
    return state.constraints()


def _present(rows: Rows) -> list[int]:
    return list(dict.fromkeys(rows[rows >= 0].tolist()))


@dataclass
class _Known:
    rows: set[int]
    name: str = ""
    ignored: bool = False


@dataclass
class _State:
    """Disjoint sets of rows, and pairs of sets that are apart."""

    faces: int
    known: dict[int, _Known] = field(default_factory=dict)
    person: dict[int, int] = field(default_factory=dict)
    apart: list[tuple[set[int], set[int]]] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    next: int = 0

    def apply(self, decision: PeopleDecision, sets: list[list[int]]) -> None:
        action, first = decision.action, sets[0]
        if action is Action.REMOVE:
            self.removed.update(first)
        elif action is Action.RESTORE:
            self.removed.difference_update(first)
        elif action is Action.MERGE:
            self._unite(first, *sets[1:])
        elif action is Action.NAME:
            namesakes = [
                row for known in self.known.values() if known.name == decision.name for row in known.rows
            ]
            self._unite(first, *sets[1:], namesakes).name = decision.name
        elif action in (Action.IGNORE, Action.SHOW):
            if first:
                self._unite(first).ignored = action is Action.IGNORE
        elif first:
            # The faces of a split or move leave whatever they were decided to belong to.
            self._leave(set(first))
            joined, others = ([], sets[1]) if action is Action.SPLIT else (sets[1], sets[2])
            # The person that faces are moved to comes first, as it keeps its name.
            whole = self._unite(joined, first).rows
            if rest := set(others) - whole:
                self.apart.append((set(first), rest))

    def constraints(self) -> Constraints:
        people = [
            PersonKnown(rows, known.name, known.ignored)
            for known in self.known.values()
            if len(rows := self._rows(known.rows))
        ]
        apart = [(self._rows(one), self._rows(other)) for one, other in self.apart]
        # People of different names are different people, and nobody who is named gets hidden by resemblance.
        named = [person for person in people if person.name]
        apart += [
            (person.rows, np.concatenate([other.rows for other in named[at + 1 :]]))
            for at, person in enumerate(named[:-1])
        ]
        hidden = [person.rows for person in people if person.ignored and not person.name]
        shown = [person.rows for person in named if not person.ignored]
        if hidden and shown:
            apart.append((np.concatenate(hidden), np.concatenate(shown)))
        removed = np.zeros(self.faces, dtype=bool)
        removed[list(self.removed)] = True
        return Constraints(
            tuple(people), tuple(pair for pair in apart if len(pair[0]) and len(pair[1])), removed
        )

    def _rows(self, rows: set[int]) -> Rows:
        return np.array(sorted(rows - self.removed), dtype=np.int64)

    def _unite(self, first: list[int], *others: list[int]) -> _Known:
        """Make one person of rows and of whatever they were decided to belong to; the first one's name is kept."""
        rows = [*first, *(row for each in others for row in each)]
        touched = list(dict.fromkeys(self.person[row] for row in rows if row in self.person))
        merged = [self.known.pop(number) for number in touched]
        whole = set(rows).union(*(known.rows for known in merged))
        name = next((known.name for known in merged if known.name), "")
        # A hidden person that is merged into a visible one is visible.
        ignored = any(known.ignored and known.rows & set(first) for known in merged)
        self.next += 1
        united = self.known[self.next] = _Known(whole, name, ignored)
        self.person.update(dict.fromkeys(whole, self.next))
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
            number = self.person.pop(row)
            self.known[number].rows.discard(row)
            if not self.known[number].rows:
                del self.known[number]
        self.apart = [(one - rows, other - rows) for one, other in self.apart if one - rows and other - rows]
