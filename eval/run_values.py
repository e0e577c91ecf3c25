"""The values of training runs in a CSV file: a line for each label and seed, a column for each measure.

Such files outlast the runs, whose arrays take megabytes: scripts add to them, and make their tables from them.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from facerts.errors import DataError
from facerts.io.files import atomic_write

LABEL, SEED = "label", "seed"

# By label and seed; by measure.
Values = dict[tuple[str, int], dict[str, float]]


def read_values(path: Path) -> Values:
    """The values in a file.

    Raises:
        DataError: it is no such file.
    """
    values: Values = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or ())[:2] != [LABEL, SEED]:
            raise DataError(f"{path}: the first columns must be {LABEL} and {SEED}, as --values writes them")
        for line in reader:
            try:
                key = line.pop(LABEL), int(line.pop(SEED))
                values[key] = {measure: float(value) for measure, value in line.items() if value}
            except (TypeError, ValueError) as error:
                raise DataError(f"{path}, line {reader.line_num}: {error}") from error
    return values


def by_seed(path: Path, label: str) -> dict[int, dict[str, float]]:
    """The values of a label's runs.

    Raises:
        DataError: the file has none.
    """
    found = {seed: values for (of, seed), values in read_values(path).items() if of == label}
    if not found:
        raise DataError(f"{path}: no run of {label!r}")
    return dict(sorted(found.items()))


def add_values(path: Path, added: Mapping[tuple[str, int], Mapping[str, float]]) -> None:
    """Add values to a file, in place of those of the same label, seed and measure; it is created if need be."""
    values = read_values(path) if path.exists() else {}
    for key, new in added.items():
        values[key] = {**values.get(key, {}), **new}
    measures = list(dict.fromkeys(measure for found in values.values() for measure in found))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([LABEL, SEED, *measures])
    for (label, seed), found in sorted(values.items()):
        writer.writerow([label, seed, *(found.get(measure, "") for measure in measures)])
    with atomic_write(path, "w") as file:
        file.write(text.getvalue())
