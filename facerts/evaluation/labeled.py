"""Result folders under labels of their readers' own, for what puts several of them side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from facerts.errors import DataError
from facerts.evaluation.result_folder import Arrays, load_result
from facerts.io.shown import shown_path


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
        labeled: whether the label was given; otherwise it is the model's name.
    """

    label: str
    folder: Path
    content: dict[str, Any]
    arrays: Arrays
    labeled: bool = True

    @property
    def place(self) -> str:
        """The folder as others may see it."""
        return shown_path(self.folder)

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


def load_labeled(texts: Sequence[str | Path]) -> list[Saved]:
    """Read folders given as ``FOLDER`` or ``LABEL=FOLDER`` (a label may hold "=" itself).

    Raises:
        DataError: no result in a folder, or a broken one.
    """
    results = []
    for text in map(str, texts):
        label, _, path = ("", "", text) if Path(text).is_dir() else text.rpartition("=")
        content, arrays = load_result(path)
        name = content["model"]["name"]
        results.append(Saved(label or name, Path(path), content, arrays, labeled=bool(label)))
    return results


def mean_of(each: Sequence[Measured]) -> Measured:
    """Mean of numbers of several benchmarks.

    Its interval is made from theirs by squaring and adding the distances to each end (Zou and Donner, Statistics in
    Medicine 2008), which takes the benchmarks as independent; those that share people are not quite.
    """
    value = math.fsum(one.value for one in each) / len(each)
    down = math.hypot(*(one.value - one.low for one in each)) / len(each)
    up = math.hypot(*(one.high - one.value for one in each)) / len(each)
    return Measured(value, value - down, value + up)


def by_cosine(section: Any) -> bool:
    """Whether a benchmark's pairs were compared by the cosine, as every method's can be."""
    return bool(section.get("similarity", "cosine") == "cosine")


def quality_of(saved: Saved, first: Saved, name: str, score: str) -> NDArray[Any]:
    """A result's quality of the pictures of another result of the same benchmark, in the other's order.

    Args:
        saved: whose quality.
        first: whose pictures.
        name: of the benchmark.
        score: which score of a picture is its quality.

    Returns:
        ``(N,)``, matched by the pictures' names.

    Raises:
        DataError: a picture of the one is not in the other, or there is no such score.
    """
    wanted, own = (one.array(f"verification/{name}/names").tolist() for one in (first, saved))
    for one, other, missing in (
        (saved, first, set(wanted) - set(own)),
        (first, saved, set(own) - set(wanted)),
    ):
        if missing:
            raise DataError(
                f"{one.folder}: {name} has no picture {min(missing)!r}, which {other.folder} has; evaluate both on the "
                "same benchmark"
            )
    row = {key: number for number, key in enumerate(own)}
    return saved.array(f"verification/{name}/{score}")[[row[key] for key in wanted]]
