"""Match thresholds, their error rates, and how these change when faces of low quality are rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.calibration.faces import Faces
from facerts.calibration.group_thresholds import ComparedFaces
from facerts.datasets import PairBenchmark, Source, Subset
from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.datasets.pair_benchmark import repeated_images
from facerts.evaluation.similarity import compare_benchmark, compare_images
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.compared_pairs import ComparedPairs, count_pairs
from facerts.metrics.error_versus_reject import pair_quality
from facerts.metrics.group_rates import fmr_by_group, in_tail, share_by_group
from facerts.metrics.intervals import Interval, ResamplingUnit, resampled_rate_interval, subject_counts
from facerts.metrics.same_person import SamePerson, fit_same_person, quality_level
from facerts.metrics.verification import pair_cosine, reachable, too_few
from facerts.onnx.contract import KeptPairs, Matching, MatchThreshold

FMRS = (1e-2, 1e-3, 1e-4)
# With ten false matches the standard error of a rate is a third of it, even if no two pairs share a person.
FEW_FALSE_MATCHES = 10
REPLICATES = 300
# Images whose pairs the likelihood ratio of "same person" is fitted on; two million pairs.
MAX_FITTED = 2000


def match_every_pair(
    faces: Faces, hashed: ImageHashes, fmrs: Sequence[float] | None, keep: Mapping[str, float], *, flip: bool
) -> tuple[Matching | None, ComparedFaces | None, list[str]]:
    """Match thresholds on all pairs of faces with known identities; duplicate images count once.

    The calibration and the pairs behind it are None if there are too few pairs for any rate; remarks are for the
    report. ``keep`` are quality thresholds by name; ``flip`` says whether embeddings include the mirror images.
    """
    labels, name = faces.source.labels, faces.source.name
    assert labels is not None
    assert faces.embedding is not None
    unique = np.flatnonzero(hashed.first == np.arange(len(labels)))
    notes = []
    if len(unique) < len(labels):
        notes.append(f"{len(labels) - len(unique)} duplicate images are left out of the pairs.")
    rates, missing = reachable_rates(fmrs, *count_pairs(labels[unique]))
    notes += missing
    if not rates:
        return None, None, notes
    every = compare_images(name, faces.embedding[unique], labels[unique])
    quality = None if faces.quality is None else faces.quality[unique]
    thresholds = match_thresholds(every, rates, quality=quality, keep=keep)
    matching = _matching(Subset(faces.source, unique), hashed, "all", thresholds, flip, every.unit)
    if quality is not None:
        fitted = _same_person(faces.embedding[unique], quality, labels[unique])
        weights = tuple(round(weight, 4) for weight in fitted.weights)
        matching = matching.model_copy(update={"same_person": weights})
    similarities = {rate: threshold.similarity for rate, threshold in thresholds.items()}
    return matching, ComparedFaces(unique, every, similarities), notes + _uncertain_rates(thresholds)


def _same_person(
    embedding: NDArray[np.float32], quality: NDArray[np.floating], labels: NDArray[np.integer]
) -> SamePerson:
    """The likelihood ratio of "same person", on the pairs of all images, or of many people chosen at random."""
    people = np.random.default_rng(0).permutation(np.unique(labels))
    sizes = np.bincount(labels)[people]
    chosen = people[: max(int(np.searchsorted(np.cumsum(sizes), MAX_FITTED, side="right")), 2)]
    rows = np.flatnonzero(np.isin(labels, chosen))
    level = quality_level(100 * np.searchsorted(np.sort(quality), quality[rows]) / len(quality))
    first, second = np.triu_indices(len(rows), 1)
    cosine = (embedding[rows] @ embedding[rows].T)[first, second]
    return fit_same_person(cosine, level[first], level[second], labels[rows][first] == labels[rows][second])


def match_listed_pairs(
    faces: Faces,
    benchmark: PairBenchmark,
    fmrs: Sequence[float] | None,
    keep: Mapping[str, float],
    *,
    flip: bool,
) -> tuple[Matching | None, list[str]]:
    """Match thresholds on a benchmark's pairs without unreadable images; see ``match_every_pair``."""
    assert faces.embedding is not None
    new_row = np.full(len(benchmark.images), -1)
    new_row[faces.rows] = np.arange(len(faces.rows))
    pairs = new_row[benchmark.pairs]
    readable = (pairs >= 0).all(axis=1)
    remaining = replace(
        benchmark,
        images=faces.source,
        pairs=pairs[readable],
        same=benchmark.same[readable],
        folds=benchmark.folds[readable],
    )
    hashed = hash_images(remaining.images)
    notes = [*remaining.notes, *repeated_images(remaining, hashed.first)]
    if not readable.all():
        notes.append(f"{int((~readable).sum())} pairs with an unreadable image are left out.")
    rates, missing = reachable_rates(fmrs, int(remaining.same.sum()), int((~remaining.same).sum()))
    notes += missing
    if not rates:
        return None, notes
    compared = compare_benchmark(pair_cosine(faces.embedding, remaining.pairs), remaining)
    thresholds = match_thresholds(compared, rates, quality=faces.quality, keep=keep)
    matching = _matching(remaining.images, hashed, "listed", thresholds, flip, compared.unit)
    return matching, notes + _uncertain_rates(thresholds)


def reachable_rates(fmrs: Sequence[float] | None, genuine: int, impostors: int) -> tuple[list[float], list[str]]:
    """The rates, of ``FMRS`` by default, that there are enough pairs for, and the reasons why others are left out."""
    if not genuine or not impostors:
        return [], [
            f"There are {genuine:,} genuine pairs and {impostors:,} impostor pairs, so there are no match thresholds; "
            "they need at least two people and two images of one person."
        ]
    requested = FMRS if fmrs is None else fmrs
    missing = [f"{reason}: it is left out." for fmr in requested if (reason := too_few(fmr, impostors))]
    return reachable(requested, impostors), missing


def match_thresholds(
    pairs: ComparedPairs,
    fmrs: Sequence[float],
    *,
    quality: NDArray[np.floating] | None = None,
    keep: Mapping[str, float] | None = None,
) -> dict[str, MatchThreshold]:
    """A threshold for each false match rate, with the FNMR among all genuine pairs and among the kept ones.

    The threshold is chosen on all impostor pairs and does not change as pairs are rejected. Intervals are percentiles
    of the bootstrap over ``pairs``; each replicate has its own threshold. If no pair fails, resampling says little, so
    the interval extends to at least 3 / n (the rule of three), where n is the number of people, who are independent,
    or of pairs if the people are unknown. The same applies if all pairs fail.

    ``quality`` is ``(N,)``, of the images; a pair is kept if both of its images reach a threshold of ``keep``.
    """
    order = np.argsort(pairs.genuine, kind="stable")
    genuine = pairs.genuine[order]
    units = pairs.genuine_units[order]
    kept = {"": np.ones(len(genuine), dtype=bool)}
    if quality is not None and keep is not None:
        worse = pair_quality(quality, pairs.genuine_pairs[order])
        kept |= {name: worse >= minimum for name, minimum in keep.items()}
    resampled: dict[str, list[NDArray[np.float64]]] = {name: [] for name in kept}
    for limits, drawn in pairs.resampled(fmrs, replicates=REPLICATES):
        failed = np.searchsorted(genuine, limits, side="right")
        for name, mask in kept.items():
            cumulative = np.append(0.0, np.cumsum(drawn[units] * mask, dtype=np.float64))
            if cumulative[-1] > 0:  # with few people left, a replicate may have none of them
                resampled[name].append(cumulative[failed] / cumulative[-1])

    def error_rate(name: str, column: int, threshold: float) -> KeptPairs:
        mask = kept[name]
        count = int(mask.sum())
        if not count:
            return KeptPairs(genuine=0, fnmr=None, ci95=None)
        fnmr = float(np.mean(genuine[mask] < threshold))
        ci95 = resampled_rate_interval(np.array(resampled[name])[:, column], fnmr, len(np.unique(units[mask])))
        return KeptPairs(genuine=count, fnmr=fnmr, ci95=ci95)

    thresholds = {}
    for column, fmr in enumerate(fmrs):
        threshold = pairs.threshold(fmr)
        error_rates = {name: error_rate(name, column, threshold) for name in kept}
        overall = error_rates.pop("")
        assert overall.fnmr is not None  # there are genuine pairs
        assert overall.ci95 is not None
        thresholds[str(fmr)] = MatchThreshold(
            similarity=threshold,
            achieved_fmr=pairs.accepted(threshold) / pairs.impostors,
            fmr_ci95=_fmr_interval(pairs, threshold),
            impostors=pairs.impostors,
            genuine=overall.genuine,
            fnmr=overall.fnmr,
            ci95=overall.ci95,
            kept=error_rates,
        )
    return thresholds


def _fmr_interval(pairs: ComparedPairs, threshold: float) -> Interval | None:
    """The 95% interval of the FMR at a threshold; None below the tail, where it hardly varies.

    Over people where they are known; Wilson's otherwise.
    """
    if isinstance(pairs, AllPairs):
        if not in_tail(pairs, threshold):
            return None
        everybody = np.zeros(len(pairs.people), dtype=np.int64)
        return fmr_by_group(pairs, everybody, 1, threshold, replicates=REPLICATES).interval(0)
    accepted = pairs.tail >= threshold
    if pairs.people is None:
        return share_by_group(accepted, np.zeros(len(accepted), dtype=np.int64), 1).interval(0)
    first, second = (pairs.people[pairs.tail_pairs[:, side]] for side in (0, 1))
    people = int(pairs.people.max()) + 1
    weights = (drawn[first] * drawn[second] for drawn in subject_counts(people, REPLICATES, 0))
    resampled = [float(weight[accepted].sum() / weight.sum()) for weight in weights if weight.any()]
    return resampled_rate_interval(np.array(resampled), float(np.mean(accepted)), people * (people - 1) // 2)


def _uncertain_rates(thresholds: Mapping[str, MatchThreshold]) -> list[str]:
    """A remark for each threshold that few impostor pairs chose."""
    return [
        f"FMR {fmr} is uncertain: {threshold.impostors:,} impostor pairs give "
        f"{float(fmr) * threshold.impostors:.0f} false matches, and for other people the rate may be "
        f"{threshold.fmr_ci95[0]:.2g} to {threshold.fmr_ci95[1]:.2g}."
        for fmr, threshold in thresholds.items()
        if threshold.fmr_ci95 and float(fmr) * threshold.impostors < FEW_FALSE_MATCHES - 1e-9
    ]


def _matching(
    images: Source,
    hashed: ImageHashes,
    pairs: Literal["all", "listed"],
    thresholds: dict[str, MatchThreshold],
    flip: bool,
    unit: ResamplingUnit,
) -> Matching:
    return Matching(
        data=images.name,
        data_sha256=hashed.sha256,
        pairs=pairs,
        images=len(images),
        identities=None if images.labels is None else len(np.unique(images.labels)),
        flip=flip,
        interval=f"bootstrap over {unit}",
        thresholds=thresholds,
    )
