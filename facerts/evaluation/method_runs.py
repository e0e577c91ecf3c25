"""Result folders with labels, for comparisons; the results of one label are training runs of one method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.measure import Measure
from facerts.evaluation.result import Result
from facerts.evaluation.result_folder import Arrays, load_result
from facerts.io.console import printable
from facerts.io.redact import redacted_path, redacted_paths


@dataclass(frozen=True)
class SavedResult:
    """The result folder of one model; ``labeled`` is whether its label was given, otherwise it is the model's name."""

    label: str
    folder: Path
    content: Result
    arrays: Arrays
    labeled: bool = True

    @property
    def place(self) -> str:
        """The folder as others may see it."""
        return redacted_path(self.folder)

    def array(self, key: str) -> NDArray[Any]:
        """An array by its whole key."""
        if key not in self.arrays:
            room = key.rpartition("/")[0]
            near = sorted(name for name in self.arrays if name.rpartition("/")[0] == room)
            raise DataError(
                f"{self.folder}: no array {key!r}, only {', '.join(near) or 'none of that kind'}; "
                "evaluate again, or ask for another score"
            )
        return self.arrays[key]


def split_label(text: str) -> tuple[str, str]:
    """Split ``LABEL=VALUE``; without a label it is empty. A label may itself contain "=", but no control characters."""
    label, _, value = ("", "", text) if Path(text).exists() else text.rpartition("=")
    return printable(label), value


def load_labeled(texts: Sequence[str | Path]) -> list[SavedResult]:
    """Read folders given as ``FOLDER`` or ``LABEL=FOLDER`` (a label may hold "=" itself)."""
    results = []
    for text in map(str, texts):
        label, path = split_label(text)
        content, arrays = load_result(path)
        results.append(SavedResult(label or content.model.name, Path(path), content, arrays, labeled=bool(label)))
    return results


def quality_of(saved: SavedResult, first: SavedResult, name: str, score: str) -> NDArray[Any]:
    """A result's quality of another result's images of a benchmark, ``(N,)``, by their names, in the other's order."""
    wanted, own = (one.array(f"verification/{name}/names").tolist() for one in (first, saved))
    if lacking := _difference((first, wanted), (saved, own)):
        one, other, image = lacking
        raise DataError(
            f"{one.folder}: {name} has no image {image!r}, which {other.folder} has; evaluate both on the same "
            "benchmark"
        )
    row = {key: number for number, key in enumerate(own)}
    return saved.array(f"verification/{name}/{score}")[[row[key] for key in wanted]]


@dataclass(frozen=True)
class MethodRuns:
    """One method."""

    label: str
    runs: tuple[SavedResult, ...]

    def shown(self, run: SavedResult) -> str:
        """The name of one of its runs among all runs."""
        return self.label if len(self.runs) == 1 else f"{self.label}, run {self.runs.index(run) + 1}"

    def mean(self, measure: Callable[[SavedResult], Measure | None]) -> Measure | None:
        """A number of all runs: of several the mean, with the lowest and the highest; None where a run lacks it."""
        measured = [one for one in map(measure, self.runs) if one is not None and one.value is not None]
        if len(measured) < len(self.runs):
            return None
        values = [one.value for one in measured if one.value is not None]
        mean = measured[0].model_copy(update={"mark": "", "headline": False})
        if len(values) > 1:
            mean.value, mean.ci95, mean.range = fmean(values), None, (min(values), max(values))
        return mean


def methods_of(results: Sequence[SavedResult]) -> list[MethodRuns]:
    """Group results by their labels, in the order of the first of each.

    Results without a label of their own are methods by themselves, distinguished by their folders where the names of
    their models are not enough.
    """
    times = Counter(result.label for result in results)
    groups: dict[str | int, list[SavedResult]] = {}
    for number, result in enumerate(results):
        groups.setdefault(result.label if result.labeled else number, []).append(result)
    methods = []
    folders = [result.folder for result in results]
    places = dict(zip(folders, redacted_paths(folders), strict=True))
    for runs in groups.values():
        first = runs[0]
        clashes = not first.labeled and times[first.label] > 1
        _check_runs(runs)
        methods.append(MethodRuns(places[first.folder] if clashes else first.label, tuple(runs)))
    return methods


def _check_runs(runs: Sequence[SavedResult]) -> None:
    """Refuse results that are no runs of one method on the same data."""
    first, label = runs[0], runs[0].label
    of_model: dict[str, SavedResult] = {}
    for run in runs:
        model = run.content.model
        earlier = of_model.setdefault(model.sha256, run)
        if earlier is not run:
            raise DataError(
                f"{label}: {earlier.folder} and {run.folder} contain results of the same model; several results of one "
                "label are training runs of one method, so use different labels"
            )
        if model.method != first.content.model.method:
            raise DataError(
                f"{label}: {first.folder} is of method {first.content.model.method} and {run.folder} of "
                f"{model.method}; results of one label are runs of one method, so use different labels"
            )
        expected, own = (
            {f"{kind} of {name}": section.data_sha256 for kind, name, section in each.content.each()}
            for each in (first, run)
        )
        advice = "evaluate all runs of one label on the same data, or give them other labels"
        if lacking := _difference((first, expected), (run, own)):
            one, other, name = lacking
            raise DataError(f"{label}: {one.folder} has no {name}, which {other.folder} has; {advice}")
        for name, data in expected.items():
            if own[name] != data:
                raise DataError(
                    f"{label}: {run.folder} was measured on other images than {first.folder} ({name}); {advice}"
                )


def _difference(
    first: tuple[SavedResult, Collection[str]], second: tuple[SavedResult, Collection[str]]
) -> tuple[SavedResult, SavedResult, str] | None:
    """A result that lacks something, the one that has it, and what that is; None where both have the same."""
    for (one, ours), (other, theirs) in ((first, second), (second, first)):
        if missing := set(theirs) - set(ours):
            return one, other, min(missing)
    return None


def runs_of(methods: Sequence[MethodRuns]) -> Iterator[SavedResult]:
    """All runs of all methods."""
    return (run for method in methods for run in method.runs)
