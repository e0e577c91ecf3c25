"""The sections of the page, from results and training logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from facerts.evaluation.results.reject import Convention, PairSet, RejectResult
from facerts.evaluation.results.verification import PairNumbers, VerificationResult
from facerts.io.redact import redacted_argument
from facerts.report import figures
from facerts.report.crops import best_and_worst, worst_pairs
from facerts.report.elements import Cell, Figure, PagePart, PageSection, Table, Wall, share, words
from facerts.report.fiqa_section import fiqa
from facerts.report.numbers import complement, rate
from facerts.report.subject import Subject, by_name

REJECTED = (0.0, 0.1, 0.2)
CURVES = {
    "cross_entropy": "cross-entropy",
    "kl": "KL divergence (Eq. 6)",
    "lr": "learning rate",
}
VALIDATED = {"accuracy": "verification accuracy", "auroc": "verification AUROC"}
COMBINED = {"min": "lower of its two", "mean": "mean of its two", "product": "product of its two"}


def summary(subjects: Sequence[Subject]) -> Table | None:
    """The few numbers that people look for first."""
    having = [subject for subject in subjects if subject.result is not None]
    found = [dict(_headline(subject)) for subject in having]
    names = list(dict.fromkeys(name for cells in found for name in cells))
    if not names:
        return None
    return _by_number([subject.label for subject in having], names, found)


def headline_fmr(numbers: PairNumbers) -> str | None:
    """The rate of false matches that people look at first: 0.001, or the nearest that was measured."""
    return min(numbers.tar_at_far, key=lambda far: abs(float(far) - 1e-3), default=None)


def headline_curve(curves: Sequence[RejectResult]) -> RejectResult | None:
    """The curve that people look at first: by the model's first score, of all pairs where these were measured."""
    fixed = [curve for curve in curves if curve.convention == "fixed"]
    return next((curve for curve in fixed if curve.pairs == fixed[-1].pairs), None)


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
        searches = [(subject.label, search) for subject, section in having for search in section.searches]
        ranks = list(dict.fromkeys(rank for _, search in searches for rank in search.rank))
        fpirs = list(dict.fromkeys(fpir for _, search in searches for fpir in search.fnir_at_fpir))
        columns = [*(f"rank {rank}" for rank in ranks), *(f"FNIR at FPIR {rate(fpir)}" for fpir in fpirs)]
        rows = []
        for label, search in searches:
            found = [*map(search.rank.get, ranks), *map(search.fnir_at_fpir.get, fpirs)]
            cells = [Cell("–") if one is None else share(one.value, one.ci95) for one in found]
            rows.append([*words(label, search.gallery, search.pooling.replace("_", " ")), *cells])
        galleries = dict.fromkeys(
            f"{search.gallery}: {search.gallery_people:,} people, {search.mated:,} mated searches, "
            f"{search.non_mated:,} non-mated."
            for _, search in searches
        )
        first = having[0][1]
        text = (
            f"{' '.join(galleries)} Rank k: the person searched for is among the k most similar people. FNIR at FPIR: "
            "the share of mated searches that fail at the threshold that this share of the searches for strangers "
            f"reaches. In brackets: 95 % intervals, {first.interval}."
        )
        table = Table(["model", "gallery", "pooling", *columns], rows, words=3)
        parts.append(PagePart(name, tables=[table], text=text, notes=first.notes))
    return PageSection("identification", "Identification", "Identification: who is it", parts)


def reject(subjects: Sequence[Subject]) -> PageSection:
    """A part for each benchmark."""
    parts = [
        _rejected(name, [one for one in having if one[1]])
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
        rows = []
        for score, pooled in section.by.items():
            sources = {**({"all": pooled} if len(section.faces) > 1 else {}), **pooled.per_source}
            for source, n in sources.items():
                rows.append(
                    [
                        *words(score, source),
                        share(n.auroc, n.ci95["auroc"]),
                        share(n.tnr_at_tpr["0.90"], n.ci95["0.90"]),
                        share(n.tnr_at_tpr["0.95"], n.ci95["0.95"]),
                        share(n.aupr),
                    ]
                )
        columns = ["score", "faces", "AUROC", "TNR at TPR 90 %", "TNR at TPR 95 %", "AUPR"]
        excluded = section.excluded.others if section.excluded else None
        text = (
            f"Faces: {_counts(section.faces)}. Non-faces: {_counts(section.others)}"
            f"{f', without {excluded}' if excluded else ''}. TNR at TPR 95 %: the share of the non-faces below the "
            f"threshold that keeps 95 % of the faces. In brackets: 95 % intervals, {section.interval}."
        )
        walls = [
            Wall(f"{source}: {' and '.join(found)}", found, people=source in section.faces)
            for source in (*section.faces, *section.others)
            if (found := best_and_worst(subject, f"ood/{source}/", next(iter(section.by))))
        ]
        drawn = [
            Figure(
                figures.score_histograms(subject, score),
                f"Distribution of {score}: faces as lines, non-faces filled. The less they overlap, the better.",
            )
            for score in section.by
        ]
        table = Table(columns, rows, words=2)
        parts.append(PagePart(subject.label, [table], drawn, text, section.notes, walls=walls))
    return PageSection("ood", "Non-faces", "Faces against non-faces", parts)


def corruptions(subjects: Sequence[Subject]) -> PageSection:
    """A part for each source of faces: the similarity to the clean image, and the model's scores."""
    parts = []
    for name, having in by_name(subjects, lambda sections: sections.corruptions).items():
        first = having[0][1]
        severities = [f"{severity:g}" for severity in first.severity]
        columns = ["model", "kind", *severities, "falls at each step", "AUROC, clean above worst"]
        scores = list(next(iter(first.kinds.values())).by)
        tables = []
        for score in scores:
            rows = [
                [
                    *words(subject.label, kind.replace("_", " "), *(f"{value:.4g}" for value in steps.p50)),
                    *words("yes" if steps.monotone else "no"),
                    share(steps.auroc[-1]),
                ]
                for subject, section in having
                for kind, of_kind in section.kinds.items()
                if (steps := of_kind.by.get(score)) is not None
            ]
            tables.append(Table(columns, rows, words=2, title=f"Median {score} by severity", folded=True))
        measured = [subject for subject, _ in having]
        drawn = [
            Figure(
                figures.corruption_grid(measured, name, score),
                f"{'Similarity to the clean image' if score == 'cosine' else score.capitalize()} by severity: median, "
                "and the band from the 5th to the 95th percentile.",
            )
            for score in ("cosine", *scores)
        ]
        text = f"{first.images:,} faces; severity ranges from 0 (original) to 1 (barely recognizable)."
        more = ("The other scores", drawn[2:])
        parts.append(PagePart(name, tables, drawn[:2], text, first.notes, more))
    return PageSection("corruptions", "Corruptions", "Corruptions: quality of degraded faces", parts)


def training(subjects: Sequence[Subject]) -> PageSection:
    """Curves of the runs, in one part."""

    def having(kind: str, field: str) -> list[Subject]:
        return [subject for subject in subjects if subject.series(kind, field)[0]]

    drawn = [
        Figure(
            figures.training_curves(runs, kind, field, label),
            f"{label[0].upper()}{label[1:]} over the epochs.",
        )
        for kind, fields in (("train", CURVES), ("validation", VALIDATED))
        for field, label in fields.items()
        if (runs := having(kind, field))
    ]
    if runs := having("train", "v_p50"):
        label = "uncertainty v of the training faces"
        caption = f"{label.capitalize()}: median, and the band from the 5th to the 95th percentile."
        drawn.append(Figure(figures.percentile_band(runs, "v", label), caption))
    return PageSection("training", "Training", "Training", [PagePart(figures=drawn)] if drawn else [])


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
        # Earlier results have paths as they were given.
        commands = [
            shlex.join(["facerts", *map(redacted_argument, command[1:])])
            for command in subject.result.command
        ]
        parts.append(PagePart(subject.label, facts=facts, commands=commands))
    return PageSection("provenance", "Provenance", "How these numbers were computed", parts)


SECTIONS = (verification, identification, reject, fiqa, ood, corruptions, training, provenance)


def _headline(subject: Subject) -> Iterator[tuple[str, Cell]]:
    sections = subject.sections
    for name, benchmark in sections.verification.items():
        if benchmark.accuracy is not None:
            yield f"{name}: accuracy", share(benchmark.accuracy.value, benchmark.accuracy.ci95)
        measured, pairs = (benchmark.all_pairs, "all pairs") if benchmark.all_pairs else (benchmark, "pairs")
        if (far := headline_fmr(measured)) is not None:
            yield f"{name}, {pairs}: FNMR at FMR {rate(far)}", _fnmr(measured, far)
    for name, identified in sections.identification.items():
        rank, found = next(iter(identified.searches[0].rank.items()))
        yield f"{name}: rank {rank}", share(found.value, found.ci95)
    for name, curves in sections.reject.items():
        if (curve := headline_curve(curves)) is not None:
            yield f"{name}: FNMR at FMR {rate(curve.fmr)}, 20 % left out by {curve.by}", _left(curve, 0.2)
    if sections.ood is not None:
        score, numbers = next(iter(sections.ood.by.items()))
        yield f"non-faces, by {score}: AUROC", share(numbers.auroc, numbers.ci95["auroc"])
        yield (
            f"non-faces, by {score}: TNR at TPR 95 %",
            share(numbers.tnr_at_tpr["0.95"], numbers.ci95["0.95"]),
        )


def _by_number(labels: Sequence[str], names: Sequence[str], found: Sequence[dict[str, Cell]]) -> Table:
    """A row for each number, a column for each model."""
    rows = [[Cell(name), *(cells.get(name, Cell("–")) for cells in found)] for name in names]
    return Table(["", *labels], rows)


def _verified(name: str, having: Sequence[tuple[Subject, VerificationResult]]) -> PagePart:
    measured: dict[str, tuple[VerificationResult | None, PairNumbers]] = {}
    for subject, section in having:
        measured[subject.label] = (section, section)
        if section.all_pairs is not None:
            measured[f"{subject.label}, all pairs"] = (None, section.all_pairs)
    fars = sorted({far for _, numbers in measured.values() for far in numbers.tar_at_far}, key=float)[::-1]
    fnmr = {f"FNMR at FMR {rate(far)}": far for far in fars}
    found = []
    for listed, n in measured.values():
        accuracy = listed.accuracy if listed is not None else None
        found.append(
            {
                "accuracy": Cell("–") if accuracy is None else share(accuracy.value, accuracy.ci95),
                "AUROC": share(n.auroc, n.ci95.auroc if n.ci95 else None),
                "EER": share(n.eer, n.ci95.eer if n.ci95 else None),
                **{row: _fnmr(n, far) for row, far in fnmr.items() if far in n.tar_at_far},
                "genuine pairs": Cell(f"{n.genuine:,}"),
                "impostor pairs": Cell(f"{n.impostors:,}"),
            }
        )
    table = _by_number(list(measured), ["accuracy", "AUROC", "EER", *fnmr, *list(found[0])[-2:]], found)
    drawn = [one for one, _ in having if f"verification/{name}/roc_far" in one.arrays]
    listed_pairs = [one for one, _ in having if f"verification/{name}/scores" in one.arrays]
    shown = []
    if drawn:
        caption = "DET curve: FNMR at every FMR, both axes logarithmic. Down and to the left is better."
        if any(section.all_pairs for _, section in having):
            caption += " Dashed: every pair of the benchmark's images."
        shown.append(Figure(figures.det_curves(drawn, name), caption))
    shown += [
        Figure(
            figures.pair_histograms(one, name),
            f"{one.label}: similarity of genuine and impostor pairs. The less they overlap, the better.",
        )
        for one in listed_pairs
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
        f"pass; with few of them ({resting}), the interval shows how uncertain it is. In brackets: 95 % intervals, "
        f"{first.interval}. {mirrors[first.flip]}"
    )
    errors = [
        Wall(f"{one.label}: the most clearly wrong decisions", wrong, open=True)
        for one in listed_pairs
        if (wrong := worst_pairs(one, name))
    ]
    faces = [
        Wall(f"{one.label}: {' and '.join(best)}", best)
        for one in listed_pairs
        for score in figures.OWN_SCORES
        if (best := best_and_worst(one, f"verification/{name}/", score))
    ]
    return PagePart(name, [table], shown, text, first.notes, walls=[*errors, *faces])


def _rejected(name: str, having: Sequence[tuple[Subject, list[RejectResult]]]) -> PagePart:
    measured = [subject for subject, _ in having]
    every = [subject for subject, curves in having if any(curve.pairs == "all" for curve in curves)]
    calibrated = [subject for subject in measured if name in subject.sections.calibration]
    sentence = "FNMR while the genuine pairs of lowest quality are left out, on"
    drawn = [
        Figure(
            figures.reject_curves(measured, name, "fixed"),
            f"{sentence} the benchmark's pairs; the threshold is chosen once. Lower is better.",
        )
    ]
    if every:
        drawn.append(
            Figure(
                figures.reject_curves(every, name, "fixed", "all"),
                f"{sentence} every pair of its images; the threshold is chosen once. Lower is better.",
            )
        )
    if calibrated:
        drawn.append(
            Figure(
                figures.reliability(calibrated, name),
                "FNMR in bins of equal numbers by quality, with 95 % intervals: it should fall from left to right. ρ "
                "is Spearman's correlation of quality and similarity over the genuine pairs.",
            )
        )
    curves_anew = Figure(
        figures.reject_curves(measured, name, "per_rate"),
        "The same on the benchmark's pairs, with impostor pairs left out too and a threshold for each rate.",
    )
    first = having[0][1][0]
    passing = f"{first.impostors_accepted:,} pair{'' if first.impostors_accepted == 1 else 's'}"
    text = (
        f"FNMR at FMR {rate(first.fmr)} by the share of genuine pairs left out; mean: over all shares up to 20 %; "
        "best: if pairs were left out by similarity. At random, FNMR stays at its value at 0 %. "
        f"{rate(first.fmr)} of {first.impostors:,} impostor pairs is {passing}: the threshold depends on them, and "
        f"the intervals{f' ({first.interval})' if first.interval else ''} show how much. The quality of a pair is the "
        f"{COMBINED[first.combine]}."
    )
    anew = "With a threshold chosen anew at each share"
    tables = [
        _reject_table(having, "fixed", "benchmark", "The benchmark's pairs" if every else ""),
        _reject_table(having, "fixed", "all", "Every pair of its images"),
        _reject_table(having, "per_rate", "benchmark", f"{anew}, in numbers", folded=True),
    ]
    shown = [table for table in tables if table.rows]
    return PagePart(name, shown, drawn, text, more=(f"{anew}, as curves", [curves_anew]))


def _reject_table(
    having: Sequence[tuple[Subject, Sequence[RejectResult]]],
    convention: Convention,
    pairs: PairSet,
    title: str,
    *,
    folded: bool = False,
) -> Table:
    left_out = [f"{rate(rejected)} left out" for rejected in REJECTED]
    columns = ["model", "score", *left_out, "mean to 20 %", "best mean"]
    rows = [
        [
            *words(subject.label, curve.by),
            *(_left(curve, rejected) for rejected in REJECTED),
            share(curve.area["0.2"], curve.ci95 and curve.ci95["0.2"]),
            share(curve.oracle_area["0.2"]),
        ]
        for subject, curves in having
        for curve in curves
        if (curve.convention, curve.pairs) == (convention, pairs)
    ]
    return Table(columns, rows, words=2, title=title, folded=folded)


def _left(curve: RejectResult, rejected: float) -> Cell:
    """FNMR of what remains, with its interval."""
    place = curve.index_at(rejected)
    ends = curve.fnmr_ci95
    return share(curve.fnmr[place], ends and (ends[0][place], ends[1][place]))


def _fnmr(numbers: PairNumbers, far: str) -> Cell:
    point = numbers.tar_at_far[far]
    return share(1 - point.value, complement(point.ci95))


def _counts(images: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in images.items())


def _hashes(subject: Subject) -> Iterator[tuple[str, str]]:
    sections = subject.sections
    for kind, of_kind in (
        ("verification", sections.verification),
        ("identification", sections.identification),
        ("corruptions", sections.corruptions),
        ("fiqa", sections.fiqa),
    ):
        for name, section in of_kind.items():
            if section.data_sha256 is not None:
                yield f"{kind} {name}", f"SHA-256 {section.data_sha256}"
    if sections.ood is not None:
        for name, sha256 in sections.ood.data_sha256.items():
            yield f"ood {name}", f"SHA-256 {sha256}"
