"""The sections of the page, from results and training logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

from facerts.evaluation.compare.method_runs import joined
from facerts.evaluation.results.reject_result import RejectResult
from facerts.evaluation.results.verification_result import PairNumbers, VerificationResult
from facerts.io.redact import redacted_argument
from facerts.report import figures
from facerts.report.league_section import league
from facerts.report.page_elements import Figure, PagePart, PageSection, Wall, best_and_worst, worst_pairs
from facerts.report.result_tables import (
    corruption_tables,
    fnmr,
    fnmr_left,
    identification_table,
    ood_table,
    reject_table,
    verification_table,
)
from facerts.report.subject import Section, Subject, by_name
from facerts.report.table import Cell, Table, by_number, percent, rate, share

CURVES = {
    "cross_entropy": "cross-entropy",
    "kl": "KL divergence (Eq. 6)",
    "lr": "learning rate",
}
VALIDATED = {"accuracy": "verification accuracy", "auroc": "verification AUROC"}


def summary(subjects: Sequence[Subject]) -> Table | None:
    """The few numbers that people look for first."""
    having = [subject for subject in subjects if subject.result is not None]
    table = by_number([subject.label for subject in having], [dict(_headline(subject)) for subject in having])
    return table if table.rows else None


def headline_fmr(numbers: PairNumbers) -> str | None:
    """The rate of false matches that people look at first: 0.001, or the nearest that was measured."""
    return min(numbers.tar_at_far, key=lambda far: abs(float(far) - 1e-3), default=None)


def headline_curve(curves: Sequence[RejectResult]) -> RejectResult | None:
    """The curve that people look at first: by the model's first score, of all pairs where these were measured."""
    return next((curve for curve in curves if curve.pairs == curves[-1].pairs), None)


def verification(subjects: Sequence[Subject]) -> PageSection:
    """A part for each benchmark."""
    parts = [
        _verified(name, having)
        for name, having in by_name(subjects, lambda sections: sections.verification).items()
    ]
    return PageSection("verification", "Verification", "Verification: the same person or not", parts)


def identification(subjects: Sequence[Subject]) -> PageSection:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.identification).items():
        first = having[0][1]
        text = (
            "Rank k: the person searched for is among the k most similar people. FNIR at FPIR: the share of mated "
            "searches that fail at the threshold that this share of the searches for strangers reaches. In brackets: "
            f"95% intervals, {first.interval}."
        )
        table = identification_table(_labeled(having))
        parts.append(PagePart(name, tables=[table], text=text, notes=first.notes))
    return PageSection("identification", "Identification", "Identification: who is it", parts)


def reject(subjects: Sequence[Subject]) -> PageSection:
    """A part for each benchmark."""
    parts = [
        _rejected(name, [(subject, curves) for subject, curves in having if curves])
        for name, having in by_name(subjects, lambda sections: sections.reject).items()
        if any(curves for _, curves in having)
    ]
    title = "Error versus reject: does quality predict errors?"
    return PageSection("reject", "Error versus reject", title, parts)


def ood(subjects: Sequence[Subject]) -> PageSection:
    """A part for each model."""
    parts = []
    for subject in subjects:
        section = subject.sections.ood
        if section is None:
            continue
        excluded = section.excluded.others if section.excluded else None
        text = (
            f"Faces: {_counts(section.faces)}. Non-faces: {_counts(section.others)}"
            f"{f', without {excluded}' if excluded else ''}. TNR at TPR 95%: the share of the non-faces below the "
            f"threshold that keeps 95% of the faces. In brackets: 95% intervals, {section.interval}."
        )
        walls = [
            Wall(f"{source}: {' and '.join(images)}", images)
            for source in (*section.faces, *section.others)
            if (images := best_and_worst(subject, f"ood/{source}/", next(iter(section.by))))
        ]
        drawn = [
            Figure(
                figures.score_panels([subject], score),
                f"Distribution of {score}: faces as lines, non-faces filled. The less they overlap, the better.",
            )
            for score in section.by
        ]
        parts.append(PagePart(subject.label, [ood_table(section)], drawn, text, section.notes, walls=walls))
    return PageSection("ood", "Non-faces", "Faces against non-faces", parts)


def corruptions(subjects: Sequence[Subject]) -> PageSection:
    """A part for each source of faces: how scores follow cosines, and what becomes of each kind of change."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.corruptions).items():
        first = having[0][1]
        tables = corruption_tables(_labeled(having))
        known = [subject for subject, section in having if section.rank_correlation]
        caption = (
            f"A point for each kind and severity: median cosine against percentile of the median {first.first}. "
            "The closer to one rising line, the better the score says what a change costs."
        )
        points = [Figure(figures.change_points(known, name), caption)] if known else []
        families = dict.fromkeys(kind.family for kind in first.kinds.values())
        panels = [
            Figure(
                figures.change_panels([subject for subject, _ in having], name, family),
                f"{family.capitalize()} changes by severity.",
            )
            for family in families
        ]
        compared = "another image of the person" if first.people else "the unchanged image"
        text = (
            f"{first.images:,} faces, changed with severities from 0 (unchanged) to 1. Cosine: median, to {compared}, "
            f"mean over {', '.join(first.recognizers) or 'no recognizer'}. Percentile: of the median {first.first}. "
            "Kept: at or above the threshold that keeps 95% of the model's calibration faces, or else of the unchanged "
            "images. Held out: kinds that no model that ships is trained on. In brackets: 95% intervals over the faces."
        )
        parts.append(PagePart(name, tables, points, text, first.notes, ("Each kind by severity", panels)))
    return PageSection("corruptions", "Corruptions", "Corruptions: quality of changed faces", parts)


def training(subjects: Sequence[Subject]) -> PageSection:
    """Curves of the runs, in one part."""

    drawn: list[Figure] = []
    # What was logged once is no curve.
    once: list[tuple[str, str]] = []
    for kind, field, label in (
        *(("train", field, label) for field, label in CURVES.items()),
        *(("validation", field, label) for field, label in VALIDATED.items()),
    ):
        runs = [subject for subject in subjects if subject.series(kind, field)[0]]
        series = [
            (run.label if name is None else f"{run.label}, {name}", *run.series(kind, field, name))
            for run in runs
            for name in run.names(kind, field)
        ]
        if any(len(epochs) > 1 for _, epochs, _ in series):
            caption = f"{label[0].upper()}{label[1:]} over the epochs."
            drawn.append(Figure(figures.training_curves(runs, kind, field, label), caption))
            continue
        for name, (epoch,), (value,) in series:
            number = percent(value) if kind == "validation" else f"{value:.3g}"
            once.append((f"{name}: {label}", f"{number} at epoch {epoch:.3g}"))
    if runs := [subject for subject in subjects if subject.series("train", "v_p50")[0]]:
        label = "uncertainty v of the training faces"
        if any(len(run.series("train", "v_p50")[0]) > 1 for run in runs):
            caption = f"{label.capitalize()}: median, and the band from the 5th to the 95th percentile."
            svg = figures.percentile_bands([(run.label, [run]) for run in runs], "v", label)
            drawn.append(Figure(svg, caption))
        else:
            for run in runs:
                low, middle, high = (run.series("train", f"v_p{rank}")[1][0] for rank in (5, 50, 95))
                once.append(
                    (f"{run.label}: {label}", f"median {middle:.3g}, 5 to 95%: {low:.3g} to {high:.3g}")
                )
    if not (drawn or once):
        return PageSection("training", "Training", "Training", [])
    parts = [
        PagePart(notes=notes) if (notes := _other_models(subjects)) else None,
        PagePart(figures=drawn) if drawn else None,
        PagePart(text="Logged only once, so there is no curve:", facts=once) if once else None,
    ]
    return PageSection("training", "Training", "Training", [part for part in parts if part is not None])


def _other_models(subjects: Sequence[Subject]) -> list[str]:
    """What keeps readers from taking a training for that of the models with results."""
    models = {one.label: one.result.model.recipe_sha256 for one in subjects if one.result is not None}
    notes = []
    for run in subjects:
        if not run.log:
            continue
        if run.result is not None:
            if run.recipe_sha256 and models[run.label] and run.recipe_sha256 != models[run.label]:
                notes.append(
                    f"The training in the folder of {run.label}'s results is that of another model: its recipe is not "
                    f"the one that {run.label} was trained with."
                )
        elif models and (not run.recipe_sha256 or run.recipe_sha256 not in models.values()):
            unknown = [label for label, recipe in models.items() if not (recipe and run.recipe_sha256)]
            others = [label for label in models if label not in unknown]
            if others:
                notes.append(
                    f"{run.label} is the training of another model than {joined(others)}: the results above are not of "
                    "what was trained here."
                )
            if unknown:
                notes.append(
                    f"Whether {joined(unknown)} came from the training {run.label} is unknown: the results do not say "
                    "which recipe made the model."
                )
    return notes


def provenance(subjects: Sequence[Subject]) -> PageSection:
    """Of each model: commands, versions, and the hashes of model and data."""
    parts = []
    for subject in subjects:
        if subject.result is None:
            continue
        model, versions = subject.result.model, subject.result.versions
        facts = [
            ("measured", f"{subject.result.created[:16].replace('T', ' ')} UTC"),
            ("model", f"{model.method}, SHA-256 {model.sha256}"),
            *_hashes(subject),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ]
        commands = [
            shlex.join(["facerts", *map(redacted_argument, command[1:])])
            for command in subject.result.command
        ]
        parts.append(PagePart(subject.label, facts=facts, commands=commands))
    return PageSection("provenance", "Provenance", "How these numbers were computed", parts)


SECTIONS = (verification, identification, reject, league, ood, corruptions, training, provenance)


def _headline(subject: Subject) -> Iterator[tuple[str, Cell]]:
    sections = subject.sections
    for name, benchmark in sections.verification.items():
        if benchmark.accuracy is not None:
            yield f"{name}: accuracy", share(benchmark.accuracy.value, benchmark.accuracy.ci95)
        measured, every = (benchmark.all_pairs, ", all pairs") if benchmark.all_pairs else (benchmark, "")
        if (far := headline_fmr(measured)) is not None:
            yield f"{name}{every}: FNMR at FMR {rate(far)}", fnmr(measured, far)
    for name, identified in sections.identification.items():
        rank, point = next(iter(identified.searches[0].rank.items()))
        yield f"{name}: rank {rank}", share(point.value, point.ci95)
    for name, curves in sections.reject.items():
        if (curve := headline_curve(curves)) is not None:
            yield f"{name}: FNMR at FMR {rate(curve.fmr)}, 20% left out by {curve.by}", fnmr_left(curve, 0.2)
    if sections.ood is not None:
        score, numbers = next(iter(sections.ood.by.items()))
        yield f"non-faces, by {score}: AUROC", share(numbers.auroc, numbers.ci95["auroc"])
        yield (
            f"non-faces, by {score}: TNR at TPR 95%",
            share(numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"]),
        )


def _labeled(having: Sequence[tuple[Subject, Section]]) -> list[tuple[str, Section]]:
    """Sections with the labels of their models; a single model needs none."""
    return [(subject.label if len(having) > 1 else "", section) for subject, section in having]


def _verified(name: str, having: Sequence[tuple[Subject, VerificationResult]]) -> PagePart:
    subjects = [subject for subject, _ in having]
    drawn = [subject for subject in subjects if figures.has_det_curve(subject, name)]
    without = [subject.label for subject in subjects if not figures.has_det_curve(subject, name)]
    listed_pairs = [subject for subject in subjects if f"verification/{name}/scores" in subject.arrays]
    shown = []
    if drawn:
        caption = "DET curve: FNMR at every FMR, both axes logarithmic. Down and to the left is better."
        if any(section.all_pairs for _, section in having):
            caption += " Dashed: every pair of the benchmark's images."
        shown.append(Figure(figures.det_curves(drawn, name), caption))
    shown += [
        Figure(
            figures.pair_histograms(subject, name),
            f"{subject.label}: similarity of genuine and impostor pairs. The less they overlap, the better.",
        )
        for subject in listed_pairs
    ]
    first = having[0][1]
    resting = ", ".join(
        f"{point.impostors_accepted:,} at {rate(far)}" for far, point in first.tar_at_far.items()
    )
    mirrors = {
        True: "Embeddings of crop and mirror image are added.",
        False: "Embeddings are of crops without their mirror images.",
        None: "The embeddings were computed elsewhere.",
    }
    text = (
        f"{first.images:,} images{f' of {first.subjects:,} people' if first.subjects else ''}. Accuracy: each fold at "
        "the threshold that is best on the others. FNMR is shown at each FMR that lets at least one impostor pair "
        f"pass; with few of them ({resting}), the interval shows how uncertain it is. In brackets: 95% intervals, "
        f"{first.interval}. {mirrors[first.flip]}"
    )
    if without:
        text += (
            f" {joined(without)}: no DET curve, because fewer than two of its points lie between the first false match "
            "and the last miss."
        )
    errors = [
        Wall(f"{subject.label}: the hardest pairs", wrong, open=True)
        for subject in listed_pairs
        if (wrong := worst_pairs(subject, name))
    ]
    faces = [
        Wall(f"{subject.label}: {' and '.join(best)}", best)
        for subject in listed_pairs
        for score in figures.OWN_SCORES
        if (best := best_and_worst(subject, f"verification/{name}/", score))
    ]
    table = verification_table([(subject.label, section) for subject, section in having])
    return PagePart(name, [table], shown, text, first.notes, walls=[*errors, *faces])


def _rejected(name: str, having: Sequence[tuple[Subject, list[RejectResult]]]) -> PagePart:
    measured = [subject for subject, _ in having]
    every = [subject for subject, curves in having if any(curve.pairs == "all" for curve in curves)]
    calibrated = [subject for subject in measured if name in subject.sections.calibration]
    sentence = "FNMR while the genuine pairs of lowest quality are left out, on"
    drawn = [
        Figure(
            figures.reject_curves(measured, name),
            f"{sentence} the benchmark's pairs; the threshold is chosen once. Lower is better.",
        )
    ]
    if every:
        drawn.append(
            Figure(
                figures.reject_curves(every, name, "all"),
                f"{sentence} every pair of its images; the threshold is chosen once. Lower is better.",
            )
        )
    if calibrated:
        drawn.append(
            Figure(
                figures.reliability(calibrated, name),
                "FNMR in bins of equal numbers by quality, with 95% intervals: it should fall from left to right. ρ "
                "is Spearman's correlation of quality and similarity over the genuine pairs.",
            )
        )
    first = having[0][1][0]
    passing = f"{first.impostors_accepted:,} pair{'' if first.impostors_accepted == 1 else 's'}"
    text = (
        f"FNMR at FMR {rate(first.fmr)} by the share of genuine pairs left out; pAUC: its mean over all "
        "shares up to 20 or 95%; best: if pairs were left out by similarity. At random, FNMR stays at its value at "
        f"0%. {rate(first.fmr)} of {first.impostors:,} impostor pairs is {passing}: the threshold depends on them, "
        f"and the intervals{f' ({first.interval})' if first.interval else ''} show how much. The quality of a pair is "
        "the lower of its two."
    )
    curves = _labeled(having)
    tables = [
        replace(reject_table(curves, "benchmark"), title="The benchmark's pairs" if every else ""),
        replace(reject_table(curves, "all"), title="Every pair of its images"),
    ]
    shown = [table for table in tables if table.rows]
    return PagePart(name, shown, drawn, text)


def _counts(images: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in images.items())


def _hashes(subject: Subject) -> Iterator[tuple[str, str]]:
    sections = subject.sections
    for kind, name, sha256 in sections.hashes():
        # Reliability is of the images of another section.
        if sha256 is not None and kind != "calibration":
            yield f"{kind} {name}", f"SHA-256 {sha256}"
    if sections.ood is not None:
        for name, sha256 in sections.ood.data_sha256.items():
            yield f"ood {name}", f"SHA-256 {sha256}"
