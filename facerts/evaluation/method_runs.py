"""Methods of a comparison: the results of one label are training runs of one method."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

from facerts.errors import DataError
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.measure import Measure
from facerts.io.redact import redacted_paths


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
    first, *others = runs
    of_model: dict[str, SavedResult] = {}
    for run in runs:
        model = run.content.model
        if model.sha256 in of_model:
            raise DataError(
                f"{run.label}: {of_model[model.sha256].folder} and {run.folder} contain results of the same "
                "model; several results of one label are training runs of one method, so use different labels"
            )
        of_model[model.sha256] = run
    expected = dict(_measured(first))
    for run in others:
        if run.content.model.method != first.content.model.method:
            raise DataError(
                f"{run.label}: {first.folder} is of method {first.content.model.method} and {run.folder} of "
                f"{run.content.model.method}; results of one label are runs of one method, so use different labels"
            )
        own = dict(_measured(run))
        for one, other, missing in (
            (run, first, expected.keys() - own.keys()),
            (first, run, own.keys() - expected.keys()),
        ):
            if missing:
                raise DataError(
                    f"{run.label}: {one.folder} has no {min(missing)}, which {other.folder} has; evaluate all runs of "
                    "one label on the same data, or give them other labels"
                )
        for name, data in expected.items():
            if own[name] != data:
                raise DataError(
                    f"{run.label}: {run.folder} was measured on other images than {first.folder} ({name}); evaluate "
                    "all runs of one label on the same data, or give them other labels"
                )


def _measured(result: SavedResult) -> Iterator[tuple[str, object]]:
    for kind, name, section in result.content.each():
        yield f"{kind} of {name}", section.data_sha256


def runs_of(methods: Sequence[MethodRuns]) -> Iterator[SavedResult]:
    """All runs of all methods."""
    return (run for method in methods for run in method.runs)
