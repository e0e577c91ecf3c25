"""How well groups of faces agree with people: pairwise and BCubed precision and recall.

BCubed averages over faces, the precision and recall of each face's own group, and so does not let large groups dominate
as pairs do (Amigó, Gonzalo, Artiles, Verdejo: "A comparison of extrinsic clustering evaluation metrics based on formal
constraints", Information Retrieval 2009).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class GroupAgreement:
    """Agreement of groups with people; all rates from 0 to 1.

    Attributes:
        precision: BCubed: how many of the faces in a face's group are of its person, on average.
        recall: BCubed: how many of the faces of a face's person are in its group, on average.
        pair_precision: share of the pairs of faces in one group that are of one person; 1 without such pairs.
        pair_recall: share of the pairs of faces of one person that are in one group; 1 without such pairs.
        groups: number of groups; each unclear face is one.
        unclear: share of the faces that are in no group.
    """

    precision: float
    recall: float
    pair_precision: float
    pair_recall: float
    groups: int
    people: int
    unclear: float

    @property
    def f(self) -> float:
        """BCubed F: the harmonic mean of precision and recall."""
        return _harmonic(self.precision, self.recall)

    @property
    def pair_f(self) -> float:
        """The harmonic mean of pairwise precision and recall."""
        return _harmonic(self.pair_precision, self.pair_recall)


def group_agreement(person: ArrayLike, group: ArrayLike, weight: ArrayLike | None = None) -> GroupAgreement:
    """Compare groups with people.

    Args:
        person: ``(N,)`` the person of each face.
        group: ``(N,)`` its group; faces below 0 are unclear, each in a group of its own.
        weight: ``(N,)`` how often each face counts in the BCubed averages, such as the number of times that its person
            was drawn in a bootstrap; None for once. Groups stay as they are.
    """
    people, groups = np.asarray(person), np.asarray(group, dtype=np.int64)
    if not len(people) or len(people) != len(groups):
        raise ValueError(f"{len(people)} faces with people, and {len(groups)} with groups")
    alone = groups < 0
    groups = np.where(alone, groups.max(initial=0) + 1 + np.arange(len(groups)), groups)
    _, people = np.unique(people, return_inverse=True)
    _, groups = np.unique(groups, return_inverse=True)
    _, cell, in_cell = np.unique(
        people.astype(np.int64) * len(groups) + groups, return_inverse=True, return_counts=True
    )
    in_group, of_person = np.bincount(groups), np.bincount(people)
    both = in_cell[cell]
    share = np.ones(len(people)) if weight is None else np.asarray(weight, dtype=np.float64)
    right = _pairs(in_cell)
    return GroupAgreement(
        precision=float(np.average(both / in_group[groups], weights=share)),
        recall=float(np.average(both / of_person[people], weights=share)),
        pair_precision=_share(right, _pairs(in_group)),
        pair_recall=_share(right, _pairs(of_person)),
        groups=len(in_group),
        people=len(of_person),
        unclear=float(np.average(alone, weights=share)),
    )


def _pairs(sizes: NDArray[np.integer]) -> float:
    return float(np.sum(sizes * (sizes - 1.0)) / 2)


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 1.0


def _harmonic(first: float, second: float) -> float:
    return 2 * first * second / (first + second) if first + second else 0.0
