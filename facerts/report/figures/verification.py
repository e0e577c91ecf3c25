"""ROC, DET and score distributions of verification benchmarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.report.figures.style import GENUINE, IMPOSTOR, color, legend, line, new_figure, svg
from facerts.report.subject import Subject

Floats = NDArray[np.float32]

# Similarities by their names in results, and the range that histograms of one share, where it has one.
LABELS = {"cosine": "cosine similarity", "mls": "mutual likelihood score"}
SHARED = {"cosine": (-0.25, 1.0)}


def roc_curves(subjects: Sequence[Subject], benchmark: str) -> str:
    """TAR over FAR, on a logarithmic axis down to one impostor pair; all pairs dashed."""
    figure, axes = new_figure()
    for label, far, tar, options in _curves(subjects, benchmark):
        # Below one impostor the logarithmic axis has no place: a curve begins at its first one.
        drawn = far > 0
        axes.step(far[drawn], tar[drawn], where="post", label=label, **options)
    axes.set_xscale("log")
    axes.set(xlabel="false accept rate", ylabel="true accept rate", ylim=(None, 1.005))
    legend(axes)
    return svg(figure)


def det_curves(subjects: Sequence[Subject], benchmark: str) -> str:
    """FNMR over FMR, both logarithmic."""
    figure, axes = new_figure()
    for label, far, tar, options in _curves(subjects, benchmark):
        drawn = (far > 0) & (tar < 1)
        axes.step(far[drawn], 1 - tar[drawn], where="post", label=label, **options)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set(xlabel="false match rate", ylabel="false non-match rate")
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


def _curves(subjects: Sequence[Subject], benchmark: str) -> list[tuple[str, Floats, Floats, dict[str, Any]]]:
    """Label, FAR, TAR and look of every curve."""
    curves = []
    for number, subject in enumerate(subjects):
        prefix = f"verification/{benchmark}/"
        for style, part, suffix in ((0, "", ""), (1, "all_", ", all pairs")):
            if f"{prefix}{part}roc_far" in subject.arrays:
                far, tar = (subject.arrays[f"{prefix}{part}roc_{axis}"] for axis in ("far", "tar"))
                look = {"color": color(number), "linestyle": line(style)}
                curves.append((subject.label + suffix, far, tar, look))
    return curves
