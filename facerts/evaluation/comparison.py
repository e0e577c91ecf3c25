"""Several methods on the same data: their numbers side by side, and which differences are more than chance.

Results of one label are training runs of one method: tables give their mean and range. The first result is the
reference of the paired differences; every other one is compared with it on the same pairs and images.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from facerts.errors import DataError
from facerts.evaluation.baselines import BASELINES, OWN_SCORES
from facerts.evaluation.measure import SCORE_KEYS, Evaluation, Measure, PairedTest, ResultPart, scores_of_rows
from facerts.evaluation.method_runs import MethodRuns, methods_of, runs_of
from facerts.evaluation.one_embedding import on_one_embedding
from facerts.evaluation.result_folder import ARRAYS_FILE, Arrays, naming_folders
from facerts.evaluation.saved_result import SavedResult, load_labeled
from facerts.evaluation.wording import joined, points, points_interval, score_in_words
from facerts.io.files import atomic_write
from facerts.metrics.intervals import pair_subjects
from facerts.metrics.paired import Difference, compare_scores

SCHEMA: Literal["facerts.comparison/1"] = "facerts.comparison/1"
# Scores of the images alone belong to no method.
OF_IMAGES = tuple(score for score in BASELINES if score != "neighbors")
EVERY, MEAN = "any", "mean"
TESTED = (
    "Bold: the best of its column, where the 95% interval of its paired difference from the second leaves out 0, not "
    "corrected for the number of columns. Where nothing is bold, the difference is not clear or no paired test was "
    "made."
)
UNTESTED = "Nothing is bold: no paired test was made of these numbers."
SEVERAL = "Of several training runs: their mean and, in parentheses, the lowest and the highest."


class ComparedModel(ResultPart):
    """A result that is compared."""

    label: str = Field(description="Name in tables; for several runs of a method `LABEL, run 1` and so on.")
    folder: str = Field(description="The result folder; only its name if it is outside the working directory.")
    name: str = Field(description="Name of the model.")
    sha256: str = Field(description="SHA-256 of the model's file.")


class ComparedMethod(ResultPart):
    """A method with one training run or several."""

    label: str = Field(description="Name in tables and figures.")
    runs: list[ComparedModel] = Field(description="Its results.")


class Comparison(ResultPart):
    """Several methods on the same data."""

    schema_: Annotated[
        Literal["facerts.comparison/1"], Field(alias="schema", description="Name and version of this format.")
    ]
    methods: list[ComparedMethod] = Field(description="Methods, in the given order.")
    reference: ComparedModel = Field(description="The first result; the others are tested against it.")
    text: str = Field(description="How the tables are read.")
    sections: list[Evaluation] = Field(description="Tables of all methods, by `method` and score.")
    differences: list[Evaluation] = Field(
        description="Paired differences of every other result from the reference, by `model` and score."
    )
    embedding: str = Field(description="Label of the method on whose embedding all qualities are measured.")
    notes: list[str] = Field(description="Notes on what could not be compared.")


def compare(folders: Sequence[str | Path], *, embedding: str | None = None) -> tuple[Comparison, Arrays]:
    """Compare result folders, given as ``FOLDER`` or ``LABEL=FOLDER``; see ``compare_methods``."""
    return compare_methods(methods_of(load_labeled(folders)), embedding=embedding)


def compare_methods(methods: Sequence[MethodRuns], *, embedding: str | None = None) -> tuple[Comparison, Arrays]:
    """Tables of all methods, paired differences of every result from the first, and the arrays of their figures.

    Benchmarks that were measured on other data (by their hash) are not tested; a note says so. All qualities are
    measured on the embedding of the method that ``embedding`` names, by default of the first.
    """
    with naming_folders([run.folder for method in methods for run in method.runs]):
        return _compared(methods, embedding)


def write_comparison(comparison: Comparison, arrays: Arrays, folder: str | Path) -> None:
    """Write ``comparison.json``, and the arrays of its figures, into a folder."""
    with atomic_write(Path(folder) / ARRAYS_FILE) as binary:
        np.savez_compressed(binary, **arrays)  # type: ignore[arg-type]
    with atomic_write(Path(folder) / "comparison.json", "w") as file:
        json.dump(comparison.to_json(), file, indent=1, ensure_ascii=False, allow_nan=False)


def _compared(methods: Sequence[MethodRuns], embedding: str | None) -> tuple[Comparison, Arrays]:
    first, *others = runs_of(methods)
    if not others:
        raise DataError("a comparison needs at least two result folders")
    embedder = chosen(methods, embedding)
    notes: list[str] = []
    differences = list(_differences(first, others, notes))
    if not any(_same_data(first, run, kind, name) for run in others for kind, name, _ in first.sections()):
        raise DataError(
            f"{first.folder} has nothing in common with {', '.join(str(run.folder) for run in others)}: "
            + " ".join(["evaluate them on the same benchmarks.", *notes])
        )
    sections = [*_accuracies(methods), *_side_by_side(methods)]
    tested = any(measure.mark for section in sections for measure in section.measures)
    embedded, arrays = on_one_embedding(methods, embedder, notes)
    several = any(len(method.runs) > 1 for method in methods)
    comparison = Comparison(
        schema_=SCHEMA,
        methods=[ComparedMethod(label=method.label, runs=list(map(_model, method.runs))) for method in methods],
        reference=_model(first),
        text=f"In brackets: 95% intervals. {f'{SEVERAL} ' if several else ''}{TESTED if tested else UNTESTED}",
        sections=[*sections, *embedded],
        differences=differences,
        embedding=embedder.label,
        notes=list(dict.fromkeys(notes)),
    )
    return comparison, arrays


def chosen(methods: Sequence[MethodRuns], label: str | None) -> MethodRuns:
    """The method whose embedding is used: the first, where no label is given."""
    for method in methods:
        if label is None or method.label == label:
            return method
    raise DataError(
        f"no result is called {label!r}; --embedding takes one of {', '.join(method.label for method in methods)}"
    )


def _model(run: SavedResult) -> ComparedModel:
    return ComparedModel(label=run.label, folder=run.place, name=run.model.name, sha256=run.model.sha256)


def _same_data(one: SavedResult, other: SavedResult, kind: str, name: str) -> bool:
    """Whether both were measured on the same images, and the same pairs of them where these are listed."""
    first, second = (run.of_kind(kind).get(name) for run in (one, other))
    if first is None or second is None:
        return False
    hashes = [sorted(section.data_sha256.values()) for section in (first, second)]
    pairs = [run.arrays.get(f"{kind}/{name}/pairs") for run in (one, other)]
    if (pairs[0] is None) != (pairs[1] is None):
        return False
    same_pairs = pairs[0] is None or pairs[1] is None or np.array_equal(pairs[0], pairs[1])
    return hashes[0] == hashes[1] and bool(hashes[0]) and same_pairs


def difference_of(
    one: tuple[SavedResult, Measure], other: tuple[SavedResult, Measure], kind: str, name: str
) -> Difference | None:
    """One measure minus another, people resampled where they are known; None where no paired test can say."""
    (first, measure), (second, of_other) = one, other
    test, against = measure.test, of_other.test
    if test is None or against is None or not _same_data(first, second, kind, name):
        return None
    prefix = f"{kind}/{name}/"

    def joined_arrays(run: SavedResult, of: PairedTest) -> NDArray[np.floating]:
        return np.concatenate([run.array(prefix + key) for key in (*of.faces, *of.others)])

    far, tpr = (test.at if test.statistic == name else None for name in ("tar_at_far", "tnr_at_tpr"))
    if test.faces:
        ours, theirs = joined_arrays(first, test), joined_arrays(second, against)
        faces = sum(len(first.array(prefix + key)) for key in test.faces)
        found = compare_scores(ours, theirs, np.arange(len(ours)) < faces, tpr=tpr)
    else:
        found = compare_scores(
            first.array(prefix + "scores"),
            second.array(prefix + "scores"),
            second.array(prefix + "same"),
            folds=second.array(prefix + "folds") if test.statistic == "accuracy" else None,
            far=far,
            subjects=pair_subjects(second.arrays.get(prefix + "subjects"), second.array(prefix + "pairs")),
        )
    difference = found[test.statistic]
    if test.statistic != "tar_at_far":
        return difference
    # FNMR is 1 − TAR.
    low, high = difference.ci95
    return Difference(-difference.value, (-high, -low), difference.p_value, difference.unit)


def _differences(first: SavedResult, others: Sequence[SavedResult], notes: list[str]) -> Iterator[Evaluation]:
    """A section for each evaluation that another result shares with the reference."""
    for kind, name, section in first.sections():
        tested = [one for one in section.measures if one.test is not None]
        measures, findings = [], []
        for run in others:
            own = run.of_kind(kind).get(name)
            if own is None:
                continue
            if not _same_data(first, run, kind, name):
                notes.append(
                    f"{kind} of {name}: {run.place} was measured on other images or pairs than {first.place}; no "
                    "difference between them is tested, and their numbers may not compare."
                )
                continue
            for measure in _strictest(tested):
                theirs = own.find(measure.name, **measure.of)
                if theirs is None or _same_scores(first, run, kind, name, measure):
                    continue
                found = difference_of((run, theirs), (first, measure), kind, name)
                if found is None:
                    continue
                score = scores_of_rows(measure)
                row = {"model": run.label} | ({} if score is None else {"score": score})
                low, high = found.ci95
                measures.append(
                    Measure(
                        name=measure.name,
                        of=row,
                        value=found.value,
                        ci95=found.ci95,
                        p_value=found.p_value,
                        better=measure.better,
                        format="points",
                        mark="clear" if low > 0 or high < 0 else "",
                    )
                )
                if measure.name != "AUROC" and score in (None, scores_of_rows(tested[0])):
                    findings.append(_finding(run.label, first.label, measures[-1], score))
        if measures:
            unit = "people" if "subjects" in (section.interval or "") else (section.interval or "").split()[-1]
            text = f"{name}: {unit} are resampled."
            yield Evaluation(title=name, interval=section.interval, text=text, findings=findings, measures=measures)


def _finding(label: str, reference: str, difference: Measure, score: str | None) -> str:
    of = difference.name + ("" if score is None else f" by {score_in_words(score)}")
    low, high = difference.ci95 or (0.0, 0.0)
    measured = f"{points(difference.value or 0.0)} percentage points {points_interval((low, high))}"
    if low <= 0 <= high:
        return f"{label} shows no clear difference from {reference} in {of}: {measured}."
    better = (low > 0) == (difference.better == "higher")
    return f"{label} is {'better' if better else 'worse'} than {reference} in {of}: {measured}."


def _strictest(tested: Sequence[Measure]) -> list[Measure]:
    """Of the first row of each score, every statistic, at the lowest FAR and the highest TPR."""
    first = {key: value for key, value in tested[0].of.items() if key != "score"} if tested else {}
    chosen_of: dict[tuple[str | None, str], Measure] = {}
    for measure in tested:
        if first.items() <= measure.of.items() and measure.test is not None:
            key, at = (scores_of_rows(measure), measure.test.statistic), measure.test.at
            before = chosen_of.get(key)
            if (
                before is None
                or before.test is None
                or at is None
                or before.test.at is None
                or (at < before.test.at) == (measure.test.statistic == "tar_at_far")
            ):
                chosen_of[key] = measure
    return list(chosen_of.values())


def _same_scores(one: SavedResult, other: SavedResult, kind: str, name: str, measure: Measure) -> bool:
    """Whether a score of the images alone is the same for both models."""
    test = measure.test
    if test is None or scores_of_rows(measure) not in BASELINES:
        return False
    return all(
        np.array_equal(one.array(f"{kind}/{name}/{key}"), other.array(f"{kind}/{name}/{key}"))
        for key in (*test.faces, *test.others)
    )


def accuracy_of(run: SavedResult, names: Sequence[str]) -> Measure | None:
    """Accuracy on a benchmark, or the mean over several, where the run has all of them.

    The interval of a mean is made from those of the benchmarks by squaring and adding the distances to each end (Zou
    and Donner, Statistics in Medicine 2008), which takes the benchmarks as independent.
    """
    each = []
    for name in names:
        section = run.of_kind("verification").get(name)
        found = None if section is None else section.find("accuracy")
        if found is None or found.value is None or found.ci95 is None:
            return None
        each.append((found.value, *found.ci95))
    if len(each) == 1:
        (value, low, high), *_ = each
    else:
        value = math.fsum(one for one, _, _ in each) / len(each)
        low = value - math.hypot(*(one - end for one, end, _ in each)) / len(each)
        high = value + math.hypot(*(end - one for one, _, end in each)) / len(each)
    return Measure(name=MEAN, value=value, ci95=(low, high), better="higher")


def accuracy_sets(methods: Sequence[MethodRuns]) -> list[str]:
    """Benchmarks of the mean: those with an accuracy by folds whose pairs are compared by the cosine."""
    names = {
        name: section
        for run in runs_of(methods)
        for name, section in run.of_kind("verification").items()
        if section.find("accuracy") is not None
    }
    return [name for name, section in names.items() if section.settings.get("similarity") == "cosine"]


def _accuracies(methods: Sequence[MethodRuns]) -> Iterator[Evaluation]:
    """Accuracy on every benchmark and the mean of all (Table 3 of the RTS paper)."""
    names = accuracy_sets(methods)
    if len(names) < 2:
        return
    measures = []
    for method in methods:
        for name, sets in (*((name, [name]) for name in names), (MEAN, names)):
            cell = method.mean(lambda run, sets=sets: accuracy_of(run, sets))  # type: ignore[misc]
            if cell is not None:
                measures.append(cell.model_copy(update={"name": name, "of": _row(methods, method)}))
    yield Evaluation(
        title="Verification accuracy",
        text=f"The mean is over {joined(names)}; its interval takes them as independent, and it is not tested.",
        measures=measures,
    )


def _row(methods: Sequence[MethodRuns], method: MethodRuns) -> dict[str, str]:
    several = any(len(one.runs) > 1 for one in methods)
    return {"method": method.label} | ({"runs": str(len(method.runs))} if several else {})


# A number within an evaluation: its table, the score that it is of, and its name.
Key = tuple[str, str | None, str]


def _side_by_side(methods: Sequence[MethodRuns]) -> Iterator[Evaluation]:
    """The numbers of every evaluation: a row for each method and score."""
    found: dict[tuple[str, str], list[Evaluation]] = {}
    for run in runs_of(methods):
        for kind, name, section in run.sections():
            found.setdefault((kind, name), []).append(section)
    for (kind, name), sections in found.items():
        first = sections[0]
        keys = dict.fromkeys(key for section in sections for key in _shown(kind, section))
        tables = dict.fromkeys(table for table, _, _ in keys)
        measures = [
            measure
            for table in tables
            for measure in _table(methods, kind, name, [key for key in keys if key[0] == table])
        ]
        if measures:
            comparable = len({tuple(sorted(section.data_sha256.values())) for section in sections}) == 1
            other = "" if comparable else " The folders have other images: their numbers cannot be compared."
            heading = first.title.partition(":")[0]
            yield Evaluation(
                title=heading if heading.endswith(name) else f"{heading}: {name}",
                text=first.text + other,
                excluded=first.excluded,
                measures=measures,
            )


def _shown(kind: str, section: Evaluation) -> dict[Key, Measure]:
    """What tables of methods show of a section: no counts, no details, and rejection by a model's own scores alone."""
    shown = {}
    for one in section.measures:
        score = scores_of_rows(one)
        details = one.table in section.folded and "score" not in one.of
        if details or one.format in ("count", "points", "+.3f"):
            continue
        if kind == "reject" and score not in OWN_SCORES:
            continue
        others = {key: value for key, value in one.of.items() if key not in SCORE_KEYS}
        rest = [value if key in value else f"{key} {value}" for key, value in others.items()]
        title = one.table if one.table not in section.folded else ""
        shown[", ".join(filter(None, [*rest, title])), score, one.name] = one
    return shown


def _table(methods: Sequence[MethodRuns], kind: str, name: str, keys: Sequence[Key]) -> Iterator[Measure]:
    """One table, with the best of each column marked where it is so by more than chance."""
    index = {
        run.folder: _shown(kind, section) if (section := run.of_kind(kind).get(name)) else {}
        for run in runs_of(methods)
    }
    # A score of the images alone is the same for every method: it stands once, at the end.
    alike = {key: [one[key] for one in index.values() if key in one] for key in keys if key[1] in OF_IMAGES}
    different = {key[1] for key, found in alike.items() if len({one.value for one in found}) > 1}
    shared = [key for key in alike if key[1] not in different]
    cells = [
        (_row(methods, method), method, key, found)
        for method in methods
        for key in keys
        if key not in shared and (found := method.mean(lambda run, key=key: index[run.folder].get(key)))  # type: ignore[misc]
    ]
    for key in shared:
        run = next(run for run in runs_of(methods) if key in index[run.folder])
        of_all = MethodRuns(EVERY, (run,))
        cells.append(({"method": EVERY}, of_all, key, alike[key][0].model_copy(update={"mark": ""})))
    for column in dict.fromkeys(key[2] for key in keys):
        _mark_best([(of, found) for _, of, key, found in cells if key[2] == column], kind, name)
    for row, _, (table, score, column), cell in cells:
        yield Measure(
            name=column,
            of=row | ({} if score is None else {"score": score}),
            table=table,
            value=cell.value,
            ci95=cell.ci95,
            range=cell.range,
            better=cell.better,
            format=cell.format,
            mark=cell.mark,
        )


def _mark_best(cells: Sequence[tuple[MethodRuns, Measure]], kind: str, name: str) -> None:
    ranked = sorted(cells, key=lambda cell: (cell[1].value or 0.0) * (1 if cell[1].better == "lower" else -1))
    if len(ranked) < 2 or any(len(method.runs) > 1 for method, _ in ranked):
        return
    (first, best), (second, other), *_ = ranked
    found = difference_of((first.runs[0], best), (second.runs[0], other), kind, name)
    if found is not None and (found.ci95[1] < 0 if best.better == "lower" else found.ci95[0] > 0):
        best.mark = "best"
