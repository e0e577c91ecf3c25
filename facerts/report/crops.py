"""The crops that a result kept, as images of a page: wrong decisions, and the best and worst by each score."""

from __future__ import annotations

import base64
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.report.subject import Subject

PAIRS, IMAGES = 12, 12


@dataclass(frozen=True)
class Shown:
    """An image with what is to be said of it.

    Attributes:
        source: a data URI.
        name: of the image.
        text: its number or numbers.
    """

    source: str
    name: str
    text: str

    @property
    def images(self) -> list[Shown]:
        """Itself."""
        return [self]

    @property
    def lines(self) -> list[str]:
        """What stands under it."""
        return [self.text]


@dataclass(frozen=True)
class ShownPair:
    """Two images, and how alike they are by which similarity."""

    first: Shown
    second: Shown
    similarity: str
    score: float

    @property
    def images(self) -> list[Shown]:
        """Both."""
        return [self.first, self.second]

    @property
    def lines(self) -> list[str]:
        """What stands under them."""
        quality = [f"quality {self.first.text}, {self.second.text}"] if self.first.text else []
        return [f"{self.similarity} {self.score:.3f}", *quality]


def worst_pairs(subject: Subject, benchmark: str) -> dict[str, list[ShownPair]]:
    """The genuine pairs least alike and the impostor pairs most alike, the worst first; nothing without images."""
    prefix = f"verification/{benchmark}/"
    crops = _crops(subject, prefix)
    if not crops:
        return {}
    similarity = subject.sections.verification[benchmark].similarity
    scores, same, pairs = (subject.arrays[prefix + key] for key in ("scores", "same", "pairs"))
    found = {}
    for heading, rows in (
        ("Genuine pairs least alike", np.flatnonzero(same)[np.argsort(scores[same], kind="stable")]),
        ("Impostor pairs most alike", np.flatnonzero(~same)[np.argsort(-scores[~same], kind="stable")]),
    ):
        shown = []
        for row in rows[:PAIRS]:
            first, second = (int(image) for image in pairs[row])
            if first in crops and second in crops:
                one, other = (_shown(subject, prefix, crops, image, "quality") for image in (first, second))
                shown.append(ShownPair(one, other, similarity, float(scores[row])))
        found[heading] = shown
    return found


def best_and_worst(subject: Subject, prefix: str, score: str) -> dict[str, list[Shown]]:
    """The images of lowest and of highest score that were kept; nothing where there are none."""
    crops = _crops(subject, prefix)
    values = subject.arrays.get(prefix + score)
    quality = subject.arrays.get(prefix + "quality")
    repeated = (
        score != "quality" and values is not None and quality is not None and np.array_equal(values, quality)
    )
    if not crops or values is None or repeated:
        return {}
    order = np.argsort(values, kind="stable")
    return {
        heading: [_shown(subject, prefix, crops, int(row), score) for row in rows if int(row) in crops]
        for heading, rows in (
            (f"lowest {score}", order[:IMAGES]),
            (f"highest {score}", order[::-1][:IMAGES]),
        )
    }


def _crops(subject: Subject, prefix: str) -> dict[int, str]:
    """Data URIs by row."""
    if prefix + "shown_rows" not in subject.arrays:
        return {}
    rows, ends = subject.arrays[prefix + "shown_rows"], subject.arrays[prefix + "shown_ends"]
    data: NDArray[np.uint8] = subject.arrays[prefix + "shown_jpeg"]
    begins = np.concatenate([[0], ends[:-1]])
    return {
        int(row): "data:image/jpeg;base64," + base64.b64encode(data[begin:end].tobytes()).decode()
        for row, begin, end in zip(rows, begins, ends, strict=True)
    }


def _shown(subject: Subject, prefix: str, crops: dict[int, str], row: int, score: str) -> Shown:
    values = subject.arrays.get(prefix + score)
    text = "" if values is None else f"{values[row]:.3g}"
    return Shown(crops[row], str(subject.arrays[prefix + "names"][row]), text)
