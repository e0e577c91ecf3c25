"""DET curves and score distributions of verification benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.report.figures.style import (
    GENUINE,
    IMPOSTOR,
    bins_of,
    color,
    legend,
    line,
    new_figure,
    rate_axes,
    svg,
)
from facerts.report.subject import Subject

# Similarities by their names in results, and the range that histograms of one share, where it has one.
LABELS = {"cosine": "cosine similarity", "mls": "mutual likelihood score"}
SHARED = {"cosine": (-0.25, 1.0)}


def has_det_curve(subject: Subject, benchmark: str) -> bool:
    """Whether there are at least two points between the first impostor pair that passes and the last miss."""
    return any(len(points) > 1 for _, points in _det_points(subject, benchmark))


def det_curves(subjects: Sequence[Subject], benchmark: str) -> str:
    """FNMR over FMR, both logarithmic, from the first impostor pair to the first genuine one; all pairs dashed."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        for suffix, points in _det_points(subject, benchmark):
            if len(points) > 1:
                look = {"color": color(number), "linestyle": line(bool(suffix))}
                axes.step(*points.T, where="post", label=subject.label + suffix, **look)
    axes.set(xscale="log", yscale="log", xlabel="FMR", ylabel="FNMR")
    rate_axes(axes, "xy")
    legend(axes)
    return svg(figure)


def _det_points(subject: Subject, benchmark: str) -> Iterator[tuple[str, NDArray[np.floating]]]:
    """``(K, 2)`` FMR and FNMR, both above 0, of the benchmark's pairs and of all pairs, as far as they are there."""
    for part, suffix in (("", ""), ("all_", ", all pairs")):
        keys = [f"verification/{benchmark}/{part}roc_{axis}" for axis in ("far", "tar")]
        if keys[0] in subject.arrays:
            fmr, tar = (subject.arrays[key] for key in keys)
            drawn = (fmr > 0) & (tar < 1)
            yield suffix, np.stack([fmr[drawn], 1 - tar[drawn]], axis=1)


def pair_histograms(subject: Subject, benchmark: str) -> str:
    """Densities of the similarity of genuine and of impostor pairs; of all pairs where these were measured."""
    figure, axes = new_figure()
    prefix = f"verification/{benchmark}/"
    scores, same = subject.arrays[prefix + "scores"], subject.arrays[prefix + "same"]
    similarity = subject.sections.verification[benchmark].similarity
    low, high = SHARED.get(similarity, (np.inf, -np.inf))
    bins = bins_of(min(int(same.sum()), int((~same).sum())), 80)
    edges = np.linspace(min(low, float(scores.min())), max(high, float(scores.max())), bins + 1)
    for flag, ink, name in ((False, IMPOSTOR, "impostor"), (True, GENUINE, "genuine")):
        counts, _ = np.histogram(scores[same == flag], edges)
        density = counts / max(counts.sum(), 1) / np.diff(edges)
        axes.stairs(density, edges, fill=True, color=ink, alpha=0.4, label=f"{name} pairs")
        key = f"{prefix}all_{name}{'s' if name == 'impostor' else ''}"
        if key in subject.arrays:
            counts, bounds = _fewer_bins(subject.arrays[key], subject.arrays[prefix + "all_edges"])
            density = counts / max(counts.sum(), 1) / np.diff(bounds)
            axes.stairs(density, bounds, color=ink, linewidth=1.2, label=f"all {name} pairs")
    axes.set(xlabel=LABELS[similarity], ylabel="density", xlim=(edges[0], edges[-1]))
    legend(axes)
    return svg(figure)


def _fewer_bins(
    counts: NDArray[np.integer], edges: NDArray[np.floating]
) -> tuple[NDArray[np.integer], NDArray[np.floating]]:
    """A stored histogram with bins joined, if it is of few pairs."""
    wide = bins_of(int(counts.sum()), len(counts))
    joined = next(size for size in range(len(counts) // wide, 0, -1) if len(counts) % size == 0)
    return counts.reshape(-1, joined).sum(axis=1), edges[::joined]
