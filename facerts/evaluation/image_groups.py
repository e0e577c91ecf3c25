"""Which image is in which group of people or images: by age, sex, origin, camera, or any other attribute.

A group is the value of an attribute, the cell of a table. Numbers are put into ranges by their edges.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.embedding_table import Parts, name_parts, rows_of_images
from facerts.errors import DataError, Error
from facerts.io.console import printable
from facerts.io.csv_file import read_csv

MAX_GROUPS = 50
# More different numbers than this are values to put into ranges, not names of groups.
MAX_NUMBERS = 20
MAX_ATTRIBUTES = 50
MAX_NAME = 100

_ATTRIBUTE = re.compile(r"\s*(\w[\w -]*?)\s*=(.*)", re.DOTALL)
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True)
class Groups:
    """A CSV file with a row for each image, which says its groups; ``read_groups`` reads it.

    Attributes:
        attributes: names of its columns after the first.
        edges: ascending edges of the ranges of attributes that are numbers.
    """

    path: Path
    attributes: tuple[str, ...]
    names: Sequence[Parts]
    rows: Sequence[tuple[str, ...]]
    edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    def of(self, keys: Sequence[str]) -> tuple[dict[str, NDArray[np.str_]], list[str]]:
        """The ``(N,)`` group of each of N images, by attribute, "" where unknown, and sentences on what is unknown."""
        groups: dict[str, NDArray[np.str_]] = {}
        values, notes = self._values(keys)
        for attribute, of_images in values.items():
            names = self._named(attribute, of_images, keys)
            unknown = [key for key, name in zip(keys, names, strict=True) if not name]
            if unknown:
                notes.append(
                    f"{attribute} is unknown for {len(unknown):,} of {len(keys):,} images, the first is "
                    f"{printable(unknown[0])}."
                )
            groups[attribute] = np.array(names, dtype=np.str_)
        return groups, notes

    def _values(self, keys: Sequence[str]) -> tuple[dict[str, list[str]], list[str]]:
        """Values of each attribute for the images, "" where unknown, and remarks for the report."""
        of_images = rows_of_images(self.names, keys)
        chosen = []
        for key, rows in zip(keys, of_images, strict=True):
            differing = next((row for row in rows if self.rows[row] != self.rows[rows[0]]), None)
            if differing is not None:
                raise DataError(
                    f"{self.path}: rows {rows[0] + 1} and {differing + 1} say different things about {printable(key)}; "
                    "keep one of them"
                )
            chosen.append(self.rows[rows[0]] if rows else ("",) * len(self.attributes))
        if keys and not any(of_images):
            raise DataError(
                f"{self.path}: no row names an image; the first row is {printable('/'.join(self.names[0]))}, an image "
                f"is {printable(keys[0])}"
            )
        unused = len(self.names) - len({row for rows in of_images for row in rows})
        notes = [f"{self.path.name}: {unused:,} of {len(self.names):,} rows name no image."] if unused else []
        columns = zip(*chosen, strict=True) if chosen else ((),) * len(self.attributes)
        return {name: list(column) for name, column in zip(self.attributes, columns, strict=True)}, notes

    def _named(self, attribute: str, values: Sequence[str], keys: Sequence[str]) -> list[str]:
        """Values as names of groups: as they are, or as ranges."""
        stripped = [printable(value.strip()) for value in values]
        long = next((row for row, value in enumerate(stripped) if len(value) > MAX_NAME), None)
        if long is not None:
            raise DataError(
                f"{attribute} of {printable(keys[long])} has {len(stripped[long])} characters; {MAX_NAME} at most"
            )
        edges = self.edges.get(attribute)
        advice = f"give edges (--group-edges {attribute}=…)"
        if edges is not None:
            numbers = {value: _number(value) for value in set(stripped) - {""}}
            wrong = next((row for row, value in enumerate(stripped) if value and numbers[value] is None), None)
            if wrong is not None:
                raise DataError(
                    f"{attribute} of {printable(keys[wrong])} is {stripped[wrong]!r}, not a number; "
                    f"--group-edges {attribute}=… needs numbers"
                )
            known = {value: number for value, number in numbers.items() if number is not None}
            ranges = _ranges(edges, whole=all(number.is_integer() for number in known.values()))
            places = np.digitize(list(known.values()), edges)
            place = {value: ranges[at] for value, at in zip(known, places.tolist(), strict=True)}
            stripped = [place[value] if value else "" for value in stripped]
        names = set(stripped) - {""}
        if edges is None and len(names) > MAX_NUMBERS and all(_number(value) is not None for value in names):
            raise DataError(f"{attribute} has {len(names)} different numbers; {advice} to put them into ranges")
        if len(names) > MAX_GROUPS:
            raise DataError(f"{attribute} has {len(names)} groups, {MAX_GROUPS} at most; {advice} if it is a number")
        return stripped


def read_groups(path: str | Path, edges: Sequence[str] = ()) -> Groups:
    """The groups of a CSV file ``image,ATTRIBUTE[,ATTRIBUTE…]``, with edges ``ATTRIBUTE=NUMBER,NUMBER,…``."""
    table = _read_table(Path(path))
    of_attribute: dict[str, tuple[float, ...]] = {}
    for text in edges:
        attribute, bounds = _edges(text)
        if attribute not in table.attributes:
            raise Error(
                f"--group-edges {text}: there is no attribute {attribute!r}, only {', '.join(table.attributes)}"
            )
        if attribute in of_attribute:
            raise Error(f"--group-edges gives {attribute!r} twice; keep one")
        of_attribute[attribute] = bounds
    return replace(table, edges=of_attribute)


def in_order(names: Sequence[str]) -> list[str]:
    """Distinct names of groups as people list them: ranges and numbers ascending, then other names by alphabet.

    Examples:
        >>> in_order(["60 and above", "13 to 59", "below 13"]), in_order(["10", "9", "man"])
        (['below 13', '13 to 59', '60 and above'], ['9', '10', 'man'])
    """

    def place(name: str) -> tuple[float, int, str]:
        number = re.match(r"(below |\[)?([+-]?\d+(?:\.\d+)?)", name)
        if number is None:
            return math.inf, 0, name
        return float(number[2]), -1 if number[1] == "below " else 0, name

    return sorted(set(names), key=place)


def _read_table(path: Path) -> Groups:
    header, rows = read_csv(path)
    attributes = [name.strip() for name in header[1:]]
    if header[:1] != ["image"] or not attributes or not all(attributes):
        raise DataError(f"{path}: the header must be image,ATTRIBUTE[,ATTRIBUTE…]")
    if len(attributes) > MAX_ATTRIBUTES or any(len(name) > MAX_NAME or not name.isprintable() for name in attributes):
        raise DataError(
            f"{path}: at most {MAX_ATTRIBUTES} attributes, with printable names of at most {MAX_NAME} characters"
        )
    if not rows:
        raise DataError(f"{path}: no rows below the header")
    names = [name_parts(row[0].strip()) for row in rows]
    return Groups(path, tuple(attributes), names, [tuple(row[1:]) for row in rows])


def _edges(text: str) -> tuple[str, tuple[float, ...]]:
    match = _ATTRIBUTE.fullmatch(text)
    numbers = [_number(edge.strip()) for edge in match[2].split(",")] if match else []
    known = [number for number in numbers if number is not None]
    if match is None or len(known) < len(numbers):
        raise Error(f"--group-edges {text}: not ATTRIBUTE=NUMBER,NUMBER,…, such as age=13,20,40,60")
    if known != sorted(set(known)):
        raise Error(f"--group-edges {text}: the numbers must ascend")
    if len(known) >= MAX_GROUPS:
        raise Error(f"--group-edges {text}: {MAX_GROUPS - 1} numbers at most")
    return match[1], tuple(known)


def _ranges(edges: Sequence[float], *, whole: bool) -> list[str]:
    """Names of the ranges below the first edge, between the edges, and from the last."""
    texts = [_text(edge) for edge in edges]
    between = []
    for low, high in pairwise(edges):
        if not (whole and low.is_integer() and high.is_integer()):
            between.append(f"[{_text(low)}, {_text(high)})")
        else:
            between.append(_text(low) if high == low + 1 else f"{_text(low)} to {_text(high - 1)}")
    return [f"below {texts[0]}", *between, f"{texts[-1]} and above"]


def _text(number: float) -> str:
    return str(int(number)) if number.is_integer() else str(number)


def _number(text: str) -> float | None:
    if _NUMBER.fullmatch(text) is None:
        return None
    number = float(text)
    return number if math.isfinite(number) else None
