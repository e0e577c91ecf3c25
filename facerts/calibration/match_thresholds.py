"""Match thresholds with their errors, and what rejecting poor faces does to these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks import PairBenchmark
from facerts.benchmarks.pairs import subjects_of_pairs
from facerts.benchmarks.repeated import repeated_images
from facerts.calibration.faces import Faces
from facerts.calibration.pairs import EveryPair, ListedPairs, Pairs
from facerts.datasets import Source, Subset
from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.errors import Error
from facerts.io.progress import progress_bar
from facerts.metrics.all_pairs import all_pairs
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.reject import pair_quality
from facerts.metrics.verification import pair_cosine
from facerts.onnx.contract import KeptPairs, Matching, MatchThreshold

FMRS = (1e-2, 1e-3, 1e-4)
# Impostor pairs above a threshold that a rate rests on: with ten, its standard error is a third of it even if no two
# pairs shared a person.
LEAST_FALSE_MATCHES = 10

Found = tuple[Matching | None, list[str]]


def match_every_pair(
    faces: Faces, hashed: ImageHashes, fmrs: Sequence[float] | None, keep: Mapping[str, float], *, flip: bool
) -> Found:
    """Match thresholds on all pairs of faces that have identities, each picture taken once.

    Args:
        faces: with embeddings.
        hashed: their pictures.
        fmrs: as ``reachable_rates``.
        keep: thresholds of quality by name, see ``match_thresholds``.
        flip: whether mirrors were added.

    Returns:
        What was found, None where there are too few pairs for any rate; and what is to be said of it.

    Raises:
        Error: as ``reachable_rates``.
    """
    labels, name = faces.source.labels, faces.source.name
    assert labels is not None
    assert faces.embedding is not None
    once = np.flatnonzero(hashed.first == np.arange(len(labels)))
    notes = []
    if len(once) < len(labels):
        notes.append(f"{len(labels) - len(once)} pictures stand there a second time; pairs take each once.")
    wanted, missing = reachable_rates(fmrs, *pairs_among(labels[once]), name)
    notes += missing
    if not wanted:
        return None, notes
    total = len(once) * (len(once) - 1) // 2
    with progress_bar() as bar:
        task = bar.add_task(f"all pairs of {name}", total=total, unit="pairs")
        every = all_pairs(faces.embedding[once], labels[once], progress=lambda done: bar.advance(task, done))
        bar.update(task, completed=total)
    quality = None if faces.quality is None else faces.quality[once]
    thresholds = match_thresholds(EveryPair(every), wanted, quality=quality, keep=keep)
    return _matching(Subset(faces.source, once), hashed, "all", thresholds, flip, by_people=True), notes


def match_listed_pairs(
    faces: Faces,
    benchmark: PairBenchmark,
    fmrs: Sequence[float] | None,
    keep: Mapping[str, float],
    *,
    flip: bool,
) -> Found:
    """Match thresholds on the pairs of a benchmark, without those that have a picture which could not be read.

    Args:
        faces: of the benchmark's pictures, with embeddings.
        benchmark: that lists the pairs.
        fmrs: as ``reachable_rates``.
        keep: thresholds of quality by name, see ``match_thresholds``.
        flip: whether mirrors were added.

    Returns:
        As ``match_every_pair``.

    Raises:
        Error: as ``reachable_rates``.
    """
    assert faces.embedding is not None
    place = np.full(len(benchmark.images), -1)
    place[faces.rows] = np.arange(len(faces.rows))
    pairs = place[benchmark.pairs]
    read = (pairs >= 0).all(axis=1)
    left = replace(
        benchmark,
        images=faces.source,
        pairs=pairs[read],
        same=benchmark.same[read],
        folds=benchmark.folds[read],
    )
    hashed = hash_images(left.images)
    notes = [*left.notes, *repeated_images(left, hashed.first)]
    if not read.all():
        notes.append(f"{int((~read).sum())} pairs are left out with their pictures.")
    wanted, missing = reachable_rates(fmrs, int(left.same.sum()), int((~left.same).sum()), left.name)
    notes += missing
    if not wanted:
        return None, notes
    subjects = subjects_of_pairs(left)
    scored = ListedPairs(pair_cosine(faces.embedding, left.pairs), left.same, left.pairs, subjects)
    thresholds = match_thresholds(scored, wanted, quality=faces.quality, keep=keep)
    return _matching(left.images, hashed, "listed", thresholds, flip, by_people=subjects is not None), notes


def reachable_rates(
    fmrs: Sequence[float] | None, genuine: int, impostors: int, name: str
) -> tuple[list[float], list[str]]:
    """The false match rates that there are enough pairs for, and why others are left out.

    Args:
        fmrs: asked for; None for those of ``FMRS`` that are possible.
        genuine: pairs of one person.
        impostors: pairs of two people.
        name: of the pictures, for errors.

    Raises:
        Error: there are too few pairs for a rate that was asked for.
    """
    missing = []
    if not genuine or not impostors:
        missing.append(
            f"There are {genuine:,} pairs of one person and {impostors:,} of two, so there are no match thresholds; "
            "they need two people, and two pictures of one."
        )
        wanted = []
    else:
        given = FMRS if fmrs is None else fmrs
        wanted = [fmr for fmr in given if fmr * impostors >= LEAST_FALSE_MATCHES - 1e-9]
        missing += [
            f"FMR {fmr:g} needs {int(np.ceil(LEAST_FALSE_MATCHES / fmr - 1e-9)):,} impostor pairs, of which "
            f"{LEAST_FALSE_MATCHES} would match, and there are {impostors:,}; it is left out."
            for fmr in given
            if fmr not in wanted
        ]
    if fmrs is not None and missing:
        raise Error(f"{name}: {missing[0]} Give more pictures, or choose other rates.")
    return wanted, missing


def pairs_among(labels: NDArray[np.integer]) -> tuple[int, int]:
    """How many pairs of one person and of two people pictures make."""
    sizes = np.bincount(labels).astype(np.int64)
    genuine = int(np.sum(sizes * (sizes - 1)) // 2)
    return genuine, len(labels) * (len(labels) - 1) // 2 - genuine


def match_thresholds(
    pairs: Pairs,
    fmrs: Sequence[float],
    *,
    quality: NDArray[np.floating] | None = None,
    keep: Mapping[str, float] | None = None,
) -> dict[str, MatchThreshold]:
    """A threshold for each false match rate, with FNMR among all genuine pairs and among those that are kept.

    A threshold is chosen once, on all impostor pairs, and stays while pairs are rejected. Intervals are percentiles of
    the bootstrap that ``pairs`` draws, each replicate with a threshold of its own. Where no pair fails there is
    little to draw from; then the interval reaches up to 3 / n at least (the rule of three), n being the people, who
    are independent, or the pairs where people are not known. Likewise where all fail.

    Args:
        pairs: of the pictures.
        fmrs: false match rates.
        quality: ``(N,)`` of the pictures.
        keep: thresholds of quality by name; a pair is kept where both its pictures are at or above.
    """
    order = np.argsort(pairs.genuine, kind="stable")
    genuine = pairs.genuine[order]
    people = None if pairs.people is None else pairs.people[order]
    kept = {"": np.ones(len(genuine), dtype=bool)}
    if quality is not None and keep is not None:
        worse = pair_quality(quality, pairs.genuine_pairs[order])
        kept |= {name: worse >= limit for name, limit in keep.items()}
    drawn: dict[str, list[NDArray[np.float64]]] = {name: [] for name in kept}
    for limits, weights in pairs.replicates(fmrs):
        failed = np.searchsorted(genuine, limits, side="right")
        for name, those in kept.items():
            running = np.append(0.0, np.cumsum(weights[order] * those, dtype=np.float64))
            if running[-1] > 0:  # a replicate may lose the few people that are left
                drawn[name].append(running[failed] / running[-1])

    def errors(name: str, place: int, threshold: float) -> KeptPairs:
        those = kept[name]
        count = int(those.sum())
        if not count:
            return KeptPairs(genuine=0, fnmr=None, ci95=None)
        fnmr = float(np.mean(genuine[those] < threshold))
        units = count if people is None else len(np.unique(people[those]))
        ci95 = _interval(np.array(drawn[name])[:, place], fnmr, units)
        return KeptPairs(genuine=count, fnmr=fnmr, ci95=ci95)

    found = {}
    for place, fmr in enumerate(fmrs):
        threshold = pairs.threshold(fmr)
        told = {name: errors(name, place, threshold) for name in kept}
        whole = told.pop("")
        assert whole.fnmr is not None  # there are genuine pairs
        assert whole.ci95 is not None
        found[str(fmr)] = MatchThreshold(
            similarity=threshold,
            achieved_fmr=pairs.accepted(threshold) / pairs.impostors,
            impostors=pairs.impostors,
            genuine=whole.genuine,
            fnmr=whole.fnmr,
            ci95=whole.ci95,
            kept=told,
        )
    return found


def _interval(values: NDArray[np.float64], rate: float, units: int) -> Interval:
    low, high = percentile_interval(values)
    margin = min(3 / units, 1.0)
    if rate == 0:
        return low, max(high, margin)
    return (min(low, 1 - margin), high) if rate == 1 else (low, high)


def _matching(
    images: Source,
    hashed: ImageHashes,
    pairs: Literal["all", "listed"],
    thresholds: dict[str, MatchThreshold],
    flip: bool,
    *,
    by_people: bool,
) -> Matching:
    return Matching(
        data=images.name,
        data_sha256=hashed.sha256,
        pairs=pairs,
        images=len(images),
        identities=None if images.labels is None else len(np.unique(images.labels)),
        flip=flip,
        interval=f"bootstrap over {'subjects' if by_people else 'pairs'}",
        thresholds=thresholds,
    )
