"""The page: tables and figures from result folders, in one HTML file that needs nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from facerts.errors import MissingExtraError
from facerts.files import atomic_write
from facerts.report.subject import Subject, load_subjects
from facerts.version import __version__

REJECTED = (0.0, 0.05, 0.1, 0.2)
CURVES = {
    "cross_entropy": "cross-entropy",
    "kl": "KL divergence (Eq. 6)",
    "lr": "learning rate",
}


def write_report(folders: Sequence[str | Path], out: str | Path, *, title: str = "facerts report") -> None:
    """Write a report on one or several folders, side by side.

    Args:
        folders: result folders, runs, or folders that are both.
        out: the .html file.
        title: of the page.

    Raises:
        DataError: a folder has nothing to report.
        MissingExtraError: matplotlib or Jinja is not installed.
    """
    try:
        import jinja2

        from facerts.report import figures
    except ImportError as error:
        raise MissingExtraError("reports need matplotlib and Jinja: pip install 'facerts[report]'") from error
    subjects = load_subjects(folders)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["number"] = _number
    environment.filters["interval"] = _interval
    template = environment.from_string(
        resources.files("facerts.report").joinpath("page.html.j2").read_text(encoding="utf-8")
    )
    page = template.render(
        title=title,
        version=__version__,
        style=resources.files("facerts.report").joinpath("page.css").read_text(encoding="utf-8"),
        subjects=subjects,
        verification=[
            _with_figure(name, having, figures.roc_curves(having, name))
            for name, having in _by_name(subjects, "verification").items()
        ],
        reject=[
            {
                **_with_figure(name, having, figures.reject_curves(having, name, "fixed")),
                "per_rate": figures.reject_curves(having, name, "per_rate"),
                "rows": list(_reject_rows(having, name)),
            }
            for name, having in _by_name(subjects, "reject").items()
        ],
        ood=[
            {
                "subject": subject,
                "section": subject.result["ood"],
                "figures": [
                    figures.score_histograms(subject, score) for score in subject.result["ood"]["by"]
                ],
            }
            for subject in subjects
            if "ood" in subject.result
        ],
        training=_training(subjects, figures),
        rejected=REJECTED,
        commands=[
            (subject.label, [shlex.join(["facerts", *command[1:]]) for command in subject.result["command"]])
            for subject in subjects
            if subject.result
        ],
    )
    with atomic_write(out, "w") as file:
        file.write(page)


def _by_name(subjects: Sequence[Subject], kind: str) -> dict[str, list[Subject]]:
    """Benchmarks, and the subjects that have them."""
    names = dict.fromkeys(name for subject in subjects for name in subject.result.get(kind, {}))
    return {name: [s for s in subjects if name in s.result.get(kind, {})] for name in names}


def _with_figure(name: str, having: list[Subject], figure: str) -> dict[str, Any]:
    return {"name": name, "subjects": having, "figure": figure}


def _reject_rows(subjects: Sequence[Subject], name: str) -> Any:
    for subject in subjects:
        for curve in subject.result["reject"][name]:
            at = dict(zip(curve["rejected"], curve["fnmr"], strict=True))
            yield subject.label, curve, [at[share] for share in REJECTED]


def _training(subjects: Sequence[Subject], figures: Any) -> list[tuple[str, str]]:
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


def _number(value: float | None, digits: int = 4) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _interval(values: Sequence[float]) -> str:
    return f"[{values[0]:.4f}, {values[1]:.4f}]"
