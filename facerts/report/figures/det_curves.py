"""DET curves and score distributions of verification benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from facerts.report.figures.style import GENUINE, IMPOSTOR, color, legend, line, new_figure, rate_axes, svg
from facerts.report.subject import Subject

# Similarities by their names in results, and the range that histograms of one share, where it has one.
LABELS = {"cosine": "cosine similarity", "mls": "mutual likelihood score"}
SHARED = {"cosine": (-0.25, 1.0)}


def det_curves(subjects: Sequence[Subject], benchmark: str) -> str:
    """FNMR over FMR, both logarithmic, from the first impostor pair to the first genuine one; all pairs dashed."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        prefix = f"verification/{benchmark}/"
        for style, part, suffix in ((0, "", ""), (1, "all_", ", all pairs")):
            if f"{prefix}{part}roc_far" in subject.arrays:
                fmr, tar = (subject.arrays[f"{prefix}{part}roc_{axis}"] for axis in ("far", "tar"))
                drawn = (fmr > 0) & (tar < 1)
                look = {"color": color(number), "linestyle": line(style)}
                axes.step(fmr[drawn], 1 - tar[drawn], where="post", label=subject.label + suffix, **look)
    axes.set(xscale="log", yscale="log", xlabel="FMR", ylabel="FNMR")
    rate_axes(axes, "xy")
    legend(axes)
    return svg(figure)


def pair_histograms(subject: Subject, benchmark: str) -> str:
    """Densities of the similarity of genuine and of impostor pairs; of all pairs where these were measured."""
    figure, axes = new_figure()
    prefix = f"verification/{benchmark}/"
    scores, same = subject.arrays[prefix + "scores"], subject.arrays[prefix + "same"]
    similarity = subject.sections.verification[benchmark].similarity
    low, high = SHARED.get(similarity, (np.inf, -np.inf))
    edges = np.linspace(min(low, float(scores.min())), max(high, float(scores.max())), 81)
    for flag, ink, name in ((False, IMPOSTOR, "impostor"), (True, GENUINE, "genuine")):
        counts, _ = np.histogram(scores[same == flag], edges)
        density = counts / max(counts.sum(), 1) / np.diff(edges)
        axes.stairs(density, edges, fill=True, color=ink, alpha=0.4, label=f"{name} pairs")
        key = f"{prefix}all_{name}{'s' if name == 'impostor' else ''}"
        if key in subject.arrays:
            counts, bounds = subject.arrays[key], subject.arrays[prefix + "all_edges"]
            density = counts / max(counts.sum(), 1) / np.diff(bounds)
            axes.stairs(density, bounds, color=ink, linewidth=1.2, label=f"all {name} pairs")
    axes.set(xlabel=LABELS[similarity], ylabel="density", xlim=(edges[0], edges[-1]))
    legend(axes)
    return svg(figure)
