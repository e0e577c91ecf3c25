"""The corruption benchmark: a small figure for each kind of corruption."""

from __future__ import annotations

from collections.abc import Sequence

from facerts.report.figures.style import INK, color, finish_panels, panels, svg
from facerts.report.subject import Subject


def corruption_grid(subjects: Sequence[Subject], source: str, score: str) -> str:
    """A score by severity: the median and the band from its 5th to its 95th percentile, for each kind.

    Args:
        subjects: that were measured on this source.
        source: of the faces.
        score: "quality", another score, or "cosine" for the similarity to the clean image.
    """
    kinds = list(subjects[0].sections.corruptions[source].kinds)
    figure, grid = panels(len(kinds), height=1.9, share=True)
    for axes, kind in zip(grid, kinds, strict=True):
        for number, subject in enumerate(subjects):
            section = subject.sections.corruptions[source]
            steps = section.kinds[kind]
            values = steps.cosine if score == "cosine" else steps.by.get(score)
            if values is None:
                continue
            axes.fill_between(
                section.severity,
                values.p5,
                values.p95,
                color=color(number),
                alpha=0.18,
                linewidth=0,
            )
            axes.plot(section.severity, values.p50, color=color(number), label=subject.label, clip_on=False)
        axes.set_title(kind.replace("_", " "), loc="left", fontsize=10, color=INK)
        axes.set(xlim=(0, 1))
    if score == "cosine":
        grid[0].set_ylim(top=1)
    figure.supxlabel("severity", fontsize=10, color=INK)
    figure.supylabel("similarity" if score == "cosine" else score, fontsize=10, color=INK)
    return finish_panels(figure, grid) if len(subjects) > 1 else svg(figure)
