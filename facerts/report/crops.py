"""The crops that a result kept, as images of a page: wrong decisions, and the best and worst by each score."""

from __future__ import annotations

import base64
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.report.subject import Subject

PAIRS, IMAGES = 12, 12


class Crop(NamedTuple):
    """The data URI of an image, and its name."""

    source: str
    name: str


class Shown(NamedTuple):
    """An image or a pair, and the lines under it."""

    images: list[Crop]
    lines: list[str]


def worst_pairs(subject: Subject, benchmark: str) -> dict[str, list[Shown]]:
    """The genuine pairs least alike and the impostor pairs most alike, the worst first; nothing without images."""
    prefix = f"verification/{benchmark}/"
    crops = _crops(subject, prefix)
    if not crops:
        return {}
    similarity = subject.sections.verification[benchmark].similarity
    scores, same, pairs = (subject.arrays[prefix + key] for key in ("scores", "same", "pairs"))
    quality = subject.arrays.get(prefix + "quality")
    walls = {}
    for heading, rows in (
        ("Genuine pairs least alike", np.flatnonzero(same)[np.argsort(scores[same], kind="stable")]),
        ("Impostor pairs most alike", np.flatnonzero(~same)[np.argsort(-scores[~same], kind="stable")]),
    ):
        shown = []
        for row in rows[:PAIRS]:
            images = [int(image) for image in pairs[row]]
            if all(image in crops for image in images):
                lines = [f"{similarity} {scores[row]:.3f}"]
                if quality is not None:
                    lines.append(f"quality {', '.join(f'{quality[image]:.3g}' for image in images)}")
                shown.append(Shown([crops[image] for image in images], lines))
        walls[heading] = shown
    return walls


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
        heading: [Shown([crops[row]], [f"{values[row]:.3g}"]) for row in rows.tolist() if row in crops]
        for heading, rows in (
            (f"lowest {score}", order[:IMAGES]),
            (f"highest {score}", order[::-1][:IMAGES]),
        )
    }


def _crops(subject: Subject, prefix: str) -> dict[int, Crop]:
    """The crops by row."""
    if prefix + "shown_rows" not in subject.arrays:
        return {}
    rows, ends, names = (subject.arrays[prefix + key] for key in ("shown_rows", "shown_ends", "names"))
    data: NDArray[np.uint8] = subject.arrays[prefix + "shown_jpeg"]
    begins = np.concatenate([[0], ends[:-1]])
    return {
        int(row): Crop(
            "data:image/jpeg;base64," + base64.b64encode(data[begin:end].tobytes()).decode(), str(names[row])
        )
        for row, begin, end in zip(rows, begins, ends, strict=True)
    }
