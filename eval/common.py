"""What the scripts of this folder share: result folders by label, tables in Markdown, figures on white paper."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.cli.output import EXIT_UNUSABLE, print_error, warn
from facerts.errors import DataError, Error
from facerts.evaluate.result import Arrays, load_result
from facerts.files import atomic_write

INK = "#24292f"


class Measured(NamedTuple):
    """A number and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Saved:
    """A result folder.

    Attributes:
        label: how a table or figure calls it.
        folder: where it is.
        content: of result.json.
        arrays: of arrays.npz.
    """

    label: str
    folder: Path
    content: dict[str, Any]
    arrays: Arrays

    def section(self, kind: str, name: str | None = None) -> Any:
        """A section of the result.

        Raises:
            DataError: it is not there.
        """
        found = self.content.get(kind, {})
        if not found or (name is not None and name not in found):
            of = "" if name is None else f" of {name!r}, only of {', '.join(found) or 'nothing'}"
            raise DataError(
                f"{self.folder}: no section {kind!r}{of}; `facerts evaluate {kind} … --out {self.folder}` adds it"
            )
        return found if name is None else found[name]

    def array(self, key: str) -> NDArray[Any]:
        """An array by its whole key.

        Raises:
            DataError: it is not there.
        """
        if key not in self.arrays:
            room = key.rpartition("/")[0]
            near = sorted(name for name in self.arrays if name.rpartition("/")[0] == room)
            raise DataError(
                f"{self.folder}: no array {key!r}, only {', '.join(near) or 'none of that kind'}; "
                "evaluate again, or ask for another score"
            )
        return self.arrays[key]


def run(main: Callable[[], None]) -> None:
    """Run a script; what the user can mend ends it with one sentence and status 2."""
    try:
        main()
    except Error as error:
        print_error(error)
        sys.exit(EXIT_UNUSABLE)


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


def load_labelled(texts: Sequence[str]) -> list[Saved]:
    """Read folders given as ``FOLDER`` or ``LABEL=FOLDER`` (a label may hold "=" itself).

    Raises:
        DataError: no result in a folder, or two with one label.
    """
    results = []
    for text in texts:
        label, _, path = ("", "", text) if Path(text).is_dir() else text.rpartition("=")
        content, arrays = load_result(path)
        results.append(Saved(label or content["model"]["name"], Path(path), content, arrays))
    label, times = Counter(saved.label for saved in results).most_common(1)[0]
    if times > 1:
        raise DataError(f"{times} results are called {label!r}; give each a label of its own, LABEL=FOLDER")
    return results


def warn_of_other_data(results: Sequence[Saved], kind: str, name: str | None = None) -> None:
    """Warn of results that were not measured on the same pictures, by their hash, as the first."""
    first, *others = results
    expected = first.section(kind, name).get("data_sha256")
    for saved in others:
        if saved.section(kind, name).get("data_sha256") != expected:
            warn(
                f"{name or kind}: {saved.folder} was measured on other pictures than {first.folder} "
                "(or on other crops of them), so their numbers may not compare"
            )


# Numbers of sections.


def accuracy_sets(results: Sequence[Saved], asked: Sequence[str] | None) -> list[str]:
    """The benchmarks asked for, or else all that have an accuracy by folds; warns where pictures differ.

    Raises:
        DataError: a result has one of them not, or without an accuracy.
    """
    sections: dict[str, Any] = {}
    for saved in results:
        sections.update(saved.section("verification"))
    sets = list(asked or [name for name, section in sections.items() if section["accuracy"] is not None])
    if not sets:
        raise DataError(f"{results[0].folder}: none of its benchmarks has an accuracy by folds")
    for name in sets:
        for saved in results:
            accuracy(saved, name)
        warn_of_other_data(results, "verification", name)
    return sets


def accuracy(saved: Saved, name: str) -> Measured:
    """Accuracy by folds on one benchmark.

    Raises:
        DataError: the benchmark was not measured, or has no folds.
    """
    measured = saved.section("verification", name)["accuracy"]
    if measured is None:
        raise DataError(f"{saved.folder}: {name} has no accuracy by folds; leave it out of --sets")
    return Measured(measured["value"], *measured["ci95"])


def mean_accuracy(saved: Saved, names: Iterable[str]) -> Measured:
    """Mean accuracy over benchmarks.

    Its interval is made from theirs by squaring and adding the distances to each end (Zou and Donner, Statistics in
    Medicine 2008), which takes the benchmarks as independent; those that share people are not quite.
    """
    each = [accuracy(saved, name) for name in names]
    value = math.fsum(one.value for one in each) / len(each)
    down = math.hypot(*(one.value - one.low for one in each)) / len(each)
    up = math.hypot(*(one.high - one.value for one in each)) / len(each)
    return Measured(value, value - down, value + up)


def ladder_source(results: Sequence[Saved], asked: str | None) -> str:
    """The ladder asked for, or the only one.

    Raises:
        DataError: a result has it not, or there are several to choose from.
    """
    found = results[0].section("ladder")
    if asked is None and len(found) > 1:
        raise DataError(
            f"{results[0].folder}: ladders of {', '.join(found)}; say which one is meant with --source"
        )
    name = asked or next(iter(found))
    warn_of_other_data(results, "ladder", name)
    return name


def ladder_values(saved: Saved, source: str, step: str, score: str) -> NDArray[np.float64]:
    """A score of each picture of a ladder at one step.

    Args:
        saved: the result.
        source: of the faces.
        step: "clean", or kind and strength: "blur/0.4".
        score: as ladders keep it; or "v", RTS's uncertainty, which its quality −log v gives back.

    Returns:
        ``(N,)``.

    Raises:
        DataError: no such score or step, or v of another method.
    """
    if score != "v":
        return saved.array(f"ladder/{source}/{step}/{score}").astype(np.float64)
    method = saved.content["model"]["method"]
    if method != "rts":
        raise DataError(f"{saved.folder}: v is what RTS learns, and this model's method is {method}")
    v: NDArray[np.float64] = np.exp(-ladder_values(saved, source, step, "quality"))
    return v


# Tables.


def percent(measured: Measured) -> str:
    """A share in percent, as "99.43 [99.21, 99.60]"."""
    value, low, high = (100 * number for number in measured)
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[str]], caption: str | None = None, *, words: int = 1
) -> str:
    """A GitHub-flavoured table; so many of its first columns hold words, the others numbers, aligned right."""
    lines = [[cell.replace("|", "\\|") for cell in line] for line in (header, *rows)]
    lines.insert(1, [*["---"] * words, *["---:"] * (len(header) - words)])
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return table if caption is None else f"{caption}\n\n{table}"


# Figures.


def add_out(parser: argparse.ArgumentParser, what: str) -> None:
    """Where a figure goes."""
    parser.add_argument("--out", type=Path, required=True, metavar="PATH", help=what)


def write_svg(path: Path, svg: str) -> None:
    """Write a figure that stands by itself."""
    with atomic_write(path, "w") as file:
        file.write(on_paper(svg))


def write_svgs(folder: Path, drawn: Mapping[str, str]) -> None:
    """Write figures under their names, with "_" for what does not belong into a file name.

    Raises:
        DataError: two names would become one file.
    """
    paths = [folder / (re.sub(r"[^\w.+-]+", "_", name) + ".svg") for name in drawn]
    if len(set(paths)) < len(paths):
        raise DataError(f"{folder}: {', '.join(drawn)} would not all be files of their own; rename labels")
    for path, svg in zip(paths, drawn.values(), strict=True):
        write_svg(path, svg)


def on_paper(svg: str) -> str:
    """Dark ink on white: a figure by itself has no page to take its colours from."""
    begin = svg.index(">") + 1
    return (
        svg[:begin]
        + '<rect width="100%" height="100%" fill="white"/>'
        + svg[begin:].replace("currentColor", INK)
    )
