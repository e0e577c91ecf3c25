"""The page's section on the quality league."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from facerts.evaluation.results.fiqa import FiqaSection
from facerts.report import figures
from facerts.report.elements import Figure, PagePart, PageSection, Table
from facerts.report.fiqa_tables import (
    BOUND,
    END,
    areas_of,
    detail_tables,
    league_table,
)
from facerts.report.groups import group_parts
from facerts.report.numbers import rate
from facerts.report.subject import Subject, by_name


class NamedFigure(NamedTuple):
    """A figure, and the name of its file."""

    name: str
    figure: Figure


def fiqa(subjects: Sequence[Subject]) -> PageSection:
    """A part for each set of faces and league."""
    parts = [
        part(subject, name, section, name if len(having) == 1 else f"{name}: {subject.label}")
        for name, having in by_name(subjects, lambda sections: sections.fiqa).items()
        for subject, section in having
    ]
    parts += [
        replace(found, title=f"{name}, {found.title}")
        for name, having in by_name(subjects, lambda sections: sections.fiqa).items()
        for _, section in having
        if section.groups is not None
        for found in group_parts(section.groups)
    ]
    return PageSection(
        "fiqa", "Quality league", "Quality league: whose errors does a quality predict?", parts
    )


def part(subject: Subject, name: str, section: FiqaSection, title: str) -> PagePart:
    """The tables and figures of one set of faces."""
    tables: list[Table] = [table for table in (league_table(section), *detail_tables(section)) if table.rows]
    drawn = [one.figure for one in figures_of(subject, name, section)]
    return PagePart(title, tables, drawn, explanation(section), section.notes)


def figures_of(subject: Subject, name: str, section: FiqaSection) -> list[NamedFigure]:
    """The curves, and both uses of the qualities, where they were measured."""
    fmr = section.headline_fmr
    found = []
    # Not by rank, so that a quality has one color on all sets of faces.
    order = [label for label in section.qualities if label != BOUND]
    if fmr is not None:
        rejected, stored = (subject.arrays[f"fiqa/{name}/{key}"] for key in ("rejected", "fnmr"))
        curves: dict[str, dict[str, np.ndarray]] = {}
        for entry, curve in zip(section.areas, stored, strict=False):
            if (entry.fmr, entry.unit, entry.convention) == (fmr, "pairs", "fixed") and entry.recognizer:
                curves.setdefault(entry.recognizer, {})[entry.quality] = curve
        caption = (
            f"FNMR at FMR {rate(fmr)} while the genuine pairs of lowest quality are rejected, for each recognizer. The "
            "lower, the better."
        )
        label = f"FNMR at FMR {rate(fmr)}"
        svg = figures.league_curves(curves, rejected, order, BOUND, label)
        found.append(NamedFigure(f"league_{name}", Figure(svg, caption)))
        if section.non_faces is not None:
            means = areas_of(section, fmr).get(None, {})
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
            found.append(NamedFigure(f"uses_{name}", Figure(figures.two_uses(points, others), caption)))
    return found


def explanation(section: FiqaSection) -> str:
    """What the numbers are."""
    sentences = [
        f"{section.images:,} images" + (f" of {section.people:,} people." if section.people else ".")
    ]
    if section.areas:
        pairs = "the listed pairs" if section.pairs == "benchmark" else "all pairs"
        where = f" of {section.thresholds_on}" if section.thresholds_on else ""
        sentences += [
            f"{section.genuine:,} genuine and {section.impostors:,} impostor pairs ({pairs}).",
            "Area: mean FNMR while 0 to 30 % of the genuine pairs of lowest quality (that of their worse image) are "
            "rejected, divided by FNMR without rejection; 1 for a random order, lower is better. Each recognizer has "
            f"its own threshold, on the impostor pairs{where}. In brackets: 95 % intervals, {section.interval}.",
            f"Differences from {section.against} are paired; bold where the interval leaves out 0.",
        ]
    if section.non_faces is not None:
        others = ", ".join(f"{name} {count:,}" for name, count in section.non_faces.others.items())
        excluded = f", without {section.non_faces.excluded}" if section.non_faces.excluded else ""
        sentences.append(
            f"Non-faces: {others}{excluded}. TNR at TPR 95 %: share of them below the threshold that keeps 95 % of "
            "these faces; of a recognizer's own quality the range over the recognizers."
        )
    if any(one.milliseconds or one.milliseconds_by_recognizer for one in section.qualities.values()):
        sentences.append("ms per image: median time of the quality alone, on the machine that measured.")
    return " ".join(sentences)
