"""The sections of the page, from results and training logs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from facerts.evaluation.measure import Evaluation, Measure
from facerts.evaluation.wording import joined
from facerts.io.redact import redacted_argument
from facerts.report.figures import Drawn, draw
from facerts.report.measure_tables import measure_tables, summary_table
from facerts.report.page_elements import Figure, PagePart, PageSection, walls_of
from facerts.report.subject import Subject
from facerts.report.table import Table
from facerts.report.training_plots import logged_plots, uncertainty_plots


class Verdict(NamedTuple):
    """What the numbers say of one model, or between models: topics with their sentences."""

    title: str
    findings: list[tuple[str, list[str]]]


def verdicts(subjects: Sequence[Subject], between: Sequence[tuple[str, list[str]]] | None = None) -> list[Verdict]:
    """A verdict on each model with results, and one between them, by default what single intervals allow to say."""
    each = [
        Verdict(
            subject.label,
            [(topic_of(name, one), one.findings) for _, name, one in subject.sections() if one.findings],
        )
        for subject in subjects
    ]
    last = Verdict("Between models", list(_rankings(subjects) if between is None else between))
    return [verdict for verdict in (*each, last) if verdict.findings]


def topic_of(name: str, section: Evaluation) -> str:
    """A data set and what was evaluated on it."""
    kind = section.title.partition(":")[0]
    return kind if kind.endswith(name) else f"{name}, {kind[0].lower()}{kind[1:]}"


def summary(subjects: Sequence[Subject]) -> Table | None:
    """The few numbers that people look for first."""
    having = [subject for subject in subjects if subject.result is not None]
    columns = [
        {
            ", ".join([name, *one.of.values(), one.name]): one
            for _, name, section in subject.sections()
            for one in section.measures
            if one.headline
        }
        for subject in having
    ]
    table = summary_table([subject.label for subject in having], columns)
    return table if table.rows else None


def evaluations(subjects: Sequence[Subject]) -> list[PageSection]:
    """A section for each kind of evaluation, with a part for each benchmark or source."""
    found: dict[tuple[str, str], list[tuple[Subject, Evaluation]]] = {}
    for subject in subjects:
        for kind, name, section in subject.sections():
            found.setdefault((kind, name), []).append((subject, section))
    sections: dict[str, PageSection] = {}
    for (kind, name), having in found.items():
        title = having[0][1].title
        sections.setdefault(kind, PageSection(kind, title.partition(":")[0], title, []))
        sections[kind].parts.append(_part(kind, name, having))
    return list(sections.values())


def text_of(section: Evaluation) -> str:
    """How the numbers are read, and what was left out."""
    left_out = [f" {what.capitalize()} are without {pattern}." for what, pattern in section.excluded.items()]
    return section.text + "".join(left_out)


def _part(kind: str, name: str, having: Sequence[tuple[Subject, Evaluation]]) -> PagePart:
    first = having[0][1]
    alone = len(having) == 1
    prefix = f"{kind}/{name}/"
    drawn: dict[str, list[Drawn]] = {}
    for subject, section in having:
        for plot in section.plots:
            drawn.setdefault(plot.name, []).append(Drawn(subject.label, plot, subject.arrays_of(prefix)))
    figures = [
        (each[0].plot, Figure(image, each[0].plot.caption, f"{each[0].plot.name}_{name}"))
        for each in drawn.values()
        if (image := draw(each))
    ]
    return PagePart(
        name,
        tables=measure_tables([("" if alone else subject.label, section) for subject, section in having]),
        figures=[figure for plot, figure in figures if not plot.folded],
        text=text_of(first),
        notes=list(dict.fromkeys(note for _, section in having for note in section.notes)),
        more=("More figures", [figure for plot, figure in figures if plot.folded]),
        walls=[wall for subject, _ in having for wall in walls_of(subject, prefix)],
    )


def _rankings(subjects: Sequence[Subject]) -> Iterator[tuple[str, list[str]]]:
    """What single intervals of several models allow to say."""
    found: dict[str, list[tuple[str, Evaluation, Measure]]] = {}
    for subject in subjects:
        for kind, name, section in subject.sections():
            first = next((one for one in section.measures if one.headline and one.test is not None), None)
            if first is not None and first.ci95 is not None and first.value is not None:
                found.setdefault(f"{kind}/{name}", []).append((subject.label, section, first))
    for key, estimates in found.items():
        name = key.partition("/")[2]
        if len(estimates) < 2:
            continue
        data = [section.data_sha256 for _, section, _ in estimates]
        if not all(one and one == data[0] for one in data):
            yield name, ["The models were not measured on the same data: their numbers cannot be compared."]
            continue
        (best, _, top), *others = sorted(estimates, key=lambda one: -(one[2].value or 0.0))
        low = (top.ci95 or (0.0, 0.0))[0]
        near = [label for label, _, one in others if (one.ci95 or (0.0, 1.0))[1] >= low]
        if near:
            yield (
                name,
                [
                    f"These results alone show no clear difference between {joined([best, *near])}: their intervals "
                    "overlap. facerts compare measures differences on the same pairs and images."
                ],
            )
            continue
        rest, above = joined([label for label, _, _ in others]), "theirs" if len(others) > 1 else "the other"
        yield name, [f"{best} is better than {rest} in {top.name}: its interval lies above {above}."]


def training(subjects: Sequence[Subject]) -> PageSection:
    """Curves of the runs, in one part."""
    plots = [*logged_plots(subjects), *uncertainty_plots([(one.label, [one]) for one in subjects])]
    drawn = [plot.figure() for plot in plots if plot.curves]
    # What was logged once is no curve.
    once = [fact for plot in plots if not plot.curves for fact in plot.facts]
    if not (drawn or once):
        return PageSection("training", "Training", "Training", [])
    parts = [
        PagePart(notes=notes) if (notes := _other_models(subjects)) else None,
        PagePart(figures=drawn) if drawn else None,
        PagePart(text="Logged only once, so there is no curve:", facts=once) if once else None,
    ]
    return PageSection("training", "Training", "Training", [part for part in parts if part is not None])


def _other_models(subjects: Sequence[Subject]) -> list[str]:
    """What keeps readers from taking a training for that of the models with results."""
    models = {one.label: one.result.model.recipe_sha256 for one in subjects if one.result is not None}
    notes = []
    for run in subjects:
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


def provenance(subjects: Sequence[Subject]) -> PageSection:
    """Of each model: commands, versions, and the hashes of model and data."""
    parts = []
    for subject in subjects:
        if subject.result is None:
            continue
        model, versions = subject.result.model, subject.result.versions
        facts = [
            ("measured", f"{subject.result.created[:16].replace('T', ' ')} UTC"),
            ("model", f"{model.method}, SHA-256 {model.sha256}"),
            *(
                (f"{kind} {source}", f"SHA-256 {sha256}")
                for kind, _, section in subject.sections()
                for source, sha256 in section.data_sha256.items()
            ),
            ("versions", ", ".join(f"{name} {version}" for name, version in versions.items())),
        ]
        commands = [shlex.join(["facerts", *map(redacted_argument, command[1:])]) for command in subject.result.command]
        parts.append(PagePart(subject.label, facts=facts, commands=commands))
    return PageSection("provenance", "Provenance", "How these numbers were computed", parts)
