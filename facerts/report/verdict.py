"""What the numbers say, in plain words, and no more than their intervals allow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from facerts.evaluation.compare.method_runs import joined
from facerts.evaluation.results.comparison_result import Comparison, PairedDifference
from facerts.evaluation.results.corruptions_result import CorruptionResult
from facerts.evaluation.results.fiqa_result import FiqaSection
from facerts.evaluation.results.identification_result import IdentificationResult
from facerts.evaluation.results.ood_result import OodResult
from facerts.evaluation.results.reject_result import RejectResult
from facerts.evaluation.results.verification_result import VerificationResult
from facerts.metrics.intervals import Interval
from facerts.report.comparison_tables import negative
from facerts.report.league_tables import BOUND, END, ranked
from facerts.report.sections import headline_curve, headline_fmr
from facerts.report.subject import Subject, by_name
from facerts.report.table import complement, digits_of, measured, percent, points, points_interval, rate

LEFT_OUT = 0.2
# A threshold that fewer impostor pairs decide is named as such.
FEW = 10
SCORES = {"norm": "embedding norm", "det_score": "detector score"}


class Statement(NamedTuple):
    """Sentences on one benchmark."""

    topic: str
    sentences: list[str]


class Verdict(NamedTuple):
    """Findings on one model, or between models."""

    title: str
    findings: list[Statement]


class _Estimate(NamedTuple):
    """A model's number, and what says that two were measured on the same data."""

    label: str
    value: float
    ci95: Interval
    data: object


def verdicts(subjects: Sequence[Subject], compared: Comparison | None = None) -> list[Verdict]:
    """A verdict on each model with results, and one between them.

    The paired differences of a comparison say which model is better; without it only what single intervals allow is
    said.
    """
    each = [Verdict(subject.label, list(_findings(subject))) for subject in subjects]
    between = list(_rankings(subjects) if compared is None else _differences(compared))
    return [verdict for verdict in (*each, Verdict("Between models", between)) if verdict.findings]


def _findings(subject: Subject) -> Iterator[Statement]:
    sections = subject.sections
    for name in dict.fromkeys([*sections.verification, *sections.reject]):
        verified, curve = sections.verification.get(name), headline_curve(sections.reject.get(name, []))
        sentences = [] if verified is None else list(_verification(verified))
        yield Statement(name, sentences + ([] if curve is None else [_reject(curve, verified)]))
    for name, identified in sections.identification.items():
        yield Statement(name, list(_identification(identified)))
    if sections.ood is not None:
        yield Statement("Non-faces", [_ood(sections.ood)])
    for name, corrupted in sections.corruptions.items():
        yield Statement(f"{name}, corrupted", [_corruptions(corrupted)])
    for name, league in sections.fiqa.items():
        if sentences := list(_league(league)):
            yield Statement(name, sentences)


def _verification(section: VerificationResult) -> Iterator[str]:
    accuracy = section.accuracy
    if accuracy is not None:
        pairs = section.genuine + section.impostors
        yield (
            f"It decides {_measured(accuracy.value, accuracy.ci95)} of {pairs:,} pairs correctly"
            f"{_against(accuracy.ci95, max(section.genuine, section.impostors) / pairs)}."
        )
    elif section.ci95 is not None:
        auroc = _measured(section.auroc, section.ci95.auroc)
        yield f"It separates genuine from impostor pairs with AUROC {auroc}{_against(section.ci95.auroc, 0.5)}."
    numbers = section.all_pairs or section
    if (far := headline_fmr(numbers)) is not None:
        point = numbers.tar_at_far[far]
        missed = _measured(1 - point.value, complement(point.ci95))
        few = f" (only {point.impostors_accepted} of them decide the threshold)" * (
            point.impostors_accepted < FEW
        )
        yield (
            f"At {_one_in(float(far))} different-person pairs{few}, it misses {missed} of the same-person pairs."
        )


def _reject(curve: RejectResult, verified: VerificationResult | None) -> str:
    place = curve.index_at(LEFT_OUT)
    before, after = curve.fnmr[0], curve.fnmr[place]
    ends = None if curve.fnmr_ci95 is None else (curve.fnmr_ci95[0][place], curve.fnmr_ci95[1][place])
    known = verified is not None and _is_stated(curve, verified)
    if before == 0:
        return f"At {_one_in(curve.fmr)} it misses no pair, so leaving out pairs of low quality cannot help."
    where = "Leaving" if known else f"At {_one_in(curve.fmr)}, leaving"
    begin = f"{where} out the {percent(curve.rejected[place], 0)} of lowest {_score(curve.by)}"
    random, rest = percent(before, digits_of(ends, 1)), _measured(after, ends)
    # The threshold's uncertainty is in both numbers alike, so the interval may be held against the one at random.
    if ends is None or ends[0] <= before <= ends[1]:
        return f"{begin} leaves it missing {rest}, no clear difference from the {random} of random rejection."
    verb, misses = (
        "lowers" if ends[1] < before else "raises",
        "that" if known else f"its misses from {random}",
    )
    return f"{begin} {verb} {misses} to {rest}, where random rejection would leave {random}."


def _is_stated(curve: RejectResult, section: VerificationResult) -> bool:
    """Whether the sentence on verification gives the FNMR that a curve begins with."""
    numbers = section.all_pairs or section
    far = headline_fmr(numbers)
    return (
        far is not None
        and float(far) == curve.fmr
        and math.isclose(1 - numbers.tar_at_far[far].value, curve.fnmr[0], abs_tol=1e-6)
    )


def _identification(section: IdentificationResult) -> Iterator[str]:
    search = section.searches[0]
    rank, found = next(iter(search.rank.items()))
    yield (
        f"Among {search.gallery_people:,} people it ranks the right one "
        f"{'first' if rank == '1' else f'among the first {rank}'} in {_measured(found.value, found.ci95)} of "
        f"{search.mated:,} searches{_against(found.ci95, int(rank) / max(search.gallery_people, 1))}."
    )
    for fpir, point in list(search.fnir_at_fpir.items())[:1]:
        yield (
            f"Where {rate(fpir)} of the searches for strangers may find somebody, it misses "
            f"{_measured(point.value, point.ci95)} of the enrolled."
        )


def _ood(section: OodResult) -> str:
    score, numbers = next(iter(section.by.items()))
    ends = numbers.ci95["0.95"]
    tnr, images = numbers.tnr_at_tpr["0.95"], f"{sum(section.others.values()):,} non-faces"
    # Without an error there is nothing to resample: the interval would claim more than so many images show.
    rejected = f"all {images}" if tnr == 1 else f"{_measured(tnr, ends)} of {images}"
    return (
        f"By {_score(score)} it rejects {rejected} "
        f"({', '.join(section.others)}) while it keeps 95% of the faces ({', '.join(section.faces)})"
        f"{_against(ends, 0.05)}."
    )


def _corruptions(section: CorruptionResult) -> str:
    changes = sum(len(section.severity) - 1 for _ in section.kinds)
    found = section.rank_correlation.get(section.first)
    if found is None:
        kept = fmean(kind.by[section.first].kept[-1] for kind in section.kinds.values())
        return f"At full severity, its threshold of {_score(section.first)} keeps {percent(kept, 0)} of the faces."
    low, high = found.all.ci95
    held_out = f", {found.held_out.value:.2f} over kinds held out" if found.held_out else ""
    return (
        f"Over {changes} changes of {section.images:,} faces, its {_score(section.first)} follows the cosine with rank "
        f"correlation {found.all.value:.2f} [{low:.2f}, {high:.2f}]{held_out}."
    )


def _league(section: FiqaSection) -> Iterator[str]:
    """Sentences on one set of faces: which qualities predict errors better or worse than the reference."""
    fmr = section.headline_fmr
    if fmr is None:
        return
    means = section.areas_of(fmr).get(None, {})
    reference = means.get(section.against)
    if reference is None or (area := reference.area[END]) is None:
        return
    count = len(section.recognizers)
    where = f"At FMR {rate(fmr)}{f', on average over {count} recognizers' if count > 1 else ''}"
    yield (
        f"{where}, rejecting up to 30% of the genuine pairs by {section.against} leaves {percent(area, 1)} of the "
        "misses that random rejection would leave."
    )
    better: list[str] = []
    unclear: list[str] = []
    worse: list[str] = []
    for label in ranked(section):
        entry = means.get(label)
        if label in (section.against, BOUND) or entry is None or entry.difference_ci95 is None:
            continue
        ends = entry.difference_ci95[END]
        if ends is not None:
            (better if ends[1] < 0 else worse if ends[0] > 0 else unclear).append(label)
    for labels, text in (
        (better, "leave fewer"),
        (unclear, "show no clear difference from it"),
        (worse, "leave more"),
    ):
        if labels:
            verb = text if len(labels) > 1 else text.replace("leave", "leaves").replace("show", "shows")
            yield f"{joined(labels)} {verb}."


def _rankings(subjects: Sequence[Subject]) -> Iterator[Statement]:
    """What single intervals of several models allow to say."""
    for name, having in by_name(subjects, lambda sections: sections.verification).items():
        estimates = [
            _Estimate(subject.label, section.accuracy.value, section.accuracy.ci95, section.data_sha256)
            for subject, section in having
            if section.accuracy is not None
        ]
        yield from _ranking(name, "decides more pairs correctly", estimates)
    estimates = []
    for subject in subjects:
        if (section := subject.sections.ood) is not None:
            numbers = next(iter(section.by.values()))
            data = sorted(section.data_sha256.items()) or None
            estimates.append(_Estimate(subject.label, numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"], data))
    yield from _ranking("Non-faces", "rejects more non-faces while it keeps 95% of the faces", estimates)


def _ranking(topic: str, does: str, estimates: Sequence[_Estimate]) -> Iterator[Statement]:
    if len(estimates) < 2:
        return
    if any(each.data is None or each.data != estimates[0].data for each in estimates):
        yield Statement(
            topic, ["The models were not measured on the same data: their numbers cannot be compared."]
        )
        return
    best, *others = sorted(estimates, key=lambda each: -each.value)
    near = [each.label for each in others if each.ci95[1] >= best.ci95[0]]
    if near:
        yield Statement(
            topic,
            [
                f"These results alone show no clear difference between {joined([best.label, *near])}: their intervals "
                "overlap. facerts compare measures differences on the same pairs and images."
            ],
        )
    else:
        rest = joined([each.label for each in others])
        above = "theirs" if len(others) > 1 else "the other"
        yield Statement(topic, [f"{best.label} {does} than {rest}: its interval lies above {above}."])


def _differences(compared: Comparison) -> Iterator[Statement]:
    reference = compared.reference.label
    for name, rows in compared.verification.items():
        sentences = []
        for row in rows:
            missed = negative(row.tar_at_far)
            sentences += [
                _difference(row.model.label, reference, row.accuracy, "accuracy"),
                _difference(row.model.label, reference, missed, f"FNMR at FMR {rate(row.far)}", lower=True),
            ]
        if sentences:
            yield Statement(name, sentences)
    sentences = [
        _difference(row.model.label, reference, found.tnr_at_tpr, f"TNR at TPR 95% by {_score(score)}")
        for row in compared.ood
        for score, found in list(row.by.items())[:1]
    ]
    if sentences:
        yield Statement("Non-faces", sentences)


def _difference(label: str, reference: str, found: PairedDifference, of: str, *, lower: bool = False) -> str:
    measured = f"{points(found.value)} percentage points {points_interval(found.ci95)}"
    if found.ci95[0] <= 0 <= found.ci95[1]:
        return f"{label} shows no clear difference from {reference} in {of}: {measured}."
    better = (found.value < 0) == lower
    return f"{label} is {'better' if better else 'worse'} than {reference} in {of}: {measured}."


def _measured(value: float, ends: Interval | None) -> str:
    return measured(value, ends, digits_of(ends, 1))


def _against(ends: Interval, chance: float) -> str:
    """Whether an interval lies above what chance would reach; empty where it does."""
    return f", not clearly better than chance ({percent(chance, 1)})" if ends[0] <= chance else ""


def _one_in(fmr: float) -> str:
    """A false match rate in words."""
    return (
        f"one false match in {round(1 / fmr):,}"
        if abs(1 / fmr - round(1 / fmr)) < 1e-6
        else f"FMR {rate(fmr)}"
    )


def _score(name: str) -> str:
    return SCORES.get(name, name.replace("_", " "))
