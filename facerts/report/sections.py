"""The sections of the page, from results and training logs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import NamedTuple

from facerts.evaluation.measure import Evaluation
from facerts.evaluation.method_runs import MethodRuns
from facerts.evaluation.saved_result import SavedResult
from facerts.evaluation.wording import joined
from facerts.io.redact import redacted_argument
from facerts.report.figures import Drawn, draw
from facerts.report.page_elements import Figure, PagePart, PageSection, walls_of
from facerts.report.table import Table, measure_tables, summary_table
from facerts.report.training_log import logged_figures, trained, uncertainty_figures


class Verdict(NamedTuple):
    """What the numbers say of one model, or between models: topics with their sentences."""

    title: str
    findings: list[tuple[str, list[str]]]


def verdicts(runs: Sequence[SavedResult], between: Sequence[tuple[str, list[str]]] | None = None) -> list[Verdict]:
    """A verdict on each model with results and on each training, and one between them, as a comparison found it."""
    each = []
    for run in runs:
        said = [(topic_of(name, one), one.findings) for _, name, one in run.sections()]
        each.append(Verdict(run.label, [found for found in (*said, ("training", trained(run))) if found[1]]))
    last = Verdict("Between models", list(between or ()))
    if between is None and sum(run.result is not None for run in runs) > 1:
        last.findings.append(("Differences", ["facerts compare tests them on the same pairs and images."]))
    return [verdict for verdict in (*each, last) if verdict.findings]


def topic_of(name: str, section: Evaluation) -> str:
    """A data set and what was evaluated on it."""
    kind = section.title.partition(":")[0]
    return kind if kind.endswith(name) else f"{name}, {kind[0].lower()}{kind[1:]}"


def summary(runs: Sequence[SavedResult]) -> Table | None:
    """The few numbers that people look for first."""
    having = [run for run in runs if run.result is not None]
    columns = [
        {
            ", ".join([name, *one.of.values(), one.name]): one
            for _, name, section in run.sections()
            for one in section.measures
            if one.headline
        }
        for run in having
    ]
    table = summary_table([run.label for run in having], columns)
    return table if table.rows else None


def evaluations(runs: Sequence[SavedResult]) -> list[PageSection]:
    """A section for each kind of evaluation, with a part for each benchmark or source."""
    found: dict[tuple[str, str], list[tuple[SavedResult, Evaluation]]] = {}
    for run in runs:
        for kind, name, section in run.sections():
            found.setdefault((kind, name), []).append((run, section))
    sections: dict[str, PageSection] = {}
    for (kind, name), having in found.items():
        title = having[0][1].title
        sections.setdefault(kind, PageSection(kind, title.partition(":")[0], title, []))
        sections[kind].parts.append(_part(kind, name, having))
    return list(sections.values())


def _part(kind: str, name: str, having: Sequence[tuple[SavedResult, Evaluation]]) -> PagePart:
    first = having[0][1]
    alone = len(having) == 1
    prefix = f"{kind}/{name}/"
    drawn: dict[str, list[Drawn]] = {}
    for run, section in having:
        for plot in section.plots:
            drawn.setdefault(plot.name, []).append(Drawn(run.label, plot, run.arrays_of(prefix)))
    figures = [
        (each[0].plot, Figure(image, each[0].plot.caption, f"{each[0].plot.name}_{name}"))
        for each in drawn.values()
        if (image := draw(each))
    ]
    return PagePart(
        name,
        tables=measure_tables([("" if alone else run.label, section) for run, section in having]),
        figures=[figure for plot, figure in figures if not plot.folded],
        text=first.explained,
        notes=list(dict.fromkeys(note for _, section in having for note in section.notes)),
        more=("More figures", [figure for plot, figure in figures if plot.folded]),
        walls=[wall for run, _ in having for wall in walls_of(run, prefix)],
    )


def training(runs: Sequence[SavedResult]) -> PageSection:
    """Curves of the runs, in one part."""
    figures = [*logged_figures(runs), *uncertainty_figures([MethodRuns(one.label, (one,)) for one in runs])]
    parts = [PagePart(notes=_other_models(runs)), PagePart(figures=figures)]
    return PageSection("training", "Training", "Training", [part for part in parts if part.notes or part.figures])


def _other_models(runs: Sequence[SavedResult]) -> list[str]:
    """What keeps readers from taking a training for that of the models with results."""
    models = {one.label: one.model.recipe_sha256 for one in runs if one.result is not None}
    notes = []
    for run in runs:
        if not run.log:
            continue
        if run.result is not None:
            if run.recipe_sha256 and models[run.label] and run.recipe_sha256 != models[run.label]:
                notes.append(
                    f"The training in the folder of {run.label}'s results is that of another model: its recipe is not "
                    f"the one that {run.label} was trained with."
                )
        elif models and (not run.recipe_sha256 or run.recipe_sha256 not in models.values()):
            unknown = [label for label, recipe in models.items() if not (recipe and run.recipe_sha256)]
            others = [label for label in models if label not in unknown]
            if others:
                notes.append(
                    f"{run.label} is the training of another model than {joined(others)}: the results above are not of "
                    "what was trained here."
                )
            if unknown:
                notes.append(
                    f"Whether {joined(unknown)} came from the training {run.label} is unknown: the results do not say "
                    "which recipe made the model."
                )
    return notes


def provenance(runs: Sequence[SavedResult]) -> PageSection:
    """Of each model: commands, versions, and the hashes of model and data."""
    parts = []
    for run in runs:
        if run.result is None:
            continue
        model, versions = run.result.model, run.result.versions
        facts = [
            ("measured", f"{run.result.created[:16].replace('T', ' ')} UTC"),
            ("model", f"{model.method}, SHA-256 {model.sha256}"),
            *(
                (f"{kind} {source}", f"SHA-256 {sha256}")
                for kind, _, section in run.sections()
                for source, sha256 in section.data_sha256.items()
            ),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ]
        commands = [shlex.join(["facerts", *map(redacted_argument, command[1:])]) for command in run.result.command]
        parts.append(PagePart(run.label, facts=facts, commands=commands))
    return PageSection("provenance", "Provenance", "How these numbers were computed", parts)
