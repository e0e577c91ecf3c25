"""Faces to groups, each of one person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.people.same_person import SamePerson

Rows = NDArray[np.int64]
UNCLEAR = -1


@dataclass(frozen=True)
class Grouping:
    """Groups of faces.

    Attributes:
        group: ``(N,)`` the number of each face's group; −1 if it is unclear.
        probability: ``(N,)`` how likely each face is of the same person as the others of its group; 1 for an only
            face; of an unclear one, for the most likely group.
        suggested: ``(N,)`` the group that an unclear face is most like; its own group for all others; −1 for none.
    """

    group: Rows
    probability: NDArray[np.float32]
    suggested: Rows


def group_faces(
    embedding: NDArray[np.float32],
    percentile: NDArray[np.float32],
    usable: NDArray[np.bool_],
    same_person: SamePerson,
    *,
    together: Sequence[Rows] = (),
    apart: Sequence[tuple[Rows, Rows]] = (),
    group: Rows | None = None,
) -> Grouping:
    """Group faces by person.

    Args:
        embedding: ``(N, d)`` of unit length.
        percentile: ``(N,)`` of quality, 0 to 100; NaN where it is not known.
        usable: ``(N,)`` whether a face may join groups with others. The others are attached to a group afterwards, or
            stay unclear.
        same_person: of the model of the embeddings.
        together: sets of faces that are of one person.
        apart: pairs of sets of faces; no face of the first is of the same person as one of the second.
        group: ``(N,)`` groups that exist already, which keep their faces and their numbers; −1 for new faces. None for
            no groups.

    Raises:
        DataError: faces are both together and apart.
    """
    # Provisional: single linkage, best edges first.
    total = len(embedding)
    cosine = embedding @ embedding.T
    odds = same_person.log_odds(cosine, total)
    label = np.arange(total)
    known = np.full(total, -1) if group is None else group
    for rows in [*together, *(np.flatnonzero(known == number) for number in np.unique(known[known >= 0]))]:
        label[np.isin(label, label[rows])] = label[rows[0]]
    barred = np.zeros((total, total), dtype=bool)
    for first, second in [*apart]:
        barred[np.ix_(first, second)] = barred[np.ix_(second, first)] = True
    barred |= (known[:, None] >= 0) & (known[None] >= 0) & (known[:, None] != known[None])
    rows, columns = np.nonzero(np.triu(odds > 0, 1) & usable[:, None] & usable[None])
    order = np.argsort(-odds[rows, columns], kind="stable")
    for one, other in zip(rows[order].tolist(), columns[order].tolist(), strict=True):
        mine, theirs = label == label[one], label == label[other]
        if label[one] != label[other] and not barred[np.ix_(mine, theirs)].any():
            label[theirs] = label[one]
    numbers = np.full(total, -1)
    following = int(known.max(initial=-1)) + 1
    for value in np.unique(label[usable | (known >= 0)]):
        inside = label == value
        if (known[inside] >= 0).any():
            numbers[inside] = known[inside].max()
        else:
            numbers[inside], following = following, following + 1
    for row in np.flatnonzero(~usable & (known < 0)):
        numbers[row] = -1
    suggested = numbers.copy()
    probability = np.ones(total, dtype=np.float32)
    for row in np.flatnonzero(numbers < 0):
        best = int(np.argmax(np.where(numbers >= 0, odds[row], -np.inf)))
        suggested[row], probability[row] = numbers[best], 1 / (1 + np.exp(-odds[row, best]))
        if odds[row, best] > 0 and not barred[row, numbers == numbers[best]].any():
            numbers[row] = suggested[row]
    return Grouping(numbers, probability, suggested)
