"""Error versus reject of an embedder on a verification benchmark, by each score that there is of an image."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.pair_benchmark import PairBenchmark
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import ModelError
from facerts.evaluation.baselines import OWN_SCORES, image_scores
from facerts.evaluation.measure import Evaluation, Measure, Plot, Series
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.similarity import COSINE, Similarity, check_fmrs, compare_benchmark
from facerts.evaluation.wording import digits_of, measured, one_in, percent, rate, score_in_words
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.error_versus_reject import (
    ORACLE,
    RATES,
    ErrorVersusReject,
    RejectCurve,
    error_versus_reject,
    pair_quality,
)
from facerts.metrics.intervals import Interval
from facerts.metrics.reliability import reliability, spearman

FMR = 1e-3
REPLICATES = 300
LISTED, ALL_PAIRS = "listed pairs", "all pairs"
# Shares left out that tables show, and that of summaries.
SHOWN, LEFT_OUT = (0.0, 0.05, 0.1, 0.2), 0.2
# Curves are drawn to this share, and end where fewer genuine pairs remain: one of them would move it by more than 10%.
MOST_LEFT_OUT, REMAINING = 0.95, 10
# Bins by quality, and the fewest genuine pairs of each.
BINS, IN_BIN = 10, 20


def reject_of(
    outputs: FaceOutputs,
    benchmark: PairBenchmark,
    *,
    fmr: float = FMR,
    similarity: Similarity = COSINE,
    every: AllPairs | None = None,
    rows: NDArray[np.integer] | None = None,
) -> tuple[Evaluation, Arrays]:
    """Error versus reject by every score, and FNMR by quality: the section ``reject[NAME]`` of a result, its arrays.

    The threshold is chosen at ``fmr``. ``every`` are all pairs of the images ``rows`` of the benchmark, where they are
    to be measured too; compared by the cosine.
    """
    scores = image_scores(outputs)
    if not scores:
        raise ModelError("this model outputs neither a quality nor a norm, so it has no score to reject pairs by")
    listed = compare_benchmark(similarity.of_pairs(outputs, benchmark.pairs), benchmark)
    check_fmrs([fmr], listed.impostors, benchmark.name)
    sets: dict[str, tuple[ComparedPairs, dict[str, NDArray[np.float32]]]] = {LISTED: (listed, scores)}
    if every is not None and rows is not None:
        sets[ALL_PAIRS] = every, {by: values[rows] for by, values in scores.items()}
    measures: list[Measure] = []
    arrays: Arrays = {}
    plots, texts, findings = [], [], []
    for name, (pairs, of_pairs) in sets.items():
        table = error_versus_reject(pairs, of_pairs, [fmr], replicates=REPLICATES)[fmr]
        for by in of_pairs:
            numbers = reject_measures(table, by)
            shown = {"of": {"score": by, "pairs": name}, "table": f"FNMR at FMR {rate(fmr)}"}
            measures += [one.model_copy(update=shown) for one in numbers]
        arrays |= reject_arrays(table, f"{name}/")
        plots.append(_plot(table, list(of_pairs), name, fmr))
        passing = f"{table.accepted:,} pair{'' if table.accepted == 1 else 's'}"
        texts.append(
            f"{rate(fmr)} of the {table.impostors:,} impostor pairs of {name} is {passing}: the threshold depends on "
            "them, and the intervals show how much."
        )
        first = next(iter(of_pairs))
        findings = [reject_finding(table.by[first], first, fmr)]
    last = next(one for one in measures if one.of["pairs"] == name and one.name == f"{rate(LEFT_OUT)} left out")
    last.headline = True
    more, of_bins = _reliability(listed, scores, fmr)
    arrays |= of_bins
    plots.append(more[1])
    section = Evaluation(
        title="Error versus reject: does quality predict errors?",
        images=len(benchmark.images),
        interval=f"bootstrap over {listed.unit}",
        text=f"FNMR at FMR {rate(fmr)} by the share of genuine pairs left out; pAUC: its mean over all shares up to "
        "20 or 95%; best: if pairs were left out by similarity. At random, FNMR stays at its value at 0%. "
        f"{' '.join(texts)} In brackets: 95% intervals, bootstrap over {listed.unit}. The quality of a pair is the "
        "lower of its two.",
        findings=findings,
        settings={"similarity": similarity.name, "fmr": fmr},
        measures=[*measures, *more[0]],
        plots=plots,
    )
    return section, arrays


def reject_measures(table: ErrorVersusReject, by: str) -> list[Measure]:
    """What a curve says in numbers: FNMR by the share left out, and areas."""
    curve, best = table.by[by], table.by[ORACLE]
    measures = []
    for share in SHOWN:
        place = RATES.index(share)
        ends = None if curve.ci95 is None else (float(curve.ci95[0, place]), float(curve.ci95[1, place]))
        measures.append(_lower(f"{rate(share)} left out", float(curve.fnmr[place]), ends))
    for end in (0.2, 0.95):
        area = curve.pauc[end]
        measures.append(_lower(f"pAUC to {rate(end)}", area.value, area.interval()))
    measures.append(_lower("best pAUC to 20%", best.pauc[0.2].value, None))
    for one in measures:
        one.n, one.threshold, one.passing = table.genuine, table.threshold, table.accepted
    return measures


def reject_arrays(table: ErrorVersusReject, prefix: str) -> Arrays:
    """Curves by score: FNMR, and the ends of its intervals where there are any."""
    arrays: Arrays = {f"{prefix}left out": np.array(RATES)}
    arrays[f"{prefix}random"] = np.full(len(RATES), table.fnmr.value)
    for by, curve in table.by.items():
        arrays[f"{prefix}{by}/fnmr"] = curve.fnmr
        if curve.ci95 is not None and by != ORACLE:
            arrays[f"{prefix}{by}/low"], arrays[f"{prefix}{by}/high"] = curve.ci95
    return arrays


def references(x: list[str], best: str, random: str) -> list[Series]:
    """What qualities are held against."""
    return [
        Series(label="best possible", x=x, y=best, reference=True),
        Series(label="at random", x=x, y=random, reference=True, dashed=True),
    ]


def drawn_to(genuine: int) -> float:
    """The share of so many genuine pairs up to which a curve is drawn."""
    return min(MOST_LEFT_OUT, max(1 - REMAINING / genuine, 0.2))


def _lower(name: str, value: float, ci95: Interval | None) -> Measure:
    return Measure(name=name, value=value if math.isfinite(value) else None, ci95=ci95, better="lower")


def _plot(table: ErrorVersusReject, scores: Sequence[str], pairs: str, fmr: float) -> Plot:
    """The band is that of the first score; several models show their own scores alone."""
    x = [f"{pairs}/left out"]
    series = [
        Series(
            label=by,
            x=x,
            y=f"{pairs}/{by}/fnmr",
            low=f"{pairs}/{by}/low" if order == 0 and table.by[by].ci95 is not None else None,
            high=f"{pairs}/{by}/high" if order == 0 and table.by[by].ci95 is not None else None,
            alone=by not in OWN_SCORES,
        )
        for order, by in enumerate(scores)
    ]
    return Plot(
        name=f"reject {pairs}",
        caption=f"FNMR while the genuine pairs of lowest quality are left out, on {pairs}; the threshold is chosen "
        "once. Lower is better.",
        x="genuine pairs left out",
        y=f"FNMR at FMR {rate(fmr)}",
        panels={"": [*series, *references(x, f"{pairs}/{ORACLE}/fnmr", f"{pairs}/random")]},
        percent="xy",
        x_limits=(0.0, drawn_to(table.genuine)),
    )


def reject_finding(curve: RejectCurve, by: str, fmr: float) -> str:
    """Whether leaving out the 20% of lowest quality changes what is missed."""
    place = RATES.index(LEFT_OUT)
    before, after = float(curve.fnmr[0]), float(curve.fnmr[place])
    ends = None if curve.ci95 is None else (float(curve.ci95[0, place]), float(curve.ci95[1, place]))
    if before == 0:
        return f"At {one_in(fmr)} it misses no pair, so leaving out pairs of low quality cannot help."
    begin = f"At {one_in(fmr)}, leaving out the {percent(LEFT_OUT, 0)} of lowest {score_in_words(by)}"
    random, rest = percent(before, digits_of(ends, 1)), measured(after, ends)
    # The threshold's uncertainty is in both numbers alike, so the interval may be held against the one at random.
    if ends is None or ends[0] <= before <= ends[1]:
        return f"{begin} leaves it missing {rest}, no clear difference from the {random} of random rejection."
    verb = "lowers" if ends[1] < before else "raises"
    return f"{begin} {verb} its misses from {random} to {rest}, where random rejection would leave {random}."


def _reliability(
    pairs: ComparedPairs, scores: Mapping[str, NDArray[np.float32]], fmr: float
) -> tuple[tuple[list[Measure], Plot], Arrays]:
    """FNMR in ten bins of equal numbers by quality, at one threshold; fewer where bins would have less than 20 pairs.

    And Spearman's correlation of quality with similarity over the genuine pairs.
    """
    genuine = pairs.genuine
    missed = genuine < pairs.threshold(fmr)
    measures, series = [], []
    arrays: Arrays = {}
    for order, (name, of_image) in enumerate(scores.items()):
        quality = pair_quality(of_image, pairs.genuine_pairs)
        bins = reliability(quality, missed, int(np.clip(len(genuine) // IN_BIN, 2, BINS)))
        rho = spearman(quality, genuine)
        measures.append(
            Measure(
                name="Spearman's ρ",
                of={"score": name, "pairs": LISTED},
                table=f"FNMR at FMR {rate(fmr)}",
                value=rho if math.isfinite(rho) else None,
                n=len(genuine),
                better="higher",
                format=".2f",
            )
        )
        key = f"reliability/{name}"
        arrays[f"{key}/place"] = (np.arange(len(bins.error)) + 0.5) / len(bins.error)
        arrays |= {f"{key}/fnmr": bins.error, f"{key}/low": bins.low, f"{key}/high": bins.high}
        series.append(
            Series(
                label=name,
                x=[f"{key}/place"],
                y=f"{key}/fnmr",
                low=f"{key}/low" if order == 0 else None,
                high=f"{key}/high" if order == 0 else None,
                alone=name not in OWN_SCORES,
            )
        )
    plot = Plot(
        name="reliability",
        caption="FNMR in bins of equal numbers by quality, with 95% intervals: it should fall from left to right.",
        x="genuine pairs by quality, worst to best",
        y=f"FNMR at FMR {rate(fmr)}",
        panels={"": series},
        percent="xy",
        x_limits=(0.0, 1.0),
    )
    return (measures, plot), arrays
