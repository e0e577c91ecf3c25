"""Shared by the scripts of this folder: arguments, labeled results, and values from sections of results."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.cli.ending import ending
from facerts.cli.output import warn
from facerts.errors import DataError
from facerts.evaluation import labeled
from facerts.evaluation.labeled import Measured, SavedResult, by_cosine, mean_of
from facerts.report import markdown


def run(main: Callable[[], None]) -> None:
    """Run a script; errors end it as they end a ``facerts`` command, with a one-line message and an exit status."""
    with ending():
        main()


def parser_of(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring, unchanged."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add the argument for result folders."""
    parser.add_argument(
        "results",
        nargs="+",
        metavar="[LABEL=]FOLDER",
        help="Result folders; the label is the model's name by default.",
    )


def load_labeled(texts: Sequence[str]) -> list[SavedResult]:
    """Read result folders given as ``FOLDER`` or ``LABEL=FOLDER``.

    Raises:
        DataError: a folder has no result, or two results have the same label.
    """
    results = labeled.load_labeled(texts)
    label, count = Counter(saved.label for saved in results).most_common(1)[0]
    if count > 1:
        raise DataError(f"{count} results have the label {label!r}; give each its own with LABEL=FOLDER")
    return results


def warn_of_other_data(
    results: Sequence[SavedResult], name: str, hash_of: Callable[[SavedResult], object]
) -> None:
    """Warn about results that were measured on other images than the first, according to the hash of the data.

    Args:
        results: the first is the one that the others are compared with.
        name: name of the benchmark or section, for the warning.
        hash_of: gets a result's hash of the data.
    """
    first, *others = results
    for saved in others:
        if hash_of(saved) != hash_of(first):
            warn(
                f"{name}: {saved.folder} was measured on other images (or other crops) than "
                f"{first.folder}, so their values may not be comparable"
            )


# Values from sections.


def accuracy_sets(results: Sequence[SavedResult], sets: Sequence[str] | None) -> list[str]:
    """The benchmarks to compare; warns if the results were measured on different images.

    Args:
        results: the results.
        sets: names of benchmarks; by default all with a cross-validated accuracy of the cosine.

    Raises:
        DataError: a result lacks one of them, or its accuracy.
    """
    sections = {name: section for saved in results for name, section in saved.content.verification.items()}
    names = list(
        sets
        or [name for name, section in sections.items() if by_cosine(section) and section.accuracy is not None]
    )
    if not names:
        raise DataError(
            f"{results[0].folder}: none of its benchmarks has a cross-validated accuracy; `facerts evaluate "
            "verification` adds it"
        )
    for name in names:
        for saved in results:
            accuracy(saved, name)
        warn_of_other_pairs(results, name)
    return names


def warn_of_other_pairs(results: Sequence[SavedResult], benchmark: str) -> None:
    """Warn about results whose verification was measured on other images than that of the first."""
    warn_of_other_data(results, benchmark, lambda saved: saved.verification(benchmark).data_sha256)


def warn_of_other_ood(results: Sequence[SavedResult]) -> None:
    """Warn about results whose faces and non-faces are not those of the first."""
    warn_of_other_data(results, "ood", lambda saved: saved.ood.data_sha256)


def accuracy(saved: SavedResult, name: str) -> Measured:
    """Cross-validated accuracy on one benchmark.

    Raises:
        DataError: the benchmark was not measured, or has no folds.
    """
    measured = saved.verification(name).accuracy
    if measured is None:
        raise DataError(f"{saved.folder}: {name} has no cross-validated accuracy; leave it out of --sets")
    return Measured(measured.value, *measured.ci95)


def mean_accuracy(saved: SavedResult, names: Iterable[str]) -> Measured:
    """Mean accuracy over benchmarks; its interval treats them as independent."""
    return mean_of([accuracy(saved, name) for name in names])


def corruption_source(results: Sequence[SavedResult], source: str | None) -> str:
    """The name of the source of a corruption benchmark, by default that of the only one.

    Raises:
        DataError: a result lacks it, or there are several to choose from.
    """
    sources = results[0].content.corruptions
    if source is None and len(sources) > 1:
        raise DataError(
            f"{results[0].folder}: has corruption benchmarks of {', '.join(sources)}; choose one with --source"
        )
    name = source or next(iter(sources), "")
    warn_of_other_data(results, name, lambda saved: saved.corruptions(name).data_sha256)
    return name


def corruption_scores(saved: SavedResult, source: str, step: str, score: str) -> NDArray[np.float64]:
    """A score of each image of a corruption benchmark at one step.

    Args:
        saved: the result.
        source: name of the source of faces.
        step: "clean", or kind and severity: "blur/0.4".
        score: name of a score in the result; or "v", RTS's uncertainty, computed from its quality −log v.

    Returns:
        ``(N,)``.

    Raises:
        DataError: no such score or step, or v of another method.
    """
    if score != "v":
        return saved.array(f"corruptions/{source}/{step}/{score}").astype(np.float64)
    method = saved.content.model.method
    if method != "rts":
        raise DataError(f"{saved.folder}: only RTS has a score v, but this model's method is {method}")
    v: NDArray[np.float64] = np.exp(-corruption_scores(saved, source, step, "quality"))
    return v


# Tables.


def percent(measured: Measured) -> str:
    """A value with its interval in percent, e.g. "99.43 [99.21, 99.60]"."""
    return markdown.percent(measured.value, (measured.low, measured.high))


# Figures.


def add_out(parser: argparse.ArgumentParser, help: str) -> None:
    """Add the argument for the output of a figure."""
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help=help)
