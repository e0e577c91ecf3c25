"""The best images of each person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facerts.datasets.folder import Files, is_image_name
from facerts.errors import DataError
from facerts.galleries.enrollments import Enrollments
from facerts.io.file_names import safe_path
from facerts.io.files import sync_names
from facerts.scoring.copies import write_copy
from facerts.scoring.prepare import stored_file


@dataclass(frozen=True)
class BestImage:
    """An image of a person.

    Attributes:
        rank: 1 for the best image of the person.
        score: the weight of its quality times its cosine to the template of the person's other images.
        own_cosine: cosine similarity to the template of the person's other images; None for an only image.
    """

    person: str
    rank: int
    path: str
    score: float
    quality: float | None
    own_cosine: float | None
    reasons: tuple[str, ...]


def best_images(images: Enrollments, k: int = 1) -> list[BestImage]:
    """The ``k`` best images of each person: good, and like the person's other images."""
    own = images.own_cosines()
    score = images.weight * np.nan_to_num(own, nan=1.0)
    quality = np.nan_to_num(images.quality, nan=0.0)
    order = np.lexsort((-quality, -score, images.row))
    rank = np.arange(len(order)) - np.searchsorted(images.row[order], images.row[order])
    return [
        BestImage(
            str(images.person[row]),
            place + 1,
            str(images.path[row]),
            round(float(score[row]), 4),
            number_or_none(images.quality[row]),
            number_or_none(own[row]),
            images.reasons_of(row),
        )
        for row, place in zip(order[rank < k].tolist(), rank[rank < k].tolist(), strict=True)
    ]


def number_or_none(value: float) -> float | None:
    """A number with four decimals; None for NaN."""
    return None if np.isnan(value) else round(float(value), 4)


def copy_images(images: Sequence[BestImage], folder: Path) -> list[Path]:
    """Copy images to one subfolder for each person; an existing file of other contents is kept.

    Returns:
        The files written.
    """
    written = []
    for image in images:
        path = stored_file(image.path)
        if not (path.is_file() and is_image_name(path.name)):
            raise DataError(
                f"{path}: no such image file; copies need the images where they were when they were enrolled, as files"
            )
        data = Files(path.name, path.parent, [path.name], None).read(0)
        written += write_copy(folder, safe_path([image.person, path.name]), data)
    sync_names(written)
    return written
