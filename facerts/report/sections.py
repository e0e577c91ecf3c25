"""What each section of the page shows; the template only lays it out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from facerts.io.shown import shown_argument
from facerts.report import figures
from facerts.report.pictures import best_and_worst, worst_pairs
from facerts.report.subject import Subject

REJECTED = (0.0, 0.05, 0.1, 0.2)
CURVES = {
    "cross_entropy": "cross-entropy",
    "kl": "KL divergence (Eq. 6)",
    "lr": "learning rate",
}


def summary(subjects: Sequence[Subject]) -> dict[str, Any] | None:
    """One row for each model: the few numbers that people look for first."""
    having = [subject for subject in subjects if subject.result]
    columns = list(dict.fromkeys(head for subject in having for head, *_ in _headline(subject)))
    if not columns:
        return None
    rows = []
    for subject in having:
        cells = {head: (value, interval) for head, value, interval in _headline(subject)}
        rows.append((subject, [cells.get(head) for head in columns]))
    return {"columns": columns, "rows": rows}


def _headline(subject: Subject) -> list[tuple[str, float, Any]]:
    """Heading, value and interval of each number."""
    found: list[tuple[str, float, Any]] = []
    for name, section in subject.result.get("verification", {}).items():
        if section.get("accuracy"):
            found.append((f"{name}: accuracy", section["accuracy"]["value"], section["accuracy"]["ci95"]))
        measured, what = (section["all_pairs"], "all pairs") if "all_pairs" in section else (section, "pairs")
        far = "0.001" if "0.001" in measured["tar_at_far"] else next(iter(measured["tar_at_far"]), None)
        if far is not None:
            point = measured["tar_at_far"][far]
            found.append((f"{name}, {what}: TAR at FAR {far}", point["value"], point["ci95"]))
    for name, section in subject.result.get("identification", {}).items():
        first = section["searches"][0]
        rank = next(iter(first["rank"]))
        found.append((f"{name}: rank {rank}", first["rank"][rank]["value"], first["rank"][rank]["ci95"]))
    for name, curves in subject.result.get("reject", {}).items():
        best = [curve for curve in curves if curve["convention"] == "fixed"][-1]["pairs"]
        curve = figures_chosen(curves, best)
        heading = f"{name}: mean FNMR to 20 % rejected"
        found.append((heading, curve["area"]["0.2"], curve.get("ci95", {}).get("0.2")))
    if "ood" in subject.result:
        score, numbers = next(iter(subject.result["ood"]["by"].items()))
        found.append((f"others, by {score}: AUROC", numbers["auroc"], numbers["ci95"]["auroc"]))
        found.append(
            (f"others, by {score}: TNR at TPR 95", numbers["tnr_at_tpr"]["0.95"], numbers["ci95"]["0.95"])
        )
    return found


def figures_chosen(curves: Sequence[dict[str, Any]], pairs: str) -> dict[str, Any]:
    """The first curve with a fixed threshold on a set of pairs: that of the model's own quality."""
    return next(curve for curve in curves if curve["convention"] == "fixed" and curve["pairs"] == pairs)


def verification(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, "verification").items():
        rows: list[tuple[str, dict[str, Any]]] = []
        for subject in having:
            section = subject.result["verification"][name]
            rows.append((subject.label, section))
            if "all_pairs" in section:
                rows.append((f"{subject.label}, all pairs", section["all_pairs"]))
        listed = [subject for subject in having if f"verification/{name}/scores" in subject.arrays]
        drawn = [subject for subject in having if f"verification/{name}/roc_far" in subject.arrays]
        parts.append(
            {
                "name": name,
                "rows": rows,
                "fars": sorted({far for _, s in rows for far in s["tar_at_far"]}, key=float, reverse=True),
                "first": having[0].result["verification"][name],
                "curves": [figures.roc_curves(drawn, name), figures.det_curves(drawn, name)] if drawn else [],
                "histograms": [(s.label, figures.pair_histograms(s, name)) for s in listed],
                "errors": [(s.label, worst_pairs(s, name)) for s in listed],
                "faces": [
                    (s.label, found)
                    for s in listed
                    for score in figures.OWN_SCORES
                    if (found := best_and_worst(s, f"verification/{name}/", score))
                ],
            }
        )
    return parts


def reject(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, "reject").items():
        rows = []
        for subject in having:
            for curve in subject.result["reject"][name]:
                at = dict(zip(curve["rejected"], curve["fnmr"], strict=True))
                label = f"{subject.label}, {curve['by']}"
                rows.append((label, curve, [at[share] for share in REJECTED]))
        every = [s for s in having if any(c["pairs"] == "all" for c in s.result["reject"][name])]
        calibrated = [s for s in having if name in s.result.get("calibration", {})]
        fixed = figures.reject_curves(having, name, "fixed")
        parts.append(
            {
                "name": name,
                "rows": rows,
                "first": rows[0][1],
                "curves": [
                    ("The benchmark's pairs; threshold fixed, chosen once on all impostor pairs.", fixed),
                    *(
                        [("Every pair of its pictures; threshold fixed.", _every(every, name))]
                        if every
                        else []
                    ),
                ],
                "per_rate": figures.reject_curves(having, name, "per_rate"),
                "reliability": figures.reliability(calibrated, name) if calibrated else None,
            }
        )
    return parts


def _every(subjects: Sequence[Subject], name: str) -> str:
    return figures.reject_curves(subjects, name, "fixed", "all")


def ood(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A part for each model."""
    parts = []
    for subject in subjects:
        if "ood" not in subject.result:
            continue
        section = subject.result["ood"]
        score = next(iter(section["by"]))
        parts.append(
            {
                "subject": subject,
                "section": section,
                "figures": [figures.score_histograms(subject, name) for name in section["by"]],
                "pictures": [
                    (source, found)
                    for source in (*section["in"], *section["out"])
                    if (found := best_and_worst(subject, f"ood/{source}/", score))
                ],
            }
        )
    return parts


def ladder(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A part for each source of faces: the model's quality, and similarity to the picture as it was."""
    parts = []
    for name, having in by_name(subjects, "ladder").items():
        rows = [
            (subject.label, kind, score, measured)
            for subject in having
            for kind, steps in subject.result["ladder"][name]["kinds"].items()
            for score, measured in steps["by"].items()
        ]
        first = having[0].result["ladder"][name]
        scores = list(next(iter(first["kinds"].values()))["by"])
        grids = [(score, figures.ladder_grid(having, name, score)) for score in ("cosine", *scores)]
        parts.append({"name": name, "first": first, "rows": rows, "grids": grids})
    return parts


def identification(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """A part for each benchmark."""
    parts = []
    for name, having in by_name(subjects, "identification").items():
        rows = [
            (subject.label, search)
            for subject in having
            for search in subject.result["identification"][name]["searches"]
        ]
        parts.append(
            {
                "name": name,
                "rows": rows,
                "ranks": list(dict.fromkeys(k for _, s in rows for k in s["rank"])),
                "fpirs": list(dict.fromkeys(f for _, s in rows for f in s.get("fnir_at_fpir", {}))),
                "first": having[0].result["identification"][name],
            }
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


def provenance(subjects: Sequence[Subject]) -> list[dict[str, Any]]:
    """Of each model: commands, versions, and the hashes of model and data."""
    told = []
    for subject in subjects:
        if not subject.result:
            continue
        data = {
            f"{kind} {name}": section["data_sha256"]
            for kind in ("verification", "identification", "ladder")
            for name, section in subject.result.get(kind, {}).items()
        }
        data.update(
            {f"ood {name}": sha for name, sha in subject.result.get("ood", {}).get("data_sha256", {}).items()}
        )
        told.append(
            {
                "subject": subject,
                # Older results have paths as they were given.
                "commands": [
                    shlex.join(["facerts", *map(shown_argument, command[1:])])
                    for command in subject.result["command"]
                ],
                "data": data,
            }
        )
    return told


def by_name(subjects: Sequence[Subject], kind: str) -> dict[str, list[Subject]]:
    """Benchmarks, and the subjects that have them."""
    names = dict.fromkeys(name for subject in subjects for name in subject.result.get(kind, {}))
    return {name: [s for s in subjects if name in s.result.get(kind, {})] for name in names}
