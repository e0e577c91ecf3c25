"""The page's section on the quality league."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facerts.evaluation.results.fiqa_result import FiqaSection
from facerts.evaluation.results.groups_result import AttributeGroups, GroupsResult
from facerts.report import figures
from facerts.report.group_tables import accepted_table, errors_table, group_findings
from facerts.report.league_tables import (
    BOUND,
    END,
    detail_tables,
    league_table,
)
from facerts.report.page_elements import Figure, PagePart, PageSection
from facerts.report.subject import Subject, by_name
from facerts.report.table import Table, rate


def league(subjects: Sequence[Subject]) -> PageSection:
    """A part for each set of faces and league, and for each attribute of its groups."""
    leagues = [
        (name, name if len(having) == 1 else f"{name}: {subject.label}", subject, section)
        for name, having in by_name(subjects, lambda sections: sections.fiqa).items()
        for subject, section in having
    ]
    parts = [_league_part(subject, name, section, title) for name, title, subject, section in leagues]
    parts += [
        _group_part(name, section.groups, attribute, groups)
        for name, _, _, section in leagues
        if section.groups is not None
        for attribute, groups in section.groups.by.items()
    ]
    title = "Quality league: whose errors does a quality predict?"
    return PageSection("fiqa", "Quality league", title, parts)


def _league_part(subject: Subject, name: str, section: FiqaSection, title: str) -> PagePart:
    tables = [table for table in (league_table(section), *detail_tables(section)) if table.rows]
    return PagePart(title, tables, _figures(subject, name, section), _explanation(section), section.notes)


def _group_part(name: str, section: GroupsResult, attribute: str, groups: AttributeGroups) -> PagePart:
    tables: list[Table] = []
    drawn: list[Figure] = []
    if groups.accepted:
        tables.append(accepted_table(attribute, groups))
        caption = f"Accepted share of the images by {attribute}, with 95% intervals; dashed: of all images."
        drawn.append(Figure(figures.accepted_by_group(groups), caption, f"accepted_{name}_{attribute}"))
    tables += [
        errors_table(attribute, recognizer, matching) for recognizer, matching in groups.matching.items()
    ]
    kept = sorted({accepted.keep for accepted in groups.accepted.values() if accepted.keep is not None})
    text = (
        f"{' '.join(group_findings(attribute, groups))} "
        + (f"Quality thresholds keep {' and '.join(map(rate, kept))} of all images. " if kept else "")
        + f"Groups with fewer than {section.min_images} images are not called worst. The worst and the best group are "
        "chosen by their rates: among many groups, some differ by chance. "
        + (f"Intervals of accepted shares: {section.interval}." if groups.accepted else "")
    )
    title = f"{name}, {attribute}"
    return PagePart(title, tables=tables, figures=drawn, text=text.strip(), notes=section.notes)


def _figures(subject: Subject, name: str, section: FiqaSection) -> list[Figure]:
    """The curves, and both uses of the qualities, where they were measured."""
    fmr = section.headline_fmr
    drawn = []
    # Not by rank, so that a quality has one color on all sets of faces.
    order = [label for label in section.qualities if label != BOUND]
    if fmr is not None:
        rejected, stored = (subject.arrays[f"fiqa/{name}/{key}"] for key in ("rejected", "fnmr"))
        curves: dict[str, dict[str, np.ndarray]] = {}
        for entry, curve in zip(section.areas, stored, strict=False):
            if entry.fmr == fmr and entry.recognizer:
                curves.setdefault(entry.recognizer, {})[entry.quality] = curve
        caption = (
            f"FNMR at FMR {rate(fmr)} while the genuine pairs of lowest quality are rejected, for each recognizer. The "
            "lower, the better."
        )
        label = f"FNMR at FMR {rate(fmr)}"
        svg = figures.league_curves(curves, rejected, order, BOUND, label)
        drawn.append(Figure(svg, caption, f"league_{name}"))
        if section.non_faces is not None:
            means = section.areas_of(fmr).get(None, {})
            by = section.non_faces.by
            points = {
                quality: (by[quality].tnr_at_tpr["0.95"], area)
                for quality in order
                if quality in by and quality in means and (area := means[quality].area[END]) is not None
            }
            others = ", ".join(section.non_faces.others)
            caption = (
                f"Both uses of a quality: rejecting non-faces ({others}), to the right is better, and predicting "
                "recognizers' errors, lower is better."
            )
            drawn.append(Figure(figures.two_uses(points, others), caption, f"uses_{name}"))
    return drawn


def _explanation(section: FiqaSection) -> str:
    sentences = [
        f"{section.images:,} images" + (f" of {section.people:,} people." if section.people else ".")
    ]
    if section.areas:
        pairs = "the listed pairs" if section.pairs == "benchmark" else "all pairs"
        where = f" of {section.thresholds_on}" if section.thresholds_on else ""
        sentences += [
            f"{section.genuine:,} genuine and {section.impostors:,} impostor pairs ({pairs}).",
            "Area: mean FNMR while 0 to 30% of the genuine pairs of lowest quality (that of their worse image) are "
            "rejected, divided by FNMR without rejection; 1 for a random order, lower is better. Each recognizer has "
            f"its own threshold, on the impostor pairs{where}. In brackets: 95% intervals, {section.interval}.",
            f"Differences from {section.against} are paired; bold where the interval leaves out 0.",
        ]
    if section.non_faces is not None:
        others = ", ".join(f"{name} {count:,}" for name, count in section.non_faces.others.items())
        excluded = f", without {section.non_faces.excluded}" if section.non_faces.excluded else ""
        sentences.append(
            f"Non-faces: {others}{excluded}. TNR at TPR 95%: share of them below the threshold that keeps 95% of "
            "these faces; of a recognizer's own quality the range over the recognizers."
        )
    if any(
        quality.milliseconds or quality.milliseconds_by_recognizer for quality in section.qualities.values()
    ):
        sentences.append("ms per image: median time of the quality alone, on the machine that measured.")
    return " ".join(sentences)
