"""Result folders with labels, for comparisons; the results of one label are training runs of one method."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.measure import Measure
from facerts.evaluation.saved_result import SavedResult, read_log


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


class MethodRuns(NamedTuple):
    """One method, with its training runs: of several, each has a number in its label."""

    label: str
    runs: tuple[SavedResult, ...]

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
    """Group results by their labels, in the order of the first of each; those without one are methods by themselves."""
    groups: dict[str | int, list[SavedResult]] = {}
    for number, result in enumerate(results):
        groups.setdefault(result.label if result.labeled else number, []).append(result)
    methods = []
    for runs in groups.values():
        label = runs[0].label
        _check_runs(runs)
        if len(runs) > 1:
            runs = [replace(run, label=f"{label}, run {number}") for number, run in enumerate(runs, 1)]
        methods.append(MethodRuns(label, tuple(runs)))
    return methods


def with_logs(methods: Sequence[MethodRuns], logs: Sequence[str]) -> list[MethodRuns]:
    """The same with other training logs; these, or their runs, are given as ``LABEL=PATH``.

    The second of a label is its second run's. A result folder that has a ``log.jsonl`` needs none.
    """
    paths: dict[str, list[Path]] = {method.label: [] for method in methods}
    for text in logs:
        label, _, where = text.rpartition("=")
        if label not in paths:
            raise DataError(f"--log {text}: give it as LABEL=PATH, with the label of a result: {', '.join(paths)}")
        paths[label].append(Path(where))
    found = []
    for label, runs in methods:
        given = paths[label]
        if len(given) > len(runs):
            raise DataError(f"{label}: {len(given)} logs for {len(runs)} results; give one for each")
        logged = [replace(run, log=read_log(path)) for run, path in zip(runs, given, strict=False)]
        found.append(MethodRuns(label, (*logged, *runs[len(given) :])))
    return found


def _check_runs(runs: Sequence[SavedResult]) -> None:
    """Refuse results that are no runs of one method on the same data."""
    first, label = runs[0], runs[0].label
    of_model: dict[str, SavedResult] = {}
    for run in runs:
        model = run.model
        earlier = of_model.setdefault(model.sha256, run)
        if earlier is not run:
            raise DataError(
                f"{label}: {earlier.folder} and {run.folder} contain results of the same model; several results of one "
                "label are training runs of one method, so use different labels"
            )
        if model.method != first.model.method:
            raise DataError(
                f"{label}: {first.folder} is of method {first.model.method} and {run.folder} of "
                f"{model.method}; results of one label are runs of one method, so use different labels"
            )
        expected, own = (
            {f"{kind} of {name}": section.data_sha256 for kind, name, section in each.sections()}
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
