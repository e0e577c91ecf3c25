"""All qualities of a comparison on one embedding, so that they differ by the quality alone (the RTS paper's Fig. 8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from facerts.evaluation.baselines import OWN_SCORES
from facerts.evaluation.measure import Evaluation, Measure, Plot, Series
from facerts.evaluation.method_runs import MethodRuns, quality_of
from facerts.evaluation.rejection import FMR, MOST_LEFT_OUT, REPLICATES, references, reject_measures
from facerts.evaluation.result_folder import Arrays
from facerts.evaluation.saved_result import SavedResult
from facerts.evaluation.wording import rate
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.error_versus_reject import ORACLE, RATES, ErrorVersusReject, error_versus_reject
from facerts.metrics.verification import too_few


def on_one_embedding(
    methods: Sequence[MethodRuns], embedder: MethodRuns, notes: list[str]
) -> tuple[list[Evaluation], Arrays]:
    """A section for each benchmark of the chosen method that has pairs, and the arrays of their curves.

    Qualities are those of ``methods``; the embedding is that of the first run of ``embedder``.
    """
    first = embedder.runs[0]
    sections: list[Evaluation] = []
    arrays: Arrays = {}
    for name, section in first.of_kind("verification").items():
        prefix = f"verification/{name}/"
        if prefix + "scores" not in first.arrays or section.settings.get("similarity") != "cosine":
            continue
        scores, same, rows = (first.array(prefix + key) for key in ("scores", "same", "pairs"))
        pairs = compare_listed(scores, same, rows, first.arrays.get(prefix + "subjects"))
        rejected = first.of_kind("reject").get(name)
        chosen = FMR if rejected is None else rejected.settings.get("fmr")
        fmr = chosen if isinstance(chosen, float) else FMR
        if reason := too_few(fmr, pairs.impostors):
            notes.append(f"{name}: {reason}, so no qualities are compared on one embedding.")
            continue
        scored = {method.label: _scores(method, first, name, notes) for method in methods}
        qualities = {
            _key(run, score): quality_of(run, first, name, score)
            for method in methods
            for run in method.runs
            for score in scored[method.label]
        }
        table = error_versus_reject(pairs, qualities, [fmr], replicates=REPLICATES)[fmr]
        plot, drawn = _plot(methods, scored, table, name, fmr, first.label)
        sections.append(_section(methods, scored, table, pairs, name, fmr, first.label))
        sections[-1].plots = [plot]
        arrays |= drawn
    return sections, arrays


def _section(
    methods: Sequence[MethodRuns],
    scored: Mapping[str, Sequence[str]],
    table: ErrorVersusReject,
    pairs: ComparedPairs,
    name: str,
    fmr: float,
    embedder: str,
) -> Evaluation:
    measures: list[Measure] = []
    several = any(len(method.runs) > 1 for method in methods)
    for method in methods:
        row = {"method": method.label} | ({"runs": str(len(method.runs))} if several else {})
        for score in scored[method.label]:
            measures += _means(method, table, row | {"score": score}, score)
    best = table.by[ORACLE].pauc[0.2].value
    return Evaluation(
        title=f"Error versus reject on one embedding: {name}",
        interval=f"bootstrap over {pairs.unit}",
        text=f"FNMR at FMR {rate(fmr)} while a share of the genuine pairs, those of lowest quality, is left out. The "
        f"similarities of all {len(pairs.genuine):,} genuine and {pairs.impostors:,} impostor pairs of {name} are "
        f"those of {embedder}, and so is the threshold; the rows differ by the quality alone. Lower is better; the "
        f"best there can be is {100 * best:.2f}% in pAUC to 20%, and a quality that says nothing stays at the number "
        f"at 0%. Intervals: bootstrap over {pairs.unit}.",
        measures=measures,
    )


def _means(method: MethodRuns, table: ErrorVersusReject, row: dict[str, str], score: str) -> Iterator[Measure]:
    """The numbers of a method's curves, the mean over its runs."""
    numbers = {run.folder: reject_measures(table, _key(run, score)) for run in method.runs}
    for place, one in enumerate(numbers[method.runs[0].folder]):
        mean = method.mean(lambda run, place=place: numbers[run.folder][place])  # type: ignore[misc]
        if mean is not None and not one.name.startswith("best"):
            yield mean.model_copy(update={"of": row})


def _plot(
    methods: Sequence[MethodRuns],
    scored: Mapping[str, Sequence[str]],
    table: ErrorVersusReject,
    name: str,
    fmr: float,
    embedder: str,
) -> tuple[Plot, Arrays]:
    """A panel for each score: of several runs the mean, and the band from the lowest to the highest."""
    arrays: Arrays = {
        f"{name}/left out": np.array(RATES),
        f"{name}/{ORACLE}": table.by[ORACLE].fnmr,
        f"{name}/random": np.full(len(RATES), table.by[ORACLE].fnmr[0]),
    }
    x = [f"{name}/left out"]
    panels: dict[str, list[Series]] = {}
    for method in methods:
        for score in scored[method.label]:
            curves = np.array([table.by[_key(run, score)].fnmr for run in method.runs])
            key = f"{name}/{method.label}/{score}"
            arrays[key] = curves.mean(axis=0)
            series = Series(label=method.label, x=x, y=key)
            if len(curves) > 1:
                arrays |= {f"{key}/low": curves.min(axis=0), f"{key}/high": curves.max(axis=0)}
                series.low, series.high = f"{key}/low", f"{key}/high"
            panels.setdefault(score, []).append(series)
    for series_of_panel in panels.values():
        series_of_panel += references(x, f"{name}/{ORACLE}", f"{name}/random")
    several = any(len(method.runs) > 1 for method in methods)
    caption = (
        f"FNMR on {name} while the genuine pairs of lowest {' or '.join(panels)} are left out; similarities and "
        f"threshold of {embedder}."
        + " Of several runs: their mean, and the band from the lowest to the highest."
        * several
    )
    plot = Plot(
        name=f"reject_{name}",
        caption=caption,
        x="genuine pairs left out",
        y=f"FNMR at FMR {rate(fmr)}, {name}",
        panels=panels or {"": []},
        percent="xy",
        x_limits=(0.0, MOST_LEFT_OUT),
    )
    return plot, arrays


def _key(run: SavedResult, score: str) -> str:
    return f"{score} of {run.folder}"


def _scores(method: MethodRuns, first: SavedResult, name: str, notes: list[str]) -> list[str]:
    """The method's scores of the same images; none, with a note, where its images are others."""
    prefix = f"verification/{name}/"
    expected = first.of_kind("verification")[name].data_sha256
    sections = [section for run in method.runs if (section := run.of_kind("verification").get(name))]
    if len(sections) < len(method.runs):
        return []
    if any(section.data_sha256 != expected for section in sections):
        notes.append(
            f"{name}: {method.label} was measured on other images than {first.place}, so its quality is not used on "
            "that embedding."
        )
        return []
    scores = [score for score in OWN_SCORES if all(prefix + score in run.arrays for run in method.runs)]
    repeated = len(scores) == 2 and all(
        np.array_equal(run.arrays[prefix + scores[0]], run.arrays[prefix + scores[1]]) for run in method.runs
    )
    return scores[:1] if repeated else scores
