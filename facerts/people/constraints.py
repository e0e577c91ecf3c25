"""Decisions to constraints on the faces of a run: which are of one person, which are not, and which are out.

Decisions are applied in the order in which they were made, and a later one overrides what contradicts it in earlier
ones, but nothing else of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.people.decisions import NOBODY, Action, PeopleDecision
from facerts.people.found_faces import FaceKey, FoundFaces, Rows


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
    """The constraints that decisions put on the faces of a table.

    Args:
        decisions: those that stand, in order. Faces that are not in the table are left out.
        found: the table.
    """
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
        return Constraints(
            tuple(people), tuple(pair for pair in apart if len(pair[0]) and len(pair[1])), removed
        )

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
