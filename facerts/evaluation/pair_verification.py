"""Verification: the pairs of images that a benchmark lists, every pair of its images, and pairs of templates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark, subjects_of_pairs
from facerts.datasets.template_benchmark import TemplateBenchmark
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.baselines import image_arrays
from facerts.evaluation.measure import Evaluation, Measure, PairedTest, Plot, Series
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.similarity import COSINE, Similarity, check_fmrs
from facerts.evaluation.wording import against, complement, measured, one_in, rate
from facerts.metrics.all_pairs import EDGES, AllPairs, far_intervals
from facerts.metrics.intervals import Interval
from facerts.metrics.pair_intervals import PairIntervals, share_interval, verification_intervals
from facerts.metrics.pooling import pool, ranked_weights
from facerts.metrics.verification import ROC, OperatingPoint, pair_cosine, reachable, roc, ten_fold_accuracy

FMRS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
# Points of a curve that are kept for drawing.
POINTS = 2000
DRAWN_BINS = 128
FNMR = "FNMR at FMR "
PAIRS, LISTED = "pairs", "listed pairs"
# A threshold that fewer impostor pairs decide is named as such.
FEW = 10
MIRRORS = {
    True: "Embeddings of crop and mirror image are added.",
    False: "Embeddings are of crops without their mirror images.",
    None: "The embeddings were computed elsewhere.",
}
POOLINGS = ("mean", "quality", "inverse_variance", "norm")


def evaluate_verification(
    embedder: Embedder,
    benchmark: PairBenchmark,
    *,
    flip: bool = True,
    progress: bool = True,
) -> tuple[Evaluation, Arrays]:
    """Embed a benchmark's images and measure: the section ``verification[NAME]`` of a result, and its arrays."""
    outputs = embed_source(embedder, benchmark.images, flip=flip, progress=progress)
    return verification_of(outputs, benchmark, flip=flip)


def verification_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    flip: bool | None,
    fmrs: Sequence[float] | None = None,
    similarity: Similarity = COSINE,
    every: AllPairs | None = None,
) -> tuple[Evaluation, Arrays]:
    """Measure embeddings that are there already; see ``evaluate_verification``.

    Args:
        flip: whether mirrors were added; None where that is not known.
        fmrs: rates at which FNMR is measured; by default those of ``FMRS`` for which there are enough impostor pairs.
        every: all pairs of the images, to be measured too; ``fmrs`` are then those of all pairs.
    """
    scores, same = similarity.of_pairs(outputs, benchmark.pairs), benchmark.same
    labels = benchmark.images.labels
    subjects = subjects_of_pairs(benchmark)
    accuracy = ten_fold_accuracy(scores, same, benchmark.folds)
    _, fold = np.unique(benchmark.folds, return_inverse=True)
    right = (scores >= accuracy.thresholds[fold]) == same
    curve = roc(scores, same)
    rates = _rates(None if every else fmrs, curve.impostors, benchmark.name)
    intervals = verification_intervals(scores, same, rates, subjects=subjects)
    decided = Measure(
        name="accuracy",
        of={PAIRS: LISTED},
        value=accuracy.value,
        ci95=share_interval(right, same, subjects=subjects),
        n=len(same),
        better="higher",
        headline=True,
        test=PairedTest(statistic="accuracy"),
    )
    people = None if labels is None else len(np.unique(labels))
    section = _section(benchmark, [decided, *_measures(curve, intervals)], intervals, flip, similarity.name, people)
    arrays: Arrays = {
        "scores": scores.astype(np.float32),
        "same": same,
        "pairs": benchmark.pairs.astype(np.int32),
        "folds": benchmark.folds.astype(np.int8),
        **_det_arrays(curve),
        **image_arrays(outputs, [benchmark.images.key(i) for i in range(len(benchmark.images))]),
    }
    if labels is not None and subjects is not None:
        arrays["subjects"] = labels.astype(np.int32)
    if every is not None:
        for one in section.measures:
            one.headline = one.name == "accuracy"
        more, of_all = _all_pairs(every, benchmark.name, fmrs)
        section.measures += more
        arrays.update(of_all)
    section.findings = list(verification_findings(section))
    section.plots = list(_plots(arrays, similarity))
    return section, arrays


def _all_pairs(pairs: AllPairs, name: str, fmrs: Sequence[float] | None) -> tuple[list[Measure], Arrays]:
    """Every pair of a benchmark's images."""
    curve = pairs.roc()
    area, _ = pairs.auroc()
    rates = _rates(fmrs, pairs.impostors, f"all pairs of {name}")
    intervals = far_intervals(pairs, rates)
    points = {far: (pairs.tar_at_far(far), intervals.get(far)) for far in rates}
    measures = [
        Measure(name="AUROC", value=area, better="higher"),
        Measure(name="EER", value=curve.eer(), better="lower"),
        *_fnmrs(points, len(pairs.genuine)),
        *_counts(len(pairs.genuine), pairs.impostors),
    ]
    thin = EDGES[:-1].reshape(DRAWN_BINS, -1)[:, 0]
    genuine, _ = np.histogram(pairs.genuine, np.append(thin, EDGES[-1]))
    arrays: Arrays = {
        **{f"all_{key}": value for key, value in _det_arrays(curve).items()},
        "all_edges": np.append(thin, EDGES[-1]).astype(np.float32),
        "all_genuine": genuine,
        "all_impostors": pairs.counts.reshape(DRAWN_BINS, -1).sum(axis=1),
    }
    return [one.model_copy(update={"of": {PAIRS: "all pairs"}}) for one in measures], arrays


def _measures(curve: ROC, intervals: PairIntervals) -> list[Measure]:
    """What listed pairs tell, whether of images or of templates."""
    points = {far: (curve.tar_at_far(far), ci95) for far, ci95 in intervals.tar_at_far.items()}
    measures = [
        Measure(
            name="AUROC",
            value=curve.auroc(),
            ci95=intervals.auroc,
            better="higher",
            test=PairedTest(statistic="auroc"),
        ),
        Measure(name="EER", value=curve.eer(), ci95=intervals.eer, better="lower"),
        *_fnmrs(points, curve.genuine, tested=True),
        *_counts(curve.genuine, curve.impostors),
    ]
    return [one.model_copy(update={"of": {PAIRS: LISTED}}) for one in measures]


def _fnmrs(
    points: Mapping[float, tuple[OperatingPoint, Interval | None]], genuine: int, *, tested: bool = False
) -> list[Measure]:
    """FNMR at each FMR, the highest first; the one that people look at first is that at 0.001 or nearest to it."""
    first = min(points, key=lambda far: abs(far - 1e-3), default=None)
    return [
        Measure(
            name=f"FNMR at FMR {rate(far)}",
            value=1 - point.tar,
            ci95=complement(ci95),
            n=genuine,
            better="lower",
            threshold=point.threshold if np.isfinite(point.threshold) else None,
            passing=round(point.achieved_far * point.impostors),
            headline=far == first,
            test=PairedTest(statistic="tar_at_far", at=far) if tested else None,
        )
        for far, (point, ci95) in sorted(points.items(), reverse=True)
    ]


def _counts(genuine: int, impostors: int) -> list[Measure]:
    return [
        Measure(name=f"{name} pairs", value=float(number), format="count")
        for name, number in (("genuine", genuine), ("impostor", impostors))
    ]


def _rates(fmrs: Sequence[float] | None, impostors: int, name: str) -> Sequence[float]:
    """The rates to measure at."""
    if fmrs is None:
        return reachable(FMRS, impostors)
    check_fmrs(fmrs, impostors, name)
    return fmrs


def _det_arrays(curve: ROC) -> Arrays:
    """FMR and FNMR of a curve, as results keep it."""
    thin = curve.thinned(POINTS)
    return {"fmr": thin.far.astype(np.float32), "fnmr": (1 - thin.tar).astype(np.float32)}


def _plots(arrays: Arrays, similarity: Similarity) -> Iterator[Plot]:
    """The DET curve and the densities of the similarities, also of all pairs where they were measured."""
    curves = [Series(label="", x=["fmr"], y="fnmr", mark="steps")]
    densities = [
        Series(label="impostor pairs", x=["scores"], where="~same", reference=True),
        Series(label="genuine pairs", x=["scores"], where="same"),
    ]
    if "all_fmr" in arrays:
        curves.append(Series(label="all pairs", x=["all_fmr"], y="all_fnmr", mark="steps", dashed=True))
        densities += [
            Series(label=f"all {name} pairs", x=["all_edges"], y=f"all_{key}", mark="counts", dashed=True)
            for name, key in (("impostor", "impostors"), ("genuine", "genuine"))
        ]
    yield Plot(
        name="det",
        caption="DET curve: FNMR at every FMR, both axes logarithmic. Down and to the left is better.",
        x="FMR",
        y="FNMR",
        panels={"": curves},
        percent="xy",
        log=True,
    )
    yield Plot(
        name="similarities",
        caption="Similarity of genuine and impostor pairs. The less they overlap, the better.",
        x=similarity.words,
        y="density",
        panels={"": densities},
        together=False,
    )


def pooled(outputs: FaceOutputs, benchmark: TemplateBenchmark) -> dict[str, NDArray[np.float32]]:
    """The benchmark's templates, ``(T, d)`` of unit length, by each of ``POOLINGS`` that its images' outputs allow.

    Images weigh the same ("mean"), by the rank of their quality, by the inverse of their uncertainty or by the norm
    of their embedding. An uncertainty that is no more than minus the quality is no variance, and neither is
    one that is 0 or less somewhere; a norm must lie above 0 as well. What does not hold is left out, and so
    are all but the mean where templates are single images.
    """
    weights: dict[str, NDArray[np.floating] | None] = {"mean": None}
    if len(benchmark.template) == len(benchmark.template_ids):
        # Every template is a single image, whose weight does not matter.
        outputs = FaceOutputs(outputs.embedding)
    if outputs.quality is not None:
        weights["quality"] = ranked_weights(outputs.quality)
    variance = outputs.uncertainty
    if variance is not None and not (outputs.quality is not None and np.array_equal(variance, -outputs.quality)):
        # In float64, where the inverse of the smallest float32 is finite; what is no variance gets no weight.
        weights["inverse_variance"] = 1.0 / np.where(variance > 0, variance, np.inf).astype(np.float64)
    if outputs.norm is not None:
        weights["norm"] = outputs.norm
    return {
        name: pool(
            outputs.embedding,
            benchmark.template,
            media=benchmark.media,
            weights=weights[name],
            templates=len(benchmark.template_ids),
        )
        for name in POOLINGS
        if name in weights and (weights[name] is None or np.all(np.asarray(weights[name]) > 0))
    }


def template_verification_of(
    outputs: FaceOutputs,
    benchmark: TemplateBenchmark,
    fmrs: Sequence[float],
    *,
    flip: bool | None = None,
    replicates: int | None = None,
) -> dict[str, Evaluation]:
    """Measure the benchmark's pairs of templates: a section for each pooling.

    Rates that the impostor pairs cannot show are left out; ``flip`` is None where it is not known whether mirrors
    were added, and ``replicates`` are as for ``verification_intervals``.
    """
    same = benchmark.same
    genuine = int(same.sum())
    if not 0 < genuine < len(same):
        raise DataError(
            f"{benchmark.name}: verification needs genuine and impostor pairs of templates, "
            f"but there are {genuine} and {len(same) - genuine}"
        )
    sections = {}
    for name, templates in pooled(outputs, benchmark).items():
        scores = pair_cosine(templates, benchmark.pairs).astype(np.float32)
        curve = roc(scores, same)
        intervals = verification_intervals(scores, same, reachable(fmrs, curve.impostors), replicates=replicates)
        measures = _measures(curve, intervals)
        for measure in measures:
            measure.test = None
        section = _section(benchmark, measures, intervals, flip, COSINE.name, None)
        section.settings["templates"] = len(templates)
        section.findings = list(verification_findings(section))
        sections[name] = section
    return sections


def _section(
    benchmark: PairBenchmark | TemplateBenchmark,
    measures: list[Measure],
    intervals: PairIntervals,
    flip: bool | None,
    similarity: str,
    people: int | None,
) -> Evaluation:
    """What listed pairs tell, whether of images or of templates."""
    passing = [f"{one.passing:,} at {one.name.removeprefix(FNMR)}" for one in measures if one.name.startswith(FNMR)]
    images = len(benchmark.images)
    interval = f"bootstrap over {intervals.unit}"
    return Evaluation(
        title="Verification: the same person or not",
        images=images,
        interval=interval,
        text=f"{images:,} images{f' of {people:,} people' if people else ''}. Accuracy: each fold at the threshold "
        "that is best on the others. FNMR is shown at each FMR that lets at least one impostor pair pass; with few of "
        f"them ({', '.join(passing)}), the interval shows how uncertain it is. In brackets: 95% intervals, {interval}. "
        f"{MIRRORS[flip]}",
        notes=list(benchmark.notes),
        settings={"flip": flip, "similarity": similarity},
        measures=measures,
    )


def verification_findings(section: Evaluation) -> Iterator[str]:
    """How many pairs are decided correctly, and what is missed at a low rate of false matches."""
    decided = section.find("accuracy")
    pairs = [section.measure(f"{name} pairs").value or 0 for name in ("genuine", "impostor")]
    if decided is not None and decided.ci95 is not None:
        yield (
            f"It decides {measured(decided.value, decided.ci95)} of {decided.n:,} pairs correctly"
            f"{against(decided.ci95, max(pairs) / sum(pairs))}."
        )
    else:
        area = section.measure("AUROC")
        yield (
            f"It separates genuine from impostor pairs with AUROC {measured(area.value, area.ci95)}"
            f"{against(area.ci95 or (0.0, 0.0), 0.5)}."
        )
    for one in section.measures:
        if one.headline and one.name.startswith(FNMR) and one.passing is not None:
            few = f" (only {one.passing} of them decide the threshold)" * (one.passing < FEW)
            fmr = float(one.name.removeprefix(FNMR).rstrip("%")) / 100
            yield (
                f"At {one_in(fmr)} different-person pairs{few}, it misses {measured(one.value, one.ci95)} of the "
                "same-person pairs."
            )
