"""The league: qualities judged on recognizers, on sets of faces, written to a result folder.

Genuine pairs are rejected by the lower quality of their two images, at a threshold that stays. An area is the mean FNMR
while up to 20% or 30% of them are rejected, divided by the FNMR without rejection.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from facerts.datasets import Source
from facerts.embedding import EmbeddingTable
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error, ModelError, did_you_mean
from facerts.evaluation.evaluation_options import DEFAULT_OPTIONS, EvaluationOptions
from facerts.evaluation.face_sets import FaceSet
from facerts.evaluation.group_differences import MatchedPairs, groups_of
from facerts.evaluation.image_groups import Groups
from facerts.evaluation.lineup import NORM, ORACLE, RANDOM, Lineup
from facerts.evaluation.measure import Evaluation, Format, Measure, Plot, Series
from facerts.evaluation.quality_costs import MS, Costs, measure_costs
from facerts.evaluation.rejection import references
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.scored import ScoredImages, score_images, separations
from facerts.evaluation.similarity import check_fmrs, compare_images
from facerts.evaluation.wording import counts, joined, percent, rate
from facerts.io.progress import track
from facerts.metrics.all_pairs import AllPairs, compare_all
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.error_versus_reject import RATES, ErrorVersusReject, error_versus_reject
from facerts.metrics.intervals import Estimate, mean_estimate
from facerts.metrics.rank_consistency import rank_consistency
from facerts.metrics.separation import keep_threshold
from facerts.metrics.verification import pair_cosine, reachable, too_few

FMRS = (1e-3, 1e-2)
# Areas are to these shares; the second is that of tables, ranks and sentences.
ENDS, END = (0.2, 0.3), 0.3
REPLICATES, SEED = 300, 0
AREAS, RECOGNIZERS = "Areas by recognizer", "Recognizers"
AGREEMENT = "Do recognizers agree on the order of the qualities?"


@dataclass(frozen=True)
class FiqaOptions:
    """How qualities are judged, as the command's options say.

    Attributes:
        fmr: false match rate of the thresholds; None for 0.001, or the nearest that there are enough pairs for.
        against: label of the quality that the others are compared with; None for the first.
        degraded: also measure each set with half of its images degraded at random.
        groups: groups of images whose acceptance and errors are compared; None for no groups.
        keep: share of faces that each quality's threshold keeps, for groups.
        keep_on: faces that determine these thresholds; None for the images that are in the groups.
        cost: measure the time per image.
    """

    fmr: float | None = None
    against: str | None = None
    degraded: bool = False
    groups: Groups | None = None
    keep: float = 0.95
    keep_on: Source | None = None
    cost: bool = True
    replicates: int = REPLICATES
    seed: int = SEED


@dataclass
class _Judged:
    """What is known of the qualities on one set of faces.

    Attributes:
        tables: error versus reject by recognizer; empty without pairs.
        separations: AUROC and TNR from non-faces, by quality.
    """

    lineup: Lineup
    faces: FaceSet
    scored: ScoredImages
    costs: Costs
    against: str
    fmr: float = 0.0
    pairs: Mapping[str, ComparedPairs] = field(default_factory=dict)
    tables: Mapping[str, ErrorVersusReject] = field(default_factory=dict)
    separations: Mapping[str, Sequence[Measure]] = field(default_factory=dict)

    @property
    def own(self) -> list[str]:
        """Names of the recognizers' own qualities."""
        return list(dict.fromkeys(name for qualities in self.scored.own.values() for name in qualities))

    def means(self, end: float) -> dict[str, Estimate]:
        """Areas by quality, the mean over the recognizers, of the qualities that all of them have."""
        first, *others = (table.by for table in self.tables.values()) if self.tables else ({},)
        shared = [label for label in first if all(label in by for by in others)]
        return {label: mean_estimate([by[label].area[end] for by in (first, *others)]) for label in shared}

    def ranked(self) -> list[str]:
        """Qualities from the lowest mean area to the highest, then those without, then the bound."""
        means = self.means(END)

        def place(label: str) -> float:
            value = means[label].value if label in means else math.nan
            return value if math.isfinite(value) else math.inf

        judged = [label for label in (*self.lineup.qualities, *self.own) if label in (*self.scored.shared, *self.own)]
        return sorted(judged, key=place) + [ORACLE] * bool(self.tables)

    def title(self, label: str) -> str:
        """A quality as tables name it."""
        return {ORACLE: f"{ORACLE} (best possible)"}.get(label, f"{label} (its own)" if label in self.own else label)


def run_fiqa(
    lineup: Lineup,
    data: Sequence[FaceSet],
    out: str | Path,
    fiqa: FiqaOptions,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    others: Mapping[str, Source] | None = None,
    excluded: str | None = None,
) -> Result:
    """Judge every quality on every recognizer and every set of faces, and return the folder's result.

    Sets without pairs are only separated from non-faces, without the recognizers.
    """
    against = _check(lineup, data, fiqa, others or {})
    rates = {
        one.name: _fmr(one, fiqa.fmr)
        for faces in data
        for one in (faces, faces.original)
        if one is not None and one.has_pairs
    }
    folder = ResultFolder(out, lineup)
    costs = measure_costs(lineup, data[0].images, options.batch_size) if fiqa.cost else {}
    any_pairs = any(faces.has_pairs for faces in data)
    non_faces = {
        name: score_images(lineup, source, options, embed=any_pairs) for name, source in (others or {}).items()
    }
    sizes = {name: len(source) for name, source in (others or {}).items()}
    thresholds = keep_thresholds(lineup, fiqa, options)
    sets: list[FaceSet] = []
    for faces in data:
        sets.append(faces)
        if fiqa.degraded and faces.has_pairs and faces.original is None:
            sets.append(faces.degraded(fiqa.seed))
    pairs: dict[str, Mapping[str, ComparedPairs]] = {}
    for faces in sets:
        judged = _Judged(lineup, faces, _score(lineup, faces, options), costs, against)
        if faces.has_pairs and lineup.recognizers:
            original = faces.original
            if original is not None and original.name not in pairs:
                pairs[original.name] = _compare(original, _score(lineup, original, options))
            judged.pairs = pairs[faces.name] = _compare(faces, judged.scored)
            judged.fmr = rates[original.name if original is not None else faces.name]
            judged.tables = {
                label: error_versus_reject(
                    of_recognizer,
                    judged.scored.qualities(label),
                    [judged.fmr],
                    replicates=fiqa.replicates,
                    seed=fiqa.seed,
                    thresholds_on=None if original is None else pairs[original.name][label],
                )[judged.fmr]
                for label, of_recognizer in track(list(judged.pairs.items()), "rejecting pairs", unit="recognizers")
            }
        if faces.original is None and others:
            judged.separations = separations(judged.scored, list(non_faces.values()))
        section, arrays = _section(judged, sizes)
        if judged.separations and excluded is not None:
            section.excluded = {"non-faces": excluded}
        folder.add("fiqa", faces.name, section, arrays)
        if faces.original is None and fiqa.groups is not None:
            for attribute, of_groups in measure_groups(judged, fiqa.groups, thresholds, fiqa).items():
                folder.add("groups", f"{faces.name}, {attribute}", *of_groups)
        folder.write()
    return folder.content


def _score(lineup: Lineup, faces: FaceSet, options: EvaluationOptions) -> ScoredImages:
    hashed = replace(faces.hashes, first=faces.first)
    return score_images(lineup, faces.images, options, hashed, rows=faces.rows, embed=faces.has_pairs)


def _section(judged: _Judged, non_faces: Mapping[str, int]) -> tuple[Evaluation, Arrays]:
    faces, recognizers = judged.faces, judged.lineup.recognizers
    computed_here = any(not isinstance(one.embedder, EmbeddingTable) for one in recognizers.values())
    plots, arrays = _plots(judged, non_faces)
    section = Evaluation(
        title="Quality league: whose errors does a quality predict?",
        images=len(faces.rows),
        interval="bootstrap over images",
        notes=[*faces.notes, *(alignment_notes(faces.images) if computed_here else [])],
        settings={"against": judged.against},
        data_sha256={faces.name: faces.hashes.sha256}
        | {label: one.embedder.sha256 for label, one in recognizers.items()},
        measures=[*_league(judged), *_details(judged)],
        folded=[AREAS, RECOGNIZERS, AGREEMENT],
        plots=plots,
    )
    if judged.pairs:
        first = next(iter(judged.pairs.values()))
        section.interval = f"bootstrap over {'people' if first.unit == 'subjects' else 'pairs'}"
        section.findings = list(_findings(judged))
    section.text = " ".join(_explanation(judged, section.interval or "", non_faces))
    return section, arrays


def _league(judged: _Judged) -> Iterator[Measure]:
    """A row for each quality: areas, separation from non-faces and cost."""
    labels = list(judged.tables)
    means = judged.means(END)
    table = f"Area to 30% rejected at FMR {rate(judged.fmr)}" if judged.tables else "Faces against non-faces"
    for label in judged.ranked():
        row: list[Measure] = []
        if label in means:
            row.append(_area("mean area" if len(labels) > 1 else "area", means[label], headline=label != ORACLE))
            if judged.against in means and label != judged.against:
                difference = means[label].minus(means[judged.against])
                one = _area(f"minus {judged.against}", difference, "+.3f")
                if label != ORACLE and one.ci95 is not None and not one.ci95[0] <= 0 <= one.ci95[1]:
                    one.mark = "clear"
                row.append(one)
        if len(labels) > 1:
            by = {name: table.by[label].area[END] for name, table in judged.tables.items() if label in table.by}
            row += [_area(f"on {name}", area) for name, area in by.items()]
        row += judged.separations.get(label, ())
        cost = _cost(judged, label)
        row += [] if cost is None else [cost]
        of = {"quality": judged.title(label)}
        yield from (one.model_copy(update={"of": of, "table": table}) for one in row)
    if judged.tables:
        names = ["mean area", *(f"on {name}" for name in labels)] if len(labels) > 1 else ["area"]
        of = {"quality": RANDOM}
        yield from (Measure(name=name, of=of, table=table, value=1.0, format=".3f") for name in names)


def _area(name: str, area: Estimate, form: Format = ".3f", *, headline: bool = False) -> Measure:
    value = area.value if math.isfinite(area.value) else None
    return Measure(name=name, value=value, ci95=area.interval(), better="lower", format=form, headline=headline)


def _cost(judged: _Judged, label: str) -> Measure | None:
    """Of recognizers' own qualities, the range over the recognizers."""
    found = judged.costs.get(("quality", label))
    if found is not None:
        return found
    own = [judged.costs.get(("own", name, label)) for name in judged.lineup.recognizers]
    medians = [cost.value for cost in own if cost is not None and cost.value is not None]
    if not medians:
        return None
    if len(medians) == 1:
        return Measure(name=MS, value=medians[0], format=".2g")
    return Measure(name=MS, value=None, range=(min(medians), max(medians)), better="lower", format=".2g")


def _details(judged: _Judged) -> Iterator[Measure]:
    """Areas to both ends; recognizers; their agreement."""
    for name, table in judged.tables.items():
        for label in judged.ranked():
            if label in table.by:
                of = {"recognizer": name, "quality": judged.title(label)}
                for end in ENDS:
                    area = _area(f"to {rate(end)}", table.by[label].area[end])
                    yield area.model_copy(update={"of": of, "table": AREAS})
    for name, table in judged.tables.items():
        of = {"recognizer": name}
        ends = table.fnmr.interval()
        missed = f"FNMR at FMR {rate(judged.fmr)}"
        yield Measure(name=missed, of=of, table=RECOGNIZERS, value=table.fnmr.value, ci95=ends, better="lower")
        yield Measure(name="threshold", of=of, table=RECOGNIZERS, value=table.threshold, format=".4f")
        accepted = float(table.accepted)
        yield Measure(name="impostor pairs accepted", of=of, table=RECOGNIZERS, value=accepted, format="count")
        cost = judged.costs.get(("recognizer", name))
        if cost is not None:
            yield cost.model_copy(update={"of": of, "table": RECOGNIZERS})
    areas = {
        name: {label: curve.area[END] for label, curve in table.by.items() if label != ORACLE}
        for name, table in judged.tables.items()
    }
    taus, mean = rank_consistency(areas)
    if math.isfinite(mean.value):
        found = {"mean": mean} | {" / ".join(pair): Estimate(tau, np.empty(0)) for pair, tau in taus.items()}
        for pair, tau in found.items():
            of = {"recognizers": pair}
            value = tau.value if math.isfinite(tau.value) else None
            yield Measure(name="Kendall's τ", of=of, table=AGREEMENT, value=value, ci95=tau.interval(), format=".2f")


def _findings(judged: _Judged) -> Iterator[str]:
    """Which qualities predict errors better or worse than the reference."""
    means = judged.means(END)
    if judged.against not in means or not math.isfinite(area := means[judged.against].value):
        return
    number = len(judged.tables)
    where = f"At FMR {rate(judged.fmr)}{f', on average over {number} recognizers' if number > 1 else ''}"
    yield (
        f"{where}, rejecting up to 30% of the genuine pairs by {judged.against} leaves {percent(area, 1)} of the "
        "misses that random rejection would leave."
    )
    said: dict[str, list[str]] = {"leave fewer": [], "show no clear difference from it": [], "leave more": []}
    for label in judged.ranked():
        if label in (judged.against, ORACLE) or label not in means:
            continue
        ends = means[label].minus(means[judged.against]).interval()
        if ends is not None:
            better, unclear, worse = said.values()
            (better if ends[1] < 0 else worse if ends[0] > 0 else unclear).append(label)
    for text, labels in said.items():
        if labels:
            verb = text if len(labels) > 1 else text.replace("leave", "leaves").replace("show", "shows")
            yield f"{joined(labels)} {verb}."


def _explanation(judged: _Judged, interval: str, non_faces: Mapping[str, int]) -> Iterator[str]:
    faces = judged.faces
    people = None if faces.people is None else len(np.unique(faces.people[faces.rows]))
    yield f"{len(faces.rows):,} images{f' of {people:,} people' if people else ''}."
    if judged.pairs:
        first = next(iter(judged.pairs.values()))
        pairs = "all pairs" if isinstance(first, AllPairs) else "the listed pairs"
        where = f" of {faces.original.name}" if faces.original is not None else ""
        yield (
            f"{len(first.genuine):,} genuine and {first.impostors:,} impostor pairs ({pairs}). Area: mean FNMR while "
            "0 to 30% of the genuine pairs of lowest quality (that of their worse image) are rejected, divided by "
            "FNMR without rejection; 1 for a random order, lower is better. Each recognizer has its own threshold, on "
            f"the impostor pairs{where}. In brackets: 95% intervals, {interval}. Differences from {judged.against} "
            "are paired; bold where the interval leaves out 0."
        )
    if judged.separations:
        yield (
            f"Non-faces: {counts(non_faces)}. TNR at TPR 95%: share of them below the threshold that keeps 95% of "
            "these faces; of a recognizer's own quality the range over the recognizers."
        )
    if judged.costs:
        yield "ms per image: median time of the quality alone, on the machine that measured; a norm comes for nothing."


def _plots(judged: _Judged, non_faces: Mapping[str, int]) -> tuple[list[Plot], Arrays]:
    """The curves, and both uses of the qualities, where they were measured."""
    if not judged.tables:
        return [], {}
    arrays: Arrays = {"left out": np.array(RATES)}
    panels: dict[str, list[Series]] = {}
    # Not by rank, so that a quality has one color on all sets of faces.
    order = (*judged.lineup.qualities, *judged.own, ORACLE)
    for name, table in judged.tables.items():
        panels[name] = []
        for label in order:
            if label in table.by:
                key = f"{name}/{label}/fnmr"
                arrays[key] = table.by[label].fnmr.astype(np.float32)
                if label != ORACLE:
                    panels[name].append(Series(label=label, x=["left out"], y=key))
        arrays[f"{name}/random"] = np.full(len(RATES), table.fnmr.value)
        panels[name] += references(["left out"], f"{name}/{ORACLE}/fnmr", f"{name}/random")
    curves = Plot(
        name="league",
        caption=f"FNMR at FMR {rate(judged.fmr)} while the genuine pairs of lowest quality are rejected, for each "
        "recognizer. The lower, the better.",
        x="genuine pairs rejected",
        y=f"FNMR at FMR {rate(judged.fmr)}",
        panels=panels,
        percent="xy",
        x_limits=(0.0, END),
        together=False,
    )
    points, means = [], judged.means(END)
    for label in order:
        tnr = [one.value for one in judged.separations.get(label, ()) if one.name.startswith("TNR")]
        if label in means and tnr and tnr[0] is not None and math.isfinite(means[label].value):
            key = f"uses/{label}"
            arrays |= {f"{key}/x": np.array(tnr, dtype=float), f"{key}/y": np.array([means[label].value])}
            points.append(Series(label=label, x=[f"{key}/x"], y=f"{key}/y", mark="name"))
    if not points:
        return [curves], arrays
    others = ", ".join(non_faces)
    uses = Plot(
        name="uses",
        caption=f"Both uses of a quality: rejecting non-faces ({others}), to the right is better, and predicting "
        "recognizers' errors, lower is better.",
        x=f"{others} rejected while 95% of the faces are kept",
        y="mean area (lower is better)",
        panels={"": points},
        percent="x",
        together=False,
    )
    return [curves, uses], arrays


def _compare(faces: FaceSet, scored: ScoredImages) -> dict[str, ComparedPairs]:
    """The pairs of a set, compared by each recognizer."""
    return {label: _compared(faces, outputs) for label, outputs in scored.outputs.items()}


def _compared(faces: FaceSet, outputs: FaceOutputs) -> ComparedPairs:
    """The pairs of a set, compared by a recognizer."""
    if faces.listed is not None:
        # Rows of the images that are kept; a repeated image is the first one of its kind.
        place = np.empty(len(faces.images), dtype=np.int64)
        place[faces.rows] = np.arange(len(faces.rows))
        pairs = place[faces.hashes.first[faces.listed.pairs]]
        people = None if faces.listed_people is None or faces.people is None else faces.people[faces.rows]
        scores = pair_cosine(outputs.embedding, pairs)
        return compare_listed(scores, faces.listed.same, pairs, people)
    assert faces.people is not None
    return compare_images(faces.name, outputs.embedding, faces.people[faces.rows], compare_all)


def _fmr(faces: FaceSet, wanted: float | None) -> float:
    """The false match rate to measure at."""
    if wanted is not None:
        check_fmrs([wanted], faces.impostors, faces.name)
        return wanted
    rates = reachable(FMRS, faces.impostors)
    if not rates:
        raise Error(f"{faces.name}: {too_few(max(FMRS), faces.impostors)}; give a higher --fmr")
    return rates[0]


def _check(lineup: Lineup, data: Sequence[FaceSet], fiqa: FiqaOptions, others: Mapping[str, Source]) -> str:
    """Refuse what could not be measured, before anything is embedded."""
    for faces in data:
        if not others and fiqa.groups is None and not (faces.has_pairs and lineup.recognizers):
            missing = "its people are unknown" if lineup.recognizers else "there is no recognizer"
            raise Error(
                f"{faces.name}: nothing can be measured, since {missing}; give images with identities or a benchmark "
                "and recognizers (--model), non-faces (--out-of), or groups (--groups)"
            )
    if fiqa.degraded and not any(faces.has_pairs for faces in data):
        raise Error("--degraded needs a set with pairs")
    own = [name for one in lineup.recognizers.values() for name in one.own]
    known = [*lineup.qualities, *own, *([NORM] if lineup.recognizers else [])]
    if not known:
        raise ModelError("there is no quality to judge; give one with --quality")
    against = fiqa.against or known[0]
    if against not in known:
        raise Error(f"--against {against}: no such quality{did_you_mean(against, known)}")
    return against


def measure_groups(
    judged: _Judged, groups: Groups, thresholds: Mapping[str, float], fiqa: FiqaOptions
) -> dict[str, tuple[Evaluation, Arrays]]:
    """How one threshold of each quality and each recognizer treats the groups, by attribute."""
    faces = judged.faces
    values, notes = groups.of([faces.images.key(int(row)) for row in faces.rows])
    compared = {
        label: MatchedPairs(pairs, judged.tables[label].threshold)
        for label, pairs in judged.pairs.items()
        if isinstance(pairs, AllPairs)
    }
    return groups_of(
        values,
        judged.scored.by_name(),
        people=None if faces.people is None else faces.people[faces.rows],
        keep=fiqa.keep,
        thresholds=thresholds,
        compared=compared,
        notes=notes,
        seed=fiqa.seed,
    )


def keep_thresholds(lineup: Lineup, fiqa: FiqaOptions, options: EvaluationOptions) -> dict[str, float]:
    """Thresholds of the qualities that keep a share of the given faces; none if no faces are given."""
    if fiqa.keep_on is None or fiqa.groups is None:
        return {}
    scored = score_images(lineup, fiqa.keep_on, options)
    return {label: keep_threshold(quality, fiqa.keep) for label, quality in scored.by_name().items()}
