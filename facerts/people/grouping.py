"""Faces to groups, each of one person: average linkage of good faces first, poor ones attached afterwards.

Each round merges all pairs of groups that are each other's most likely partner. The similarity of two groups is the
mean cosine of their faces, weighted by quality, which needs only their sums. Average linkage is reducible: a merged
group is no more alike to a third than the more alike of its parts was. So rounds of many merges give the groups that
merging pair by pair would (Murtagh, "A survey of recent advances in hierarchical clustering algorithms", The Computer
Journal 1983), except where the mean qualities of groups change an order.

Faces that are known to be of one person need not be alike, a child and the adult that it became. So they count as one
person, but make one group only as far as they are alike; new faces join that of their likeness.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.curation.pairwise import lowest_of_each, rows_by_label
from facerts.errors import DataError, ModelError
from facerts.metrics.pooling import face_weights
from facerts.metrics.same_person import SamePerson, quality_level
from facerts.onnx.contract import Description
from facerts.people.neighbors import nearest, similar_pairs

Rows = NDArray[np.int64]
Floats = NDArray[np.float64]

UNCLEAR = -1
# Before two faces are compared, the odds that they are of one person are those of a person with about this many other
# images among all of them. Chosen on training people, see docs/results/people.md.
OTHER_IMAGES = 5
# With fewer images than this a wrong merge would be likelier than the prior odds say, if all are of different people.
FEW_IMAGES = 1000
# Groups that are of one person with at least this probability are worth a look, if it is too low to merge them.
SUGGESTED_PROBABILITY = 0.1
SUGGESTED = float(np.log(SUGGESTED_PROBABILITY / (1 - SUGGESTED_PROBABILITY)))
# A face in a photo is of another person than the others there, unless it is this likely: a collage, or a mirror.
SAME_PHOTO_PROBABILITY = 0.999
# Groups that an unclear face is compared with.
CANDIDATES = 16
BLOCK = 20_000


@dataclass(frozen=True)
class FaceGroups:
    """Groups of faces.

    Attributes:
        group: ``(N,)`` the number of each face's group; −1 if it is unclear.
        probability: ``(N,)`` how likely each face is of the same person as the others of its group; 1 for an only
            face; of an unclear one, for the group that it is most like.
        suggested: ``(N,)`` the group that an unclear face is most like; its own group for all others; −1 for none.
        alike: pairs of groups that may be of one person, with the probability of it, likeliest first.
    """

    group: Rows
    probability: NDArray[np.float32]
    suggested: Rows
    alike: tuple[tuple[int, int, float], ...] = ()


def same_person_of(description: Description) -> SamePerson:
    """The likelihood ratio that a model was calibrated with."""
    matching = None if description.calibration is None else description.calibration.matching
    if matching is None or matching.same_person is None:
        raise ModelError(
            "the model does not say how likely two faces are of the same person; calibrate it on your own faces, a "
            "folder for each person: facerts calibrate --model MODEL --data people/"
        )
    return SamePerson(matching.same_person)


def group_faces(
    embedding: NDArray[np.float32],
    percentile: NDArray[np.floating],
    usable: NDArray[np.bool_],
    same_person: SamePerson,
    *,
    together: Sequence[Rows] = (),
    apart: Sequence[tuple[Rows, Rows]] = (),
    group: Rows | None = None,
    photo: Rows | None = None,
    exact: bool | None = None,
) -> FaceGroups:
    """Group faces by person.

    Args:
        embedding: ``(N, d)`` of unit length.
        percentile: ``(N,)`` of quality, 0 to 100; NaN where it is not known.
        usable: ``(N,)`` whether a face may join groups with others. The others are attached to a group afterwards, or
            stay unclear; what is not a face must be left out.
        same_person: of the model of the embeddings.
        together: sets of faces that are of one person.
        apart: pairs of sets of faces; no face of the first is of the same person as one of the second.
        group: ``(N,)`` groups that exist already, which keep their faces and their numbers; −1 for new faces. None for
            no groups.
        photo: ``(N,)`` the number of the photo that each face is in; faces of one photo are of different people, unless
            they are in ``together`` or very much alike. None where each is in a photo of its own.
        exact: see ``facerts.people.neighbors``.
    """
    known = np.full(len(embedding), UNCLEAR) if group is None else group
    clusters = _Clusters(embedding, percentile, usable, same_person, known, together, apart)
    if photo is not None:
        clusters.keep_apart_in_photos(photo)
    rows = np.flatnonzero(usable)
    levels = [clusters.level[rows].min(initial=0.0), 0.0]
    minimum = same_person.minimum_cosine(clusters.needed + SUGGESTED, levels)
    first, second = similar_pairs(embedding[rows], minimum, exact=exact)
    alike = clusters.merge(rows[first], rows[second])
    placed = usable | clusters.decided
    attached, probability = clusters.attach(np.flatnonzero(~placed), rows)
    number_of = _numbers(clusters.person[clusters.cluster], placed, known)
    numbers = np.where(placed, number_of[clusters.person[clusters.cluster]], UNCLEAR)
    suggested = numbers.copy()
    suggested[~placed] = np.where(attached < 0, UNCLEAR, number_of[attached])
    numbers[~placed] = np.where(probability > 0.5, suggested[~placed], UNCLEAR)
    likely = clusters.membership(placed)
    likely[~placed] = probability
    pairs = tuple((int(number_of[one]), int(number_of[other]), chance) for one, other, chance in alike)
    return FaceGroups(numbers, likely.astype(np.float32), suggested, pairs)


class _Clusters:
    """Clusters of similar faces, each of a person, with the weighted sums of their embeddings.

    Clusters and people are named by the row of one of their faces.
    """

    def __init__(
        self,
        embedding: NDArray[np.float32],
        percentile: NDArray[np.floating],
        usable: NDArray[np.bool_],
        same_person: SamePerson,
        known: Rows,
        together: Sequence[Rows],
        apart: Sequence[tuple[Rows, Rows]],
    ) -> None:
        total = len(embedding)
        self.embedding, self.same_person = embedding, same_person
        self.needed = float(np.log(max(total, FEW_IMAGES) / OTHER_IMAGES))
        self.face_level = quality_level(percentile)
        self.face_weight = np.where(usable, face_weights(percentile), 0.0)
        self.cluster = np.arange(total)
        self.person, self.decided = _united(total, known, together)
        self.fixed = np.zeros(total, dtype=bool)
        self.fixed[self.person[known >= 0]] = True
        self.apart = self._keys_apart(apart)
        self.sum = embedding * self.face_weight[:, None].astype(np.float32)
        self.weight = self.face_weight.copy()
        self.level = self.face_level.copy()

    def keep_apart_in_photos(self, photo: Rows) -> None:
        """Keep people apart who are in one photo, but for faces that are surely of one person."""
        pairs = [rows[np.stack(np.triu_indices(len(rows), 1))] for rows in rows_by_label(photo) if len(rows) > 1]
        if not pairs:
            return
        first, second = np.concatenate(pairs, axis=1)
        cosine = np.einsum("ij,ij->i", self.embedding[first], self.embedding[second])
        ratio = self.same_person.log_likelihood_ratio(cosine, self.face_level[first], self.face_level[second])
        sure = np.log(SAME_PHOTO_PROBABILITY / (1 - SAME_PHOTO_PROBABILITY))
        one, other = self.person[first], self.person[second]
        different = (ratio - self.needed < sure) & (one != other)
        self.apart = np.union1d(self.apart, self._keys(one[different], other[different]))

    def merge(self, first: Rows, second: Rows) -> list[tuple[int, int, float]]:
        """Merge clusters along pairs of similar faces; returns pairs of people who are nearly alike enough."""
        first, second = self._edges(first, second)
        odds = self.log_odds(first, second)
        while True:
            one, other = self._mutual(first, second, odds)
            if not len(one):
                break
            changed = self._join(one, other)
            stale = changed[first] | changed[second]
            new = self._edges(self.cluster[first[stale]], self.cluster[second[stale]])
            kept = self._allowed(first[~stale], second[~stale])
            odds = np.concatenate([odds[~stale][kept], self.log_odds(*new)])
            first, second = (
                np.concatenate([old[~stale][kept], fresh]) for old, fresh in zip((first, second), new, strict=True)
            )
            likely = odds >= SUGGESTED
            first, second, odds = first[likely], second[likely], odds[likely]
        people = np.stack([self.person[first], self.person[second]])
        alike: dict[tuple[int, int], float] = {}
        for at in np.argsort(-odds, kind="stable").tolist():
            one, other = sorted(people[:, at].tolist())
            if one != other and odds[at] >= SUGGESTED:
                alike.setdefault((one, other), float(1 / (1 + np.exp(-odds[at]))))
        return [(one, other, chance) for (one, other), chance in alike.items()]

    def _join(self, one: Rows, other: Rows) -> NDArray[np.bool_]:
        """Merge pairs of clusters, and the people that they are of; returns which clusters changed."""
        weight = self.weight[one] + self.weight[other]
        level = self.level[one] * self.weight[one] + self.level[other] * self.weight[other]
        self.level[one] = level / weight
        self.sum[one] += self.sum[other]
        self.weight[one] = weight
        target = np.arange(len(self.cluster))
        target[other] = one
        self.cluster = target[self.cluster]
        person, gone = self.person[one], self.person[other]
        person, gone = person[person != gone], gone[person != gone]
        target = np.arange(len(self.cluster))
        target[gone] = person
        self.fixed[person] |= self.fixed[gone]
        self.person = target[self.person]
        self.apart = _renamed(self.apart, target)
        changed = np.zeros(len(self.cluster), dtype=bool)
        changed[one] = changed[other] = True
        return changed

    def log_odds(self, first: Rows, second: Rows) -> Floats:
        """Logarithm of the odds that two clusters are of one person."""
        odds = np.empty(len(first))
        for at in range(0, len(first), BLOCK):
            one, other = first[at : at + BLOCK], second[at : at + BLOCK]
            cosine = np.einsum("ij,ij->i", self.sum[one], self.sum[other])
            cosine = cosine / (self.weight[one] * self.weight[other])
            ratio = self.same_person.log_likelihood_ratio(cosine, self.level[one], self.level[other])
            odds[at : at + BLOCK] = ratio - self.needed
        return odds

    def attach(self, faces: Rows, usable: Rows) -> tuple[Rows, Floats]:
        """The person that each face is most like, −1 for none, and the probability that it is.

        Somebody of whom there is no other image competes with all people.
        """
        total = len(self.cluster)
        best, probability = np.full(len(faces), UNCLEAR), np.zeros(len(faces))
        for at in range(0, len(faces) if len(usable) else 0, BLOCK):
            block = faces[at : at + BLOCK]
            found = nearest(self.embedding[usable], self.embedding[block], CANDIDATES, exact=True)
            face = np.repeat(np.arange(len(block)), found.templates.shape[1])
            keys = np.unique(face * total + self.cluster[usable[found.templates]].ravel())
            face, cluster = keys // total, keys % total
            allowed = ~np.isin(self._keys(self.person[block[face]], self.person[cluster]), self.apart)
            face, cluster = face[allowed], cluster[allowed]
            cosine = np.einsum("ij,ij->i", self.embedding[block[face]], self.sum[cluster])
            ratio = self.same_person.log_likelihood_ratio(
                cosine / self.weight[cluster], self.face_level[block[face]], self.level[cluster]
            )
            odds = np.exp(np.minimum(ratio - self.needed, 50.0))
            order = np.lexsort((-odds, face))
            face, person, odds = face[order], self.person[cluster[order]], odds[order]
            # Of the clusters of one person, only the likeliest counts.
            _, first = np.unique(face * total + person, return_index=True)
            everybody = 1 + np.bincount(face[first], odds[first], minlength=len(block))
            _, top = np.unique(face, return_index=True)
            best[at + face[top]] = person[top]
            probability[at + face[top]] = odds[top] / everybody[face[top]]
        return best, probability

    def membership(self, placed: NDArray[np.bool_]) -> Floats:
        """Probability that each placed face is of the same person as the other faces of its cluster."""
        probability = np.ones(len(self.cluster))
        rows = np.flatnonzero(placed)
        rest = self.weight[self.cluster[rows]] - self.face_weight[rows]
        rows = rows[rest > 1e-9]
        own, weight = self.cluster[rows], self.face_weight[rows]
        dot = np.einsum("ij,ij->i", self.embedding[rows], self.sum[own]) - weight
        cosine = dot / (self.weight[own] - weight)
        ratio = self.same_person.log_likelihood_ratio(cosine, self.face_level[rows], self.level[own])
        probability[rows] = 1 / (1 + np.exp(self.needed - ratio))
        return probability

    def _mutual(self, first: Rows, second: Rows, odds: Floats) -> tuple[Rows, Rows]:
        """Pairs of clusters that are each other's likeliest partner, and likely enough; one pair of each person."""
        likely = odds >= 0
        first, second, odds = first[likely], second[likely], odds[likely]
        mutual = self._leading(first, second, odds)
        first, second, odds = first[mutual], second[mutual], odds[mutual]
        # Two merges at once could bring two people together who are apart, by a third whom both are like.
        one, other = self.person[first], self.person[second]
        single = one == other
        single[~single] = self._leading(one[~single], other[~single], odds[~single])
        return first[single], second[single]

    def _leading(self, first: Rows, second: Rows, odds: Floats) -> NDArray[np.bool_]:
        """Which pairs are the likeliest of both of their sides."""
        here, pair = np.concatenate([first, second]), np.tile(np.arange(len(first)), 2)
        order = np.lexsort((pair, -odds[pair], here))
        here, pair = here[order], pair[order]
        leading = np.ones(len(here), dtype=bool)
        leading[1:] = here[1:] != here[:-1]
        best = np.full(len(self.cluster), UNCLEAR)
        best[here[leading]] = pair[leading]
        each = np.arange(len(first))
        return np.asarray((best[first] == each) & (best[second] == each))

    def _edges(self, first: Rows, second: Rows) -> tuple[Rows, Rows]:
        """Pairs of different clusters that may be merged, each once."""
        total = len(self.cluster)
        keys = np.unique(self._keys(first, second)[first != second])
        one, other = keys // total, keys % total
        allowed = self._allowed(one, other)
        return one[allowed], other[allowed]

    def _allowed(self, first: Rows, second: Rows) -> NDArray[np.bool_]:
        """Whether nothing forbids that two clusters are of one person."""
        one, other = self.person[first], self.person[second]
        fixed = self.fixed[one] & self.fixed[other] & (one != other)
        return np.asarray(~fixed & ~np.isin(self._keys(one, other), self.apart))

    def _keys(self, first: Rows, second: Rows) -> Rows:
        return np.asarray(np.minimum(first, second) * len(self.cluster) + np.maximum(first, second))

    def _keys_apart(self, apart: Sequence[tuple[Rows, Rows]]) -> Rows:
        keys = [np.empty(0, dtype=np.int64)]
        for one, other in apart:
            left, right = np.unique(self.person[one]), np.unique(self.person[other])
            if len(both := np.intersect1d(left, right)):
                raise DataError(f"face {both[0]} is to be together with a face, and apart from it")
            keys.append(self._keys(*(side.ravel() for side in np.meshgrid(left, right))))
        return np.unique(np.concatenate(keys))


def _united(total: int, known: Rows, together: Sequence[Rows]) -> tuple[Rows, NDArray[np.bool_]]:
    """The person of each face, as existing groups and faces that are together say, and whether these say anything."""
    decided = known >= 0
    grouped = np.flatnonzero(decided)
    sets = [*(grouped[each] for each in rows_by_label(known[grouped])), *together]
    for rows in sets:
        decided[rows] = True
    return lowest_of_each(total, sets), decided


def _renamed(keys: Rows, target: Rows) -> Rows:
    """Keys of pairs of clusters after these got other names."""
    total = len(target)
    one, other = target[keys // total], target[keys % total]
    return np.unique(np.minimum(one, other) * total + np.maximum(one, other))


def _numbers(person: Rows, placed: NDArray[np.bool_], known: Rows) -> Rows:
    """The number of each person: of groups that exist already the lowest; the next ones for others, larger first."""
    nobody = np.iinfo(np.int64).max
    numbers = np.full(len(person), nobody)
    np.minimum.at(numbers, person[known >= 0], known[known >= 0])
    size = np.bincount(person[placed], minlength=len(person))
    new = np.flatnonzero((size > 0) & (numbers == nobody))
    new = new[np.lexsort((new, -size[new]))]
    numbers[new] = int(known.max(initial=UNCLEAR)) + 1 + np.arange(len(new))
    return np.where(numbers == nobody, UNCLEAR, numbers)
