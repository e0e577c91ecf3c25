"""All pairs of a set of images: FMR 1e-3 is three of 3,000 listed impostor pairs, but many of all possible pairs.

Cosines are computed block by block and never all kept. Three things are kept: every genuine pair, the impostor pairs
with the highest scores (the *tail*), and a histogram of all impostor pairs. Thresholds in the tail are exact. Below it
a threshold is an edge of the histogram, where the number of impostors is exact too; the only loss is that the threshold
may be one bin (3.1e-5 of cosine) higher than the lowest possible one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.metrics.compared_pairs import ComparedPairs, count_pairs
from facerts.metrics.intervals import Estimate, Interval, resampled_rate_interval, subject_counts
from facerts.metrics.verification import ROC, OperatingPoint, trapezoid

BINS = 65536
# One extra bin at each end, so that rounding errors cannot leave a cosine without a bin.
WIDTH = 2.0 / (BINS - 2)
EDGES = (np.arange(BINS + 1) - 1) * WIDTH - 1.0
# Size of the tail: all pairs of a small set, and enough for FAR 0.01 with up to a hundred million pairs.
MIN_TAIL, TAIL_SHARE, MAX_TAIL = 200_000, 0.02, 2_000_000
ROWS, COLUMNS = 256, 2048  # a block of scores that fits into the CPU cache
SAMPLE = 250_000
# A replicate may need more of the tail than the original sample.
TAIL_MARGIN = 1.5
# After rejection the share of high scores differs from that of all pairs, so ``compare_all`` keeps more of them.
REJECT_SHARE, MAX_REJECT_TAIL = 0.05, 4_000_000


@dataclass(frozen=True, kw_only=True)
class AllPairs(ComparedPairs):
    """All pairs of N images of known people, compared by the cosine in float32.

    Attributes:
        counts: ``(65536,) int64`` number of impostor pairs in each bin of ``EDGES``.
    """

    people: NDArray[np.int64]
    counts: NDArray[np.int64]

    def threshold(self, fmr: float) -> float:
        """The lowest threshold at which at most ``fmr`` of the impostors are accepted; see the module on exactness."""
        allowed = int(np.floor(fmr * self.impostors + 1e-9))
        if allowed < len(self.tail) or allowed >= self.impostors:
            return super().threshold(fmr)
        at_or_above = np.cumsum(self.counts[::-1])[::-1]
        return float(EDGES[int(np.argmax(at_or_above <= allowed))])

    def accepted(self, threshold: float) -> int:
        """Number of impostor pairs at or above a threshold returned by ``threshold``."""
        if not len(self.tail) or threshold < self.tail[-1]:
            return int(self.counts[np.searchsorted(EDGES, threshold) :].sum())
        return super().accepted(threshold)

    def resampled(
        self, fmrs: Sequence[float], *, replicates: int, seed: int = 0
    ) -> Iterator[tuple[list[float], NDArray[np.float32]]]:
        """See ``ComparedPairs.resampled``; a threshold below the tail, where it hardly varies, stays fixed.

        The total weight of impostor pairs follows without enumerating them: half of (Σ n_s c_s)² − Σ (n_s c_s)², where
        person s has n_s images and was drawn c_s times.
        """
        images = np.bincount(self.people).astype(np.float64)
        # This much of the tail suffices for nearly every replicate; one that needs more gets all of it.
        inside = [fmr for fmr in fmrs if self.in_tail(fmr)]
        reach = min(len(self.tail), int(np.ceil(TAIL_MARGIN * max(inside, default=0.0) * self.impostors)))
        first, second = (self.people[self.tail_pairs[:, side]] for side in (0, 1))
        fixed = {fmr: float(np.nextafter(self.threshold(fmr), -np.inf)) for fmr in fmrs if fmr not in inside}

        def accepted(drawn: NDArray[np.float32], length: int) -> NDArray[np.float64]:
            return np.cumsum(drawn[first[:length]] * drawn[second[:length]], dtype=np.float64)

        for drawn in subject_counts(len(images), replicates, seed):
            shares = images * drawn
            total = (shares.sum() ** 2 - np.sum(shares**2)) / 2
            allowed = {fmr: fmr * total + 1e-9 for fmr in inside}
            running = accepted(drawn, reach)
            if allowed and running[-1] <= max(allowed.values()):
                running = accepted(drawn, len(self.tail))
            limits = dict(fixed)
            for fmr, weight in allowed.items():
                rank = int(np.searchsorted(running, weight, side="right"))
                limits[fmr] = float(self.tail[min(rank, len(running) - 1)])
            yield [limits[fmr] for fmr in fmrs], drawn

    def in_tail(self, fmr: float) -> bool:
        """Whether the threshold of nearly every replicate at an FMR lies in the tail."""
        return len(self.tail) == self.impostors or fmr * self.impostors * TAIL_MARGIN <= len(self.tail)

    def tar_at_far(self, far: float) -> OperatingPoint:
        """TAR at a FAR of at most ``far``."""
        threshold = self.threshold(far)
        achieved = 1.0 if np.isneginf(threshold) else self.accepted(threshold) / self.impostors
        return OperatingPoint(float(np.mean(self.genuine >= threshold)), achieved, threshold, self.impostors)

    def roc(self) -> ROC:
        """Operating points at the edges of the histogram and, in the tail, at as many scores as a plot can show."""
        steps = np.unique(np.geomspace(1, max(len(self.tail), 1), 2000).astype(int)) - 1
        in_tail = np.unique(self.tail[steps])[::-1].astype(np.float64) if len(self.tail) else np.empty(0)
        floor = in_tail[-1] if len(in_tail) else np.inf
        edges = EDGES[:-1][EDGES[:-1] < floor][::-1]
        thresholds = np.concatenate([[np.inf], in_tail, edges])
        at_or_above = np.cumsum(self.counts[::-1])
        impostors = np.concatenate(
            [
                [0],
                np.searchsorted(-self.tail, -in_tail.astype(np.float32), side="right"),
                at_or_above[BINS - len(edges) :] if len(edges) else [],
            ]
        )
        ordered = np.sort(self.genuine)
        genuine = len(ordered) - np.searchsorted(ordered, thresholds.astype(np.float32), side="left")
        return ROC(
            thresholds,
            impostors / self.impostors,
            genuine / len(self.genuine),
            len(self.genuine),
            self.impostors,
        )

    def auroc(self) -> tuple[float, float]:
        """Area under the ROC, and its maximum error from the unknown order within bins."""
        genuine = np.bincount(_bins(self.genuine), minlength=BINS)
        within = float(np.sum(genuine / len(self.genuine) * (self.counts / self.impostors)))
        tar = np.concatenate([[0.0], np.cumsum(genuine[::-1]) / len(self.genuine)])
        far = np.concatenate([[0.0], np.cumsum(self.counts[::-1]) / self.impostors])
        return trapezoid(far, tar), within / 2


def all_pairs(
    embedding: NDArray[np.floating],
    subjects: NDArray[np.integer],
    *,
    tail: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> AllPairs:
    """Compare every pair of images.

    Args:
        embedding: ``(N, d)`` of unit length.
        subjects: ``(N,)`` person of each image.
        tail: approximate number of highest-scoring impostor pairs to keep; by default 2% of them, at least 200,000 and
            at most 2,000,000.
        progress: called with the number of pairs compared since the last call.
    """
    vectors = np.asarray(embedding, dtype=np.float32)
    people, numbers = np.unique(np.asarray(subjects), return_inverse=True)
    check_unit(vectors, len(numbers))
    alike, impostors = count_pairs(numbers)
    if len(people) < 2 or not alike:
        raise ValueError("all pairs need at least two people, and two images of one of them")
    order = np.argsort(numbers, kind="stable")
    vectors, labels = vectors[order], numbers[order]
    ends = np.searchsorted(labels, labels, side="right")  # where each image's person ends
    kept = min(max(MIN_TAIL, TAIL_SHARE * impostors), MAX_TAIL) if tail is None else tail
    first_code = _tail_begins(vectors, labels, kept / impostors)

    counts = np.zeros(BINS, dtype=np.int64)
    genuine: list[tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]] = []
    tails: list[tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]] = []
    # The matrix product directly gives positions among the bins, which saves a pass over all scores.
    left = np.hstack([vectors / WIDTH, np.full((len(vectors), 1), 1.0 / WIDTH + 1.0, dtype=np.float32)])
    right = np.hstack([vectors, np.ones((len(vectors), 1), dtype=np.float32)])
    for top, bottom, start, stop in _blocks(len(vectors), ends):
        positions = left[top:bottom] @ right[start:stop].T
        rows, columns = np.arange(top, bottom)[:, None], np.arange(start, stop)[None]
        if start == top:  # only these blocks contain the diagonal and genuine pairs
            same = labels[top:bottom, None] == labels[None, start:stop]
            later = columns > rows
            y, x = np.nonzero(same & later)
            genuine.append((positions[y, x], y + top, x + start))
            y, x = np.nonzero(~same & later)
            chosen, codes = positions[y, x], positions[y, x].astype(np.uint16)
            high = np.flatnonzero(codes >= first_code)
            tails.append((chosen[high], y[high] + top, x[high] + start))
        else:
            codes = positions.astype(np.uint16).reshape(-1)
            high = np.flatnonzero(codes >= first_code)
            y, x = np.divmod(high, stop - start)
            tails.append((positions.reshape(-1)[high], y + top, x + start))
        counts += np.bincount(codes, minlength=BINS)
        if progress is not None:
            progress(len(codes))

    genuine_scores, genuine_pairs = _gather(genuine, order)
    tail_scores, tail_pairs = _gather(tails, order)
    falling = np.argsort(-tail_scores, kind="stable")
    return AllPairs(
        genuine=genuine_scores,
        genuine_pairs=genuine_pairs,
        tail=tail_scores[falling],
        tail_pairs=tail_pairs[falling],
        impostors=impostors,
        people=numbers.astype(np.int64),
        counts=counts,
    )


def compare_all(
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    progress: Callable[[int], None] | None = None,
) -> AllPairs:
    """``all_pairs`` with a longer tail, for the thresholds of replicates."""
    tail = int(min(max(MIN_TAIL, REJECT_SHARE * count_pairs(people)[1]), MAX_REJECT_TAIL))
    return all_pairs(embedding, people, tail=tail, progress=progress)


def check_unit(vectors: NDArray[np.floating], rows: int) -> None:
    """Refuse embeddings that are not finite and of unit length, as cosines need them; the error names the row."""
    if vectors.ndim != 2 or len(vectors) != rows:
        raise ValueError(f"embeddings are {vectors.shape}, but there are {rows} labels")
    length = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(~(np.abs(length - 1.0) < 1e-2))
    if len(wrong):
        raise ValueError(f"embedding {wrong[0]} has length {length[wrong[0]]:g}, not 1")


def tar_estimates(
    pairs: AllPairs, fars: Sequence[float], *, replicates: int = 200, seed: int = 0
) -> dict[float, Estimate]:
    """TAR at each FAR, with replicates that draw the same people whatever the scores."""
    units = pairs.genuine_units
    drawn_tars = []
    for limits, drawn in pairs.resampled(fars, replicates=replicates, seed=seed):
        if (weights := drawn[units]).any():
            drawn_tars.append([np.average(pairs.genuine > limit, weights=weights) for limit in limits])
    columns = np.array(drawn_tars, dtype=np.float64).reshape(-1, len(fars)).T
    return {far: Estimate(pairs.tar_at_far(far).tar, column) for far, column in zip(fars, columns, strict=True)}


def far_intervals(
    pairs: AllPairs, fars: Sequence[float], *, replicates: int = 200, seed: int = 0
) -> dict[float, Interval]:
    """95% intervals of TAR at each FAR whose threshold lies well inside the tail, by resampling people.

    At 0 and 1 they extend to 3 / n (``resampled_rate_interval``), n the people with genuine pairs.
    """
    people = len(np.unique(pairs.genuine_units))
    inside = [far for far in fars if pairs.in_tail(far)]
    estimates = tar_estimates(pairs, inside, replicates=replicates, seed=seed)
    return {
        far: resampled_rate_interval(estimate.replicates, estimate.value, people) for far, estimate in estimates.items()
    }


def _blocks(images: int, ends: NDArray[np.intp]) -> Iterator[tuple[int, int, int, int]]:
    """Blocks of rows and columns over the upper triangle; those on the diagonal hold all genuine pairs."""
    for top in range(0, images, ROWS):
        bottom = min(top + ROWS, images)
        end = int(ends[bottom - 1])
        yield top, bottom, top, end
        for start in range(end, images, COLUMNS):
            yield top, bottom, start, min(start + COLUMNS, images)


def _tail_begins(vectors: NDArray[np.float32], labels: NDArray[np.intp], share: float) -> int:
    """The bin above which about ``share`` of the impostor pairs lie, estimated from a sample of pairs."""
    if share >= 0.5:
        return 0
    first, second = np.random.default_rng(0).integers(0, len(vectors), (2, SAMPLE))
    different = labels[first] != labels[second]
    first, second = first[different], second[different]
    scores = np.concatenate(
        [
            np.einsum("pd,pd->p", vectors[first[at : at + 65536]], vectors[second[at : at + 65536]])
            for at in range(0, len(first), 65536)
        ]
    )
    return int(_bins(np.quantile(scores, [1.0 - share]))[0])


def _bins(scores: NDArray[np.floating]) -> NDArray[np.int64]:
    return np.floor((scores.astype(np.float64) + 1.0) / WIDTH + 1.0).astype(np.int64)


def _gather(
    parts: Sequence[tuple[NDArray[np.float32], NDArray[np.intp], NDArray[np.intp]]], order: NDArray[np.intp]
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Convert positions among the bins to cosines, and pairs to rows of the images in their original order."""
    positions, rows, columns = (np.concatenate(column) for column in zip(*parts, strict=True))
    scores = (positions.astype(np.float64) - 1.0) * WIDTH - 1.0
    return scores.astype(np.float32), np.stack([order[rows], order[columns]], axis=1).astype(np.int32)
