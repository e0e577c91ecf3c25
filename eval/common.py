"""What the scripts of this folder share: their arguments, result folders by label, numbers of sections."""

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
from facerts.evaluation.labeled import Measured, Saved, by_cosine, mean_of
from facerts.report import markdown


def run(main: Callable[[], None]) -> None:
    """Run a script; errors end it as they end a command, with one sentence and a status."""
    with ending():
        main()


def parser_of(docstring: str | None) -> argparse.ArgumentParser:
    """A parser whose help begins with the script's docstring as it stands."""
    return argparse.ArgumentParser(
        description=docstring, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_results(parser: argparse.ArgumentParser) -> None:
    """The argument of nearly every script."""
    parser.add_argument(
        "results",
        nargs="+",
        metavar="[LABEL=]FOLDER",
        help="result folders; without a label, by the model's name",
    )


def load_labeled(texts: Sequence[str]) -> list[Saved]:
    """Read folders given as ``FOLDER`` or ``LABEL=FOLDER``, each under a label of its own.

    Raises:
        DataError: no result in a folder, or two with one label.
    """
    results = labeled.load_labeled(texts)
    label, times = Counter(saved.label for saved in results).most_common(1)[0]
    if times > 1:
        raise DataError(f"{times} results are called {label!r}; give each a label of its own, LABEL=FOLDER")
    return results


def split_label(text: str) -> tuple[str, str]:
    """``LABEL=WHAT`` as its two parts; the label is empty where there is none (a label may hold "=" itself)."""
    label, _, what = ("", "", text) if Path(text).exists() else text.rpartition("=")
    return label, what


def warn_of_other_data(results: Sequence[Saved], name: str, hash_of: Callable[[Saved], object]) -> None:
    """Warn of results that were not measured on the same images, by their hash, as the first.

    Args:
        results: of which the first is what the others are held against.
        name: of the benchmark or section, for the warning.
        hash_of: a result to the hash of the images.
    """
    first, *others = results
    for saved in others:
        if hash_of(saved) != hash_of(first):
            warn(
                f"{name}: {saved.folder} was measured on other pictures than {first.folder} "
                "(or on other crops of them), so their numbers may not compare"
            )


# Numbers of sections.


def accuracy_sets(results: Sequence[Saved], asked: Sequence[str] | None) -> list[str]:
    """The benchmarks asked for, or else all with an accuracy by folds and compared by the cosine; warns where pictures
    differ.

    Raises:
        DataError: a result has one of them not, or without an accuracy.
    """
    sections = {name: section for saved in results for name, section in saved.content.verification.items()}
    sets = list(
        asked
        or [name for name, section in sections.items() if by_cosine(section) and section.accuracy is not None]
    )
    if not sets:
        raise DataError(
            f"{results[0].folder}: no verification on a benchmark with an accuracy by folds; `facerts evaluate "
            "verification` adds it"
        )
    for name in sets:
        for saved in results:
            accuracy(saved, name)
        warn_of_other_pairs(results, name)
    return sets


def warn_of_other_pairs(results: Sequence[Saved], benchmark: str) -> None:
    """Warn of results whose verification was not measured on the same images as the first's."""
    warn_of_other_data(results, benchmark, lambda saved: saved.verification(benchmark).data_sha256)


def warn_of_other_ood(results: Sequence[Saved]) -> None:
    """Warn of results whose faces and non-faces are not those of the first."""
    warn_of_other_data(results, "ood", lambda saved: saved.ood.data_sha256)


def accuracy(saved: Saved, name: str) -> Measured:
    """Accuracy by folds on one benchmark.

    Raises:
        DataError: the benchmark was not measured, or has no folds.
    """
    measured = saved.verification(name).accuracy
    if measured is None:
        raise DataError(f"{saved.folder}: {name} has no accuracy by folds; leave it out of --sets")
    return Measured(measured.value, *measured.ci95)


def mean_accuracy(saved: Saved, names: Iterable[str]) -> Measured:
    """Mean accuracy over benchmarks; its interval takes them as independent."""
    return mean_of([accuracy(saved, name) for name in names])


def corrupted_source(results: Sequence[Saved], asked: str | None) -> str:
    """The source of faces that was asked for, or the only one that was corrupted.

    Raises:
        DataError: a result has it not, or there are several to choose from.
    """
    found = results[0].content.corruptions
    if asked is None and len(found) > 1:
        raise DataError(
            f"{results[0].folder}: corruptions of {', '.join(found)}; say which source is meant with --source"
        )
    name = asked or next(iter(found), "")
    warn_of_other_data(results, name, lambda saved: saved.corruptions(name).data_sha256)
    return name


def corrupted_values(saved: Saved, source: str, step: str, score: str) -> NDArray[np.float64]:
    """A score of each image at one step of the corruption benchmark.

    Args:
        saved: the result.
        source: of the faces.
        step: "clean", or kind and severity: "blur/0.4".
        score: as the result has it; or "v", RTS's uncertainty, which its quality −log v gives back.

    Returns:
        ``(N,)``.

    Raises:
        DataError: no such score or step, or v of another method.
    """
    if score != "v":
        return saved.array(f"corruptions/{source}/{step}/{score}").astype(np.float64)
    method = saved.content.model.method
    if method != "rts":
        raise DataError(f"{saved.folder}: v is what RTS learns, and this model's method is {method}")
    v: NDArray[np.float64] = np.exp(-corrupted_values(saved, source, step, "quality"))
    return v


# Tables.


def percent(measured: Measured) -> str:
    """A share in percent, as "99.43 [99.21, 99.60]"."""
    return markdown.percent(measured.value, (measured.low, measured.high))


# Figures.


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    """Where a figure goes."""
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help=what)
