"""Methods or settings compared over several training runs, as in docs/results/methods.md.

python eval/paper_tables.py out/papers RTS=rts "its norm=rts:norm" ArcFace=arcface PFE=pfe
python eval/paper_tables.py out/papers "λ 10=rts" "λ 1=rts_l1" "λ 0.1=rts_l0.1"
python eval/paper_tables.py out/papers rts rts:norm arcface --values values.csv
python eval/paper_tables.py values.csv "λ 10=rts" "λ 1=rts_l1" --measures "lfw, accuracy" "non-faces, AUROC"

Reads the runs LABEL_seedN that eval/train_and_evaluate.py has written into a folder. A row is [NAME=]LABEL[:SCORE],
the score being the quality by default. The first row is the reference: a second table has the differences of the others
from it, on the seeds that both have. --values adds the measures shown to a CSV file, which can be read in place of the
folder.

The numbers are means over the seeds, in percent. In brackets: Student's 95% interval over the seeds. In braces: the
95% interval over the people (of LFW) or images that a difference is measured on, which takes the networks as given.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from common import accuracy, corruption_source, over_runs, parser_of, percent, run, runs_of
from numpy.typing import NDArray
from run_values import add_values, by_seed

from facerts.errors import DataError
from facerts.evaluation.labeled import SavedResult, load_labeled, split_label
from facerts.images.changes import DEGRADATIONS
from facerts.metrics.intervals import Interval
from facerts.metrics.paired import compare_scores
from facerts.metrics.resample import pair_subjects
from facerts.metrics.separation import separation
from facerts.report.table import markdown_table

# Table 2 of the RTS paper has both.
TPRS = (0.90, 0.95)
# The small networks that are compared here miss nearly all pairs at lower rates.
FAR = 0.01
# Milder degradations are still good faces.
MIN_SEVERITY = 0.4


@dataclass(frozen=True)
class Row:
    """A method or setting, its image score ("quality" or another), and the results of its training runs by seed."""

    name: str
    score: str
    runs: dict[int, SavedResult]

    def stacked(self, key: str, seeds: Sequence[int]) -> NDArray[np.float64]:
        """``(S, N)`` an array of the results of these seeds."""
        return np.stack([self.runs[seed].array(key) for seed in seeds]).astype(np.float64)


@dataclass(frozen=True)
class Measure:
    """A column: the measure of a run by a score, and the interval of a difference over people or images, if any."""

    name: str
    of: Callable[[SavedResult, str], float]
    interval: Callable[[Row, Row, Sequence[int]], Interval] | None = None


@dataclass(frozen=True)
class Table:
    """The measures of all rows.

    Attributes:
        measures: the columns.
        values: for each row, by seed, its measures in the order of the columns.
        intervals: for each row but the first, those of its differences from the first, over people or images.
    """

    measures: list[str]
    values: dict[str, dict[int, list[float]]]
    intervals: dict[str, list[Interval | None]]

    def differences(self) -> dict[str, list[list[float]]]:
        """For each row but the first, by measure, its differences from the first on the seeds that both have.

        Raises:
            DataError: they have none in common.
        """
        (reference, first), *others = self.values.items()
        return {
            row: [
                [of[seed][column] - first[seed][column] for seed in common_seeds(row, of, reference, first)]
                for column in range(len(self.measures))
            ]
            for row, of in others
        }


def main() -> None:
    options = arguments()
    names = [split_label(text)[0] or split_label(text)[1] for text in options.rows]
    name, count = Counter(names).most_common(1)[0]
    if count > 1:
        raise DataError(f"{count} rows have the name {name!r}; give each its own with NAME=LABEL")
    table = from_values(options) if options.runs.is_file() else from_runs(options)
    header = ["", "seeds", *table.measures]
    means = [
        [row, str(len(by_seed)), *map(cell, zip(*by_seed.values(), strict=True))]
        for row, by_seed in table.values.items()
    ]
    print(markdown_table(header, means))
    differences = table.differences()
    if not differences:
        return
    lines = [
        [
            row,
            str(len(by_measure[0])),
            *(cell(*each, signed=True) for each in zip(by_measure, table.intervals[row], strict=True)),
        ]
        for row, by_measure in differences.items()
    ]
    print(f"\nDifference from {names[0]}:\n")
    print(markdown_table(header, lines))


def from_runs(options: argparse.Namespace) -> Table:
    """The table of the runs in a folder; their values are added to the file of ``--values``."""
    rows = [read_row(options.runs, text) for text in options.rows]
    columns = chosen(list(measures(options, rows)), options.measures)
    values = {
        row.name: {
            seed: [measure.of(saved, row.score) for measure in columns] for seed, saved in row.runs.items()
        }
        for row in rows
    }
    if options.values:
        names = [measure.name for measure in columns]
        added = {
            (split_label(text)[1], seed): dict(zip(names, found, strict=True))
            for text, row in zip(options.rows, rows, strict=True)
            for seed, found in values[row.name].items()
        }
        add_values(options.values, added)
    reference, *others = rows
    intervals = {
        row.name: [
            measure.interval(row, reference, common_seeds(row.name, row.runs, reference.name, reference.runs))
            if measure.interval
            else None
            for measure in columns
        ]
        for row in others
    }
    return Table([measure.name for measure in columns], values, intervals)


def from_values(options: argparse.Namespace) -> Table:
    """The table of a file of ``--values``; the measures that all its rows have, unless some were asked for.

    Raises:
        DataError: a row lacks one that was asked for, or all lack all.
    """
    found = {name or label: by_seed(options.runs, label) for name, label in map(split_label, options.rows)}
    runs = [(row, seed, values) for row, seeds in found.items() for seed, values in seeds.items()]
    names = options.measures or [
        measure for measure in runs[0][2] if all(measure in values for _, _, values in runs)
    ]
    for row, seed, values in runs:
        if missing := [measure for measure in names if measure not in values]:
            raise DataError(f"{options.runs}: {row} with seed {seed} has no {missing[0]!r}")
    if not names:
        raise DataError(f"{options.runs}: the rows have no measure in common")
    values = {
        row: {seed: [of[name] for name in names] for seed, of in seeds.items()}
        for row, seeds in found.items()
    }
    return Table(names, values, {row: [None] * len(names) for row in values})


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("runs", type=Path, help="Folder of the runs LABEL_seedN, or a file of --values.")
    parser.add_argument(
        "rows", nargs="+", metavar="[NAME=]LABEL[:SCORE]", help="Rows; the first is the reference."
    )
    parser.add_argument(
        "--faces",
        nargs="+",
        default=["lfw", "rafdb_aligned"],
        help="Sources of faces that are separated from the non-faces together (default: lfw rafdb_aligned, as in the "
        "RTS paper); every source is also measured by itself.",
    )
    parser.add_argument(
        "--steps",
        nargs="+",
        default=[],
        metavar="KIND/SEVERITY",
        help="Steps of the corruption benchmark to show alone, such as blur/0.4.",
    )
    parser.add_argument("--replicates", type=int, default=300, help="Bootstrap resamples (default: 300).")
    parser.add_argument("--measures", nargs="+", help="Columns, by their names; all by default.")
    parser.add_argument("--values", type=Path, metavar="CSV", help="File to add each run's measures to.")
    return parser.parse_args()


def read_row(folder: Path, text: str) -> Row:
    """The row of ``[NAME=]LABEL[:SCORE]``.

    Raises:
        DataError: there are no results of this label.
    """
    name, rest = split_label(text)
    label, _, score = rest.partition(":")
    runs = {seed: load_labeled([path])[0] for seed, path in runs_of(folder, label, "result.json").items()}
    return Row(name or rest, score or "quality", runs)


def common_seeds(row: str, runs: Container[int], other: str, others: Iterable[int]) -> list[int]:
    """The seeds that two rows have.

    Raises:
        DataError: there are none.
    """
    seeds = [seed for seed in others if seed in runs]
    if not seeds:
        raise DataError(f"{row} and {other} have no seed in common, so no difference can be measured")
    return seeds


def cell(values: Sequence[float], interval: Interval | None = None, *, signed: bool = False) -> str:
    """The mean over the seeds in percent, with the intervals that there are."""
    form = "+.2f" if signed else ".2f"
    text = over_runs(values, form=form, of_shares=not signed)
    if interval is None:
        return text
    return f"{text} {{{', '.join(percent(end, form=form) for end in interval)}}}"


# Measures.


def measures(options: argparse.Namespace, rows: Sequence[Row]) -> Iterator[Measure]:
    """The measures that every run has the data for.

    Raises:
        DataError: there are none.
    """
    results = [saved for row in rows for saved in row.runs.values()]
    found = False
    for benchmark in shared(results, "verification"):
        found = True
        check_same_data(results, lambda saved, of=benchmark: saved.section("verification", of).data_sha256)
        yield from verification(benchmark, results, options.replicates)
    if all(saved.content.ood is not None for saved in results):
        found = True
        check_same_data(results, lambda saved: saved.section("ood").data_sha256)
        yield from separations(options, results[0])
    if all(saved.content.corruptions for saved in results):
        found = True
        source = corruption_source(results[0])
        check_same_data(results, lambda saved: saved.section("corruptions", source).data_sha256)
        yield from degradations(results[0], source, options)
    for benchmark in shared(results, "reject"):
        found = True
        yield Measure(f"{benchmark}, FNMR to 20% rejected", reject_area(benchmark))
    if not found:
        raise DataError(
            f"{options.runs}: the runs have no measurement in common; evaluate all on the same data"
        )


def shared(results: Sequence[SavedResult], command: str) -> list[str]:
    """The benchmarks that one command measured on all runs."""
    first, *others = (getattr(saved.content, command) for saved in results)
    return [name for name in first if all(name in other for other in others)]


def check_same_data(results: Sequence[SavedResult], hash_of: Callable[[SavedResult], object]) -> None:
    """Check that all runs were measured on the same images, without which no difference is paired.

    Raises:
        DataError: one was measured on others.
    """
    first, *others = results
    for saved in others:
        if hash_of(saved) != hash_of(first):
            raise DataError(
                f"{saved.folder} was measured on other images than {first.folder}; evaluate all runs on the same data"
            )


def chosen(found: list[Measure], names: Sequence[str] | None) -> list[Measure]:
    """The measures of these names; all of them by default.

    Raises:
        DataError: there is none of a name.
    """
    by_name = {measure.name: measure for measure in found}
    if unknown := set(names or ()) - by_name.keys():
        raise DataError(f"--measures {min(unknown)!r}: must be one of {', '.join(map(repr, by_name))}")
    return [by_name[name] for name in names or by_name]


def verification(benchmark: str, results: Sequence[SavedResult], replicates: int) -> Iterator[Measure]:
    """Cross-validated accuracy and, with enough pairs, the true accept rate at a low false accept rate."""
    prefix, rate = f"verification/{benchmark}/", f"{FAR:g}"

    def interval_of(statistic: str) -> Callable[[Row, Row, Sequence[int]], Interval]:
        def interval(row: Row, reference: Row, seeds: Sequence[int]) -> Interval:
            first = row.runs[seeds[0]]
            same, folds, pairs = (first.array(prefix + key) for key in ("same", "folds", "pairs"))
            return compare_scores(
                *(side.stacked(prefix + "scores", seeds) for side in (row, reference)),
                same,
                folds=folds,
                far=FAR,
                subjects=pair_subjects(first.arrays.get(prefix + "subjects"), pairs),
                replicates=replicates,
            )[statistic].ci95

        return interval

    def tar(saved: SavedResult, _: str) -> float:
        return float(saved.section("verification", benchmark).tar_at_far[rate].value)

    yield Measure(
        f"{benchmark}, accuracy", lambda saved, _: accuracy(saved, benchmark), interval_of("accuracy")
    )
    if all(rate in saved.section("verification", benchmark).tar_at_far for saved in results):
        yield Measure(f"{benchmark}, TAR@FAR{rate}", tar, interval_of("tar_at_far"))


def separations(options: argparse.Namespace, first: SavedResult) -> Iterator[Measure]:
    """Faces against non-faces: those of ``--faces`` together, and each source of either by itself."""
    others = [f"ood/{name}" for name in first.section("ood").others]
    pooled = [f"ood/{name}" for name in options.faces if name in first.section("ood").faces]
    if len(pooled) == len(options.faces):
        yield separating("non-faces, AUROC", pooled, others, options.replicates)
        for tpr in TPRS:
            yield separating(f"non-faces, TNR@TPR{100 * tpr:.0f}", pooled, others, options.replicates, tpr)
        if len(others) > 1:
            for name in first.section("ood").others:
                yield separating(f"non-faces {name}, AUROC", pooled, [f"ood/{name}"], options.replicates)
    for name in first.section("ood").faces:
        yield separating(f"{name}, AUROC", [f"ood/{name}"], others, options.replicates)


def degradations(first: SavedResult, source: str, options: argparse.Namespace) -> Iterator[Measure]:
    """Clean faces against the same faces degraded: kinds and severities together, and those asked for alone."""
    section = first.section("corruptions", source)
    every = [
        f"{kind}/{severity:g}"
        for kind in DEGRADATIONS
        if kind in section.kinds
        for severity in section.severity
        if severity >= MIN_SEVERITY
    ]
    for name, steps in {"degraded": every, **{step: [step] for step in options.steps}}.items():
        clean, degraded = ([f"corruptions/{source}/{step}" for step in side] for side in (["clean"], steps))
        yield separating(f"{name}, AUROC", clean, degraded, options.replicates)


def separating(
    name: str, good: Sequence[str], others: Sequence[str], replicates: int, tpr: float | None = None
) -> Measure:
    """How well the score separates good images from others, by its AUROC or TNR@TPR; both are rooms of arrays."""

    def of(saved: SavedResult, score: str) -> float:
        found = separation(
            *(np.concatenate([saved.array(f"{room}/{score}") for room in rooms]) for rooms in (good, others))
        )
        return found.auroc if tpr is None else found.tnr_at_tpr[tpr]

    def interval(row: Row, reference: Row, seeds: Sequence[int]) -> Interval:
        first, second = (
            np.concatenate([side.stacked(f"{room}/{side.score}", seeds) for room in (*good, *others)], axis=1)
            for side in (row, reference)
        )
        run = row.runs[seeds[0]]
        is_good = np.arange(first.shape[1]) < sum(len(run.array(f"{room}/{row.score}")) for room in good)
        found = compare_scores(first, second, is_good, tpr=tpr, replicates=replicates)
        return found["auroc" if tpr is None else "tnr_at_tpr"].ci95

    return Measure(name, of, interval)


def reject_area(benchmark: str) -> Callable[[SavedResult, str], float]:
    """Mean FNMR on the network's own embedding while up to a fifth of the benchmark's genuine pairs are rejected."""

    def of(saved: SavedResult, score: str) -> float:
        for curve in saved.content.reject[benchmark]:
            if (curve.by, curve.pairs) == (score, "benchmark"):
                return curve.area["0.2"]
        raise DataError(f"{saved.folder}: no error versus reject by {score!r} on {benchmark}")

    return of


if __name__ == "__main__":
    run(main)
