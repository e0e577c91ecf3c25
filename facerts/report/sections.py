"""What each section of the page shows; the template only lays it out."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from facerts.evaluation.results.corruptions import CorruptedScore, CorruptionResult
from facerts.evaluation.results.identification import GallerySearch, IdentificationResult
from facerts.evaluation.results.ood import OodResult
from facerts.evaluation.results.reject import RejectResult
from facerts.evaluation.results.verification import AccuracyResult, PairNumbers, VerificationResult
from facerts.io.shown import shown_argument
from facerts.metrics.intervals import Interval
from facerts.report import figures
from facerts.report.crops import Shown, ShownPair, best_and_worst, worst_pairs
from facerts.report.subject import Subject, by_name

REJECTED = (0.0, 0.05, 0.1, 0.2)
CURVES = {
    "cross_entropy": "cross-entropy",
    "kl": "KL divergence (Eq. 6)",
    "lr": "learning rate",
}

# Crops under headings, and wrong decisions under theirs.
Faces = Mapping[str, Sequence[Shown]]
WrongPairs = Mapping[str, Sequence[ShownPair]]


class SummaryCell(NamedTuple):
    """A number that people look for first."""

    heading: str
    value: float
    interval: Interval | None


class Summary(NamedTuple):
    """One column for each model; ``rows`` hold a cell for each of ``columns``, or None."""

    columns: list[str]
    rows: list[tuple[Subject, list[SummaryCell | None]]]


class VerificationRow(NamedTuple):
    """Numbers of one model on a benchmark's pairs, or on all pairs."""

    label: str
    accuracy: AccuracyResult | None
    numbers: PairNumbers


class VerificationPart(NamedTuple):
    """A benchmark; figures are SVG, by model's label where there is one for each."""

    name: str
    rows: list[VerificationRow]
    fars: list[str]
    first: VerificationResult
    curves: list[str]
    histograms: list[tuple[str, str]]
    errors: list[tuple[str, WrongPairs]]
    faces: list[tuple[str, Faces]]


class RejectRow(NamedTuple):
    """A curve, and its FNMR at ``REJECTED``."""

    label: str
    curve: RejectResult
    fnmr: list[float]


class RejectPart(NamedTuple):
    """A benchmark; ``curves`` are captions and figures, the others figures."""

    name: str
    rows: list[RejectRow]
    first: RejectResult
    curves: list[tuple[str, str]]
    per_rate: str
    reliability: str | None


class OodPart(NamedTuple):
    """A model."""

    subject: Subject
    section: OodResult
    figures: list[str]
    faces: list[tuple[str, Faces]]


class CorruptionRow(NamedTuple):
    """What becomes of one model's score under one kind of corruption."""

    label: str
    kind: str
    score: str
    steps: CorruptedScore


class CorruptionPart(NamedTuple):
    """A source of faces; ``grids`` are figures by score."""

    name: str
    first: CorruptionResult
    rows: list[CorruptionRow]
    grids: list[tuple[str, str]]


class IdentificationPart(NamedTuple):
    """A benchmark; ``rows`` are models' labels and searches."""

    name: str
    rows: list[tuple[str, GallerySearch]]
    ranks: list[str]
    fpirs: list[str]
    first: IdentificationResult


class Provenance(NamedTuple):
    """How a model's numbers were made: commands, and hashes of the data by section."""

    subject: Subject
    commands: list[str]
    data: dict[str, str]


def summary(subjects: Sequence[Subject]) -> Summary | None:
    """The few numbers that people look for first."""
    having = [subject for subject in subjects if subject.result is not None]
    found = [{cell.heading: cell for cell in _headline(subject)} for subject in having]
    columns = list(dict.fromkeys(heading for cells in found for heading in cells))
    if not columns:
        return None
    return Summary(
        columns,
        [
            (subject, [cells.get(heading) for heading in columns])
            for subject, cells in zip(having, found, strict=True)
        ],
    )


def _headline(subject: Subject) -> Iterator[SummaryCell]:
    sections = subject.sections
    for name, benchmark in sections.verification.items():
        if benchmark.accuracy is not None:
            yield SummaryCell(f"{name}: accuracy", benchmark.accuracy.value, benchmark.accuracy.ci95)
        measured, what = (benchmark.all_pairs, "all pairs") if benchmark.all_pairs else (benchmark, "pairs")
        far = "0.001" if "0.001" in measured.tar_at_far else next(iter(measured.tar_at_far), None)
        if far is not None:
            point = measured.tar_at_far[far]
            yield SummaryCell(f"{name}, {what}: TAR at FAR {far}", point.value, point.ci95)
    for name, identified in sections.identification.items():
        rank, rate = next(iter(identified.searches[0].rank.items()))
        yield SummaryCell(f"{name}: rank {rank}", rate.value, rate.ci95)
    for name, curves in sections.reject.items():
        fixed = [curve for curve in curves if curve.convention == "fixed"]
        # The first of all pairs where these were measured: that of the model's own quality.
        for curve in [curve for curve in fixed if curve.pairs == fixed[-1].pairs][:1]:
            interval = None if curve.ci95 is None else curve.ci95["0.2"]
            yield SummaryCell(f"{name}: mean FNMR to 20 % rejected", curve.area["0.2"], interval)
    if sections.ood is not None:
        score, numbers = next(iter(sections.ood.by.items()))
        yield SummaryCell(f"others, by {score}: AUROC", numbers.auroc, numbers.ci95["auroc"])
        yield SummaryCell(
            f"others, by {score}: TNR at TPR 95", numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"]
        )


def verification(subjects: Sequence[Subject]) -> list[VerificationPart]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.verification).items():
        rows = []
        for subject, section in having:
            rows.append(VerificationRow(subject.label, section.accuracy, section))
            if section.all_pairs is not None:
                rows.append(VerificationRow(f"{subject.label}, all pairs", None, section.all_pairs))
        listed = [one for one, _ in having if f"verification/{name}/scores" in one.arrays]
        drawn = [one for one, _ in having if f"verification/{name}/roc_far" in one.arrays]
        parts.append(
            VerificationPart(
                name=name,
                rows=rows,
                fars=sorted({far for row in rows for far in row.numbers.tar_at_far}, key=float, reverse=True),
                first=having[0][1],
                curves=[figures.roc_curves(drawn, name), figures.det_curves(drawn, name)] if drawn else [],
                histograms=[(one.label, figures.pair_histograms(one, name)) for one in listed],
                errors=[(one.label, worst_pairs(one, name)) for one in listed],
                faces=[
                    (one.label, found)
                    for one in listed
                    for score in figures.OWN_SCORES
                    if (found := best_and_worst(one, f"verification/{name}/", score))
                ],
            )
        )
    return parts


def reject(subjects: Sequence[Subject]) -> list[RejectPart]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.reject).items():
        rows = [
            RejectRow(
                f"{subject.label}, {curve.by}",
                curve,
                [curve.fnmr[curve.index_at(share)] for share in REJECTED],
            )
            for subject, curves in having
            for curve in curves
        ]
        if not rows:
            continue
        every = [subject for subject, curves in having if any(curve.pairs == "all" for curve in curves)]
        measured = [subject for subject, curves in having if curves]
        calibrated = [subject for subject in measured if name in subject.sections.calibration]
        drawn = [
            (
                "The benchmark's pairs; threshold fixed, chosen once on all impostor pairs.",
                figures.reject_curves(measured, name, "fixed"),
            )
        ]
        if every:
            drawn.append(
                (
                    "Every pair of its images; threshold fixed.",
                    figures.reject_curves(every, name, "fixed", "all"),
                )
            )
        parts.append(
            RejectPart(
                name=name,
                rows=rows,
                first=rows[0].curve,
                curves=drawn,
                per_rate=figures.reject_curves(measured, name, "per_rate"),
                reliability=figures.reliability(calibrated, name) if calibrated else None,
            )
        )
    return parts


def ood(subjects: Sequence[Subject]) -> list[OodPart]:
    """A part for each model."""
    parts = []
    for subject in subjects:
        section = subject.sections.ood
        if section is None:
            continue
        score = next(iter(section.by))
        parts.append(
            OodPart(
                subject=subject,
                section=section,
                figures=[figures.score_histograms(subject, name) for name in section.by],
                faces=[
                    (source, found)
                    for source in (*section.faces, *section.others)
                    if (found := best_and_worst(subject, f"ood/{source}/", score))
                ],
            )
        )
    return parts


def corruptions(subjects: Sequence[Subject]) -> list[CorruptionPart]:
    """A part for each source of faces: the model's scores, and the similarity to the clean image."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.corruptions).items():
        rows = [
            CorruptionRow(subject.label, kind, score, steps)
            for subject, section in having
            for kind, of_kind in section.kinds.items()
            for score, steps in of_kind.by.items()
        ]
        first = having[0][1]
        scores = list(next(iter(first.kinds.values())).by)
        measured = [subject for subject, _ in having]
        grids = [(score, figures.corruption_grid(measured, name, score)) for score in ("cosine", *scores)]
        parts.append(CorruptionPart(name, first, rows, grids))
    return parts


def identification(subjects: Sequence[Subject]) -> list[IdentificationPart]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.identification).items():
        rows = [(subject.label, search) for subject, section in having for search in section.searches]
        parts.append(
            IdentificationPart(
                name=name,
                rows=rows,
                ranks=list(dict.fromkeys(rank for _, search in rows for rank in search.rank)),
                fpirs=list(dict.fromkeys(fpir for _, search in rows for fpir in search.fnir_at_fpir)),
                first=having[0][1],
            )
        )
    return parts


def training(subjects: Sequence[Subject]) -> list[tuple[str, str]]:
    """Headings and figures of the runs' curves."""
    logged = [subject for subject in subjects if subject.log]
    drawn = []
    for field, label in CURVES.items():
        having = [subject for subject in logged if subject.series("train", field)[0]]
        if having:
            drawn.append((label, figures.training_curves(having, "train", field, label)))
    having = [subject for subject in logged if subject.series("train", "v_p50")[0]]
    if having:
        label = "uncertainty v of the training faces"
        drawn.append((label, figures.percentile_band(having, "v", label)))
    for field, label in (("accuracy", "verification accuracy"), ("auroc", "verification AUROC")):
        having = [subject for subject in logged if subject.series("validation", field)[0]]
        if having:
            drawn.append((label, figures.training_curves(having, "validation", field, label)))
    return drawn


def provenance(subjects: Sequence[Subject]) -> list[Provenance]:
    """Of each model: commands, versions, and the hashes of model and data."""
    parts = []
    for subject in subjects:
        if subject.result is None:
            continue
        # Earlier results have paths as they were given.
        commands = [
            shlex.join(["facerts", *map(shown_argument, command[1:])]) for command in subject.result.command
        ]
        parts.append(Provenance(subject, commands, dict(_hashes(subject))))
    return parts


def _hashes(subject: Subject) -> Iterator[tuple[str, str]]:
    sections = subject.sections
    for kind, of_kind in (
        ("verification", sections.verification),
        ("identification", sections.identification),
        ("corruptions", sections.corruptions),
    ):
        for name, section in of_kind.items():
            if section.data_sha256 is not None:
                yield f"{kind} {name}", section.data_sha256
    if sections.ood is not None:
        for name, sha256 in sections.ood.data_sha256.items():
            yield f"ood {name}", sha256
