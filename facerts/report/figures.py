"""Figures of results, and what each shows; all are SVG elements for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from facerts.evaluation.labeled import Measured
from facerts.evaluation.results.groups_result import AttributeGroups
from facerts.evaluation.results.reject_result import PairSet
from facerts.images.changes import MAX_BLUR
from facerts.report.drawing import (
    GENUINE,
    IMPOSTOR,
    REFERENCE,
    SIZE,
    bins_of,
    color,
    draw_histogram,
    draw_labels,
    draw_line,
    draw_points,
    draw_reject_references,
    finish,
    finish_panels,
    legend_below,
    line,
    new_figure,
    panels,
    rate_axes,
    svg,
    title,
)
from facerts.report.subject import Subject
from facerts.report.table import rate

Curves = NDArray[np.floating]
# A training run: AUROC of faces against non-faces, and accuracy, both shares.
Point = tuple[Measured, Measured]

# With several models, baselines would hide what is compared.
OWN_SCORES = ("quality", "norm")
MOST_LEFT_OUT, LEAGUE_LEFT_OUT = 0.95, 0.3
# A curve ends where fewer genuine pairs remain: one more or less of them would move it by more than 10%.
REMAINING = 10
# Similarities by their names in results, and the range that histograms of one share, where it has one.
LABELS = {"cosine": "cosine similarity", "mls": "mutual likelihood score"}
SHARED = {"cosine": (-0.25, 1.0)}
RADII = (2.0, 3.0, 5.0)
# Mark of a change that models that ship are not trained on.
HELD_OUT = "^"
# Height of one interval of accepted shares and of what is around the rows, in inches.
INTERVAL, GAP, MARGINS = 0.16, 0.16, 0.95


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
    return finish(figure, axes, "xy", xscale="log", yscale="log", xlabel="FMR", ylabel="FNMR")


def _det_points(subject: Subject, benchmark: str) -> Iterator[tuple[str, Curves]]:
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
        draw_histogram(axes, counts, edges, fill=True, color=ink, alpha=0.4, label=f"{name} pairs")
        key = f"{prefix}all_{name}{'s' if name == 'impostor' else ''}"
        if key in subject.arrays:
            counts, bounds = _fewer_bins(subject.arrays[key], subject.arrays[prefix + "all_edges"])
            draw_histogram(axes, counts, bounds, color=ink, linewidth=1.2, label=f"all {name} pairs")
    return finish(figure, axes, xlabel=LABELS[similarity], ylabel="density", xlim=(edges[0], edges[-1]))


def _fewer_bins(counts: NDArray[np.integer], edges: Curves) -> tuple[NDArray[np.integer], Curves]:
    """A stored histogram with bins joined, if it is of few pairs."""
    wide = bins_of(int(counts.sum()), len(counts))
    joined = next(size for size in range(len(counts) // wide, 0, -1) if len(counts) % size == 0)
    return counts.reshape(-1, joined).sum(axis=1), edges[::joined]


def score_panels(subjects: Sequence[Subject], score: str, *, columns: int = 2) -> str:
    """Densities of a score of each source of faces and of all non-faces, by model (the RTS paper's Fig. 5)."""
    figure, grid = panels(len(subjects), columns=columns)
    for axes, subject in zip(grid, subjects, strict=True):
        section = subject.sections.ood
        assert section is not None  # callers leave out subjects without it
        others = np.concatenate([subject.arrays[f"ood/{name}/{score}"] for name in section.others])
        faces = {name: subject.arrays[f"ood/{name}/{score}"] for name in section.faces}
        _densities(axes, {", ".join(section.others): others, **faces}, bins=60, left_out=0.002)
        axes.set(xlabel=f"{score}, {subject.label}")
        # More numbers would run into each other where they are long, such as 0.0025.
        axes.locator_params(axis="x", nbins=3)
    grid[0].set_ylabel("density")
    return finish_panels(figure, grid)


def blur_steps() -> dict[str, str]:
    """Steps of the corruption benchmark by what a legend calls them; radii in pixels of a crop of 112."""
    return {"clean": "clean", **{f"blur, radius {r:g}": f"blur/{r / MAX_BLUR:g}" for r in RADII}}


def blur_panels(values: Mapping[str, Mapping[str, Curves]], score: str, source: str) -> str:
    """Densities of a score ``(N,)`` under Gaussian blur, by model and step, clean first (the RTS paper's Fig. 7)."""
    figure, grid = panels(len(values))
    for axes, (label, of_steps) in zip(grid, values.items(), strict=True):
        _densities(axes, of_steps, bins=30, left_out=0.005)
        axes.set(xlabel=f"{score}, {label}")
    grid[0].set_ylabel(f"density, {source}")
    return finish_panels(figure, grid, columns=4)


def _densities(axes: Axes, values: Mapping[str, Curves], *, bins: int, left_out: float) -> None:
    """Densities in so many common bins, or fewer of few values, without a share at each end; the first is filled."""
    low, high = np.quantile(np.concatenate(list(values.values())), [left_out, 1 - left_out])
    bins = bins_of(min(map(len, values.values())), bins)
    edges = np.linspace(low, high, bins + 1) if high > low else np.linspace(low - 0.5, low + 0.5, bins + 1)
    for number, (label, scores) in enumerate(values.items()):
        counts, _ = np.histogram(scores, edges)
        first = number == 0
        look = {"color": REFERENCE, "fill": True, "alpha": 0.45} if first else {"color": color(number - 1)}
        draw_histogram(axes, counts, edges, len(scores), label=label, linewidth=1.6, **look)


def drawn_to(genuine: int) -> float:
    """The share of so many genuine pairs up to which a curve is drawn."""
    return min(MOST_LEFT_OUT, max(1 - REMAINING / genuine, 0.2))


def reject_curves(subjects: Sequence[Subject], benchmark: str, pairs: PairSet = "benchmark") -> str:
    """FNMR over the share rejected, with the best and the random order for reference.

    Lines of one model are distinguished by their style, models by their color; alone, a model's scores have colors of
    their own. The band is the 95% interval of each model's first score.
    """
    figure, axes = new_figure()
    alone = len(subjects) == 1
    for number, subject in enumerate(subjects):
        curves = [curve for curve in subject.sections.reject[benchmark] if curve.pairs == pairs]
        shown = [curve for curve in curves if alone or curve.by in OWN_SCORES]
        for order, curve in enumerate(shown):
            look = {"color": color(order)} if alone else {"color": color(number), "linestyle": line(order)}
            label = curve.by if alone else f"{subject.label}, {curve.by}"
            end = curve.index_at(drawn_to(curve.genuine)) + 1
            ends = curve.fnmr_ci95 if order == 0 else None
            band = None if ends is None else [side[:end] for side in ends]
            draw_line(axes, curve.rejected[:end], curve.fnmr[:end], band, label=label, **look)
        if curves:
            end = curves[0].index_at(drawn_to(curves[0].genuine)) + 1
            best = curves[0].oracle_fnmr[:end]
            draw_reject_references(axes, curves[0].rejected[:end], best, label=number == 0)
    measured = [curve for subject in subjects for curve in subject.sections.reject[benchmark]]
    right = max(
        (drawn_to(curve.genuine) for curve in measured if curve.pairs == pairs), default=MOST_LEFT_OUT
    )
    limits: Any = {"xlim": (0, right), "ylim": (0, None)}
    label = f"FNMR at FMR {rate(measured[0].fmr)}"
    return finish(figure, axes, "xy", xlabel="genuine pairs left out", ylabel=label, **limits)


def one_embedding_curves(
    curves_of: Mapping[str, Sequence[tuple[str, Curves]]], rejected: ArrayLike, best: ArrayLike, label: str
) -> str:
    """FNMR over the share of genuine pairs rejected by qualities of several methods (the RTS paper's Fig. 8).

    Args:
        curves_of: by title, methods' labels and ``(runs, R)`` curves; of several runs the mean is drawn, and the band
            from the lowest to the highest. Colors go by the place in the list; no runs draw nothing.
        rejected: ``(R,)`` shares.
        best: ``(R,)`` the best curve that there can be.
    """
    figure, every = panels(len(curves_of), share=True)
    for axes, (score, methods) in zip(every, curves_of.items(), strict=True):
        for number, (name, curves) in enumerate(methods):
            if len(curves):
                band = (curves.min(axis=0), curves.max(axis=0)) if len(curves) > 1 else None
                draw_line(axes, rejected, curves.mean(axis=0), band, color=color(number), label=name)
        draw_reject_references(axes, rejected, best)
        axes.set(xlabel="genuine pairs left out", xlim=(0, MOST_LEFT_OUT), ylim=(0, None))
        rate_axes(axes, "xy")
        if len(every) > 1:
            title(axes, score)
    every[0].set_ylabel(label)
    return finish_panels(figure, every)


def reliability(subjects: Sequence[Subject], benchmark: str) -> str:
    """FNMR of genuine pairs in bins of equal numbers by quality, from the worst to the best."""
    figure, axes = new_figure()
    alone = len(subjects) == 1
    for number, subject in enumerate(subjects):
        by = subject.sections.calibration[benchmark].by
        for order, (name, bins) in enumerate(by.items()):
            if not alone and name not in OWN_SCORES:
                continue
            count = len(bins.fnmr)
            label = name if alone else f"{subject.label}, {name}"
            draw_points(
                axes,
                # Beside each other, not upon each other.
                (np.arange(count) + 0.5) / count + (order - len(by) / 2) * 0.008,
                bins.fnmr,
                y_ends=(bins.low, bins.high) if order == 0 else None,
                label=f"{label}, ρ {bins.spearman:.2f}",
                color=color(order if alone else number),
                linestyle="-" if alone else line(order),
                markersize=3.5,
                linewidth=1.3,
            )
    label = f"FNMR at FMR {rate(subjects[0].sections.calibration[benchmark].fmr)}"
    limits: Any = {"xlim": (0, 1), "ylim": (0, None)}
    return finish(
        figure, axes, "xy", xlabel="genuine pairs by quality, worst to best", ylabel=label, **limits
    )


def league_curves(
    curves: Mapping[str, Mapping[str, Curves]],
    rejected: Curves,
    colors: Sequence[str],
    bound: str,
    label: str,
) -> str:
    """FNMR ``(R,)`` over the share of genuine pairs rejected ``(R,)``, by recognizer, a panel for each, and quality.

    Args:
        colors: qualities in the order of their colors.
        bound: label of the best possible order, drawn as a reference.
    """
    figure, every = panels(len(curves))
    inside = rejected <= LEAGUE_LEFT_OUT + 1e-9
    for axes, (recognizer, by_quality) in zip(every, curves.items(), strict=True):
        for number, quality in enumerate(colors):
            if quality in by_quality:
                look = {"color": color(number), "linestyle": line(number // 12)}
                draw_line(axes, rejected[inside], by_quality[quality][inside], label=quality, **look)
        if bound in by_quality:
            draw_reject_references(axes, rejected[inside], by_quality[bound][inside])
        axes.set(xlim=(0, LEAGUE_LEFT_OUT), ylim=(0, None))
        title(axes, recognizer)
        rate_axes(axes, "xy")
    every[0].set_ylabel(label)
    every[-1].set_xlabel("genuine pairs rejected")
    return finish_panels(figure, every)


def two_uses(points: Mapping[str, tuple[float, float]], others: str) -> str:
    """A point for each quality: non-faces rejected, by TNR at TPR 95%, against errors left, by mean area."""
    figure, axes = new_figure()
    labels = []
    for number, (quality, point) in enumerate(points.items()):
        axes.plot(*point, "o", color=color(number), clip_on=False)
        labels.append((quality, point, color(number)))
    axes.margins(0.15)
    axes.axhline(1, linestyle="--", color=REFERENCE, linewidth=1.2)
    axes.set(
        xlabel=f"{others} rejected while 95% of the faces are kept", ylabel="mean area (lower is better)"
    )
    rate_axes(axes, "x")
    draw_labels(figure, axes, labels)
    return svg(figure)


def balance(methods: Sequence[tuple[str, Sequence[Point]]], score: str, sets: Sequence[str]) -> str:
    """A labeled point for each method: verification against the rejection of non-faces (the RTS paper's Fig. 9).

    Bars are the 95% interval of a single run. Several runs are small points around their mean, whose bars reach from
    the lowest to the highest. Colors are by the place in the order of methods, and no runs draw nothing. Accuracy is
    the mean of the benchmarks in ``sets``.
    """
    figure, axes = new_figure()
    labels = []
    for number, (label, points) in enumerate(methods):
        if not points:
            continue
        look: Any = {"color": color(number), "clip_on": False}
        x, y = (_center(numbers) for numbers in zip(*points, strict=True))
        draw_points(axes, x.value, y.value, x_ends=x.ci95, y_ends=y.ci95, **look)
        if len(points) > 1:
            values = [(auroc.value, accuracy.value) for auroc, accuracy in points]
            axes.plot(*zip(*values, strict=True), "o", markersize=2.5, alpha=0.6, **look)
        labels.append((label, (x.value, y.value), color(number)))
    axes.margins(0.15)
    title(axes, f"mean of {', '.join(sets)}" if len(sets) > 1 else sets[0])
    axes.set(xlabel=f"AUROC of {score}, faces against non-faces", ylabel="accuracy")
    rate_axes(axes, "xy")
    draw_labels(figure, axes, labels)
    return svg(figure)


def _center(runs: Sequence[Measured]) -> Measured:
    """A single run's number, or the mean of several from the lowest to the highest."""
    if len(runs) == 1:
        return runs[0]
    values = [run.value for run in runs]
    return Measured(fmean(values), (min(values), max(values)))


def accepted_by_group(groups: AttributeGroups) -> str:
    """The accepted share of each group with its 95% interval: a row for each group, a color for each quality."""
    names = list(dict.fromkeys(name for accepted in groups.accepted.values() for name in accepted.groups))
    row_height = INTERVAL * len(groups.accepted) + GAP
    figure, axes = new_figure(size=(SIZE[0], len(names) * row_height + MARGINS))
    for number, (quality, accepted) in enumerate(groups.accepted.items()):
        rows = np.array([row for row, name in enumerate(names) if name in accepted.groups])
        found = [accepted.groups[names[row]] for row in rows]
        shares, *ends = np.array([(one.accepted, *one.ci95) for one in found]).reshape(-1, 3).T
        places = rows + INTERVAL / row_height * (number - (len(groups.accepted) - 1) / 2)
        look: Any = {"color": color(number), "label": quality, "clip_on": False}
        draw_points(axes, shares, places, x_ends=ends, markersize=4, elinewidth=1.4, **look)
        axes.axvline(accepted.accepted, linestyle="--", linewidth=1, color=REFERENCE, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("accepted share of the images")
    rate_axes(axes, "x")
    if len(groups.accepted) > 1:
        legend_below(figure, axes)
    return svg(figure)


def change_points(subjects: Sequence[Subject], source: str) -> str:
    """Median percentile of a score against the cosine: a point for each change, a panel for each model."""
    figure, grid = panels(len(subjects), height=3.2, share=True)
    for axes, subject in zip(grid, subjects, strict=True):
        section = subject.sections.corruptions[source]
        families = list(dict.fromkeys(kind.family for kind in section.kinds.values()))
        for kind in section.kinds.values():
            ink, percentile = color(families.index(kind.family)), kind.by[section.first].percentile
            assert kind.cosine is not None  # callers leave out subjects without recognizers
            look: Any = {"markerfacecolor": "none"} if kind.held_out else {}
            if not kind.held_out and kind.family not in axes.get_legend_handles_labels()[1]:
                look["label"] = kind.family
            mark = HELD_OUT if kind.held_out else "o"
            axes.plot(kind.cosine[1:], percentile[1:], mark, color=ink, markersize=4, alpha=0.8, **look)
        axes.plot([], [], HELD_OUT, color=REFERENCE, markerfacecolor="none", label="held out")
        found = section.rank_correlation[section.first]
        values = f"ρ {found.all.value:.2f}"
        values += f", held out {found.held_out.value:.2f}" if found.held_out else ""
        title(axes, f"{subject.label}\n{values}" if len(subjects) > 1 else values)
        axes.set_xlabel("median cosine")
    grid[0].set_ylabel("percentile of the median")
    legend_below(figure, grid[0])
    return svg(figure)


def change_panels(subjects: Sequence[Subject], source: str, family: str) -> str:
    """What becomes of faces by severity, a panel for each kind of a family; of several models, the percentile alone."""
    sections = [subject.sections.corruptions[source] for subject in subjects]
    kinds = {name: kind for name, kind in sections[0].kinds.items() if kind.family == family}
    figure, grid = panels(len(kinds), height=1.7, share=True, columns=3)
    for axes, (name, first) in zip(grid, kinds.items(), strict=True):
        lines = [("cosine", sections[0], first.cosine)]
        for subject, section in zip(subjects, sections, strict=True):
            label = subject.label if len(subjects) > 1 else f"percentile of {section.first} / 100"
            kind = section.kinds.get(name)
            share = None if kind is None else [value / 100 for value in kind.by[section.first].percentile]
            lines.append((label, section, share))
        if len(subjects) == 1:
            kept = first.by[sections[0].first].kept
            lines += [("kept", sections[0], kept), ("not a face", sections[0], first.not_a_face)]
        for number, (label, section, values) in enumerate(lines):
            if values is not None:
                look: Any = {"color": color(number - 1) if number else REFERENCE, "clip_on": False}
                draw_line(axes, section.severity, values, label=label, **look)
        title(axes, name.replace("_", " ") + " (held out)" * first.held_out)
        axes.set(xlim=(0, 1), ylim=(0, 1))
    grid[-1].set_xlabel("severity")
    return finish_panels(figure, grid)


def training_curves(subjects: Sequence[Subject], kind: str, field: str, label: str) -> str:
    """A logged number over the epochs, a line for each run; those of validation are shares."""
    figure, axes = new_figure()
    for number, subject in enumerate(subjects):
        names = subject.names(kind, field)
        for name in names:
            epochs, values = subject.series(kind, field, name)
            look: Any = {
                "label": subject.label if name is None else f"{subject.label}, {name}",
                "linestyle": "-" if name is None else line(names.index(name) % 3),
                "marker": "o" if len(values) < 30 else None,
            }
            draw_line(axes, epochs, values, color=color(number), markersize=3, linewidth=1.3, **look)
    return finish(figure, axes, "y" if kind == "validation" else "", xlabel="epoch", ylabel=label)


def percentile_bands(methods: Sequence[tuple[str, Sequence[Subject]]], field: str, label: str) -> str:
    """Median and band from the 5th to the 95th percentile of a logged number; runs of a method share a color."""
    figure, axes = new_figure()
    for number, (name, runs) in enumerate(methods):
        text: str | None = f"{name}: median, 5 to 95%"
        for subject in runs:
            epochs, middle = subject.series("train", f"{field}_p50")
            if epochs:
                band = [subject.series("train", f"{field}_{percent}")[1] for percent in ("p5", "p95")]
                alpha = 0.25 / len(runs)
                draw_line(axes, epochs, middle, band, alpha=alpha, color=color(number), label=text)
                text = None
    return finish(figure, axes, xlabel="epoch", ylabel=label)
