"""What a gallery holds of each image, and what follows from it: templates, how alike strangers are, the best images."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.pairwise import leave_one_out_cosines, rows_by_label
from facerts.datasets.folder import is_image_name
from facerts.errors import DataError, Error
from facerts.galleries.person_name import person_name
from facerts.galleries.unmated import SearchThreshold, search_threshold
from facerts.io.files import sync_names
from facerts.io.npz import ArrayType
from facerts.metrics.identification import search
from facerts.metrics.pooling import face_weights, pool
from facerts.scoring.copies import copy_stored
from facerts.scoring.prepare import storable, stored_file
from facerts.scoring.reasons import REASONS, in_order

# Images that stand for all when a gallery is so large that comparing each with every person would take long.
MAX_SEARCHES = 20_000
KEPT_THRESHOLDS = 64
TOO_FEW = "a gallery of one person has no others to compare with; enroll at least two people"
# Between the reasons of an image.
SEPARATOR = ";"
# The arrays of ``Enrollments`` besides that of the people.
IMAGE_ARRAYS = {
    "path": ArrayType(np.str_, ("images",)),
    "embedding": ArrayType(np.float32, ("images", "numbers")),
    "quality": ArrayType(np.float32, ("images",), nan=True),
    "percentile": ArrayType(np.float32, ("images",), 0, 100, nan=True),
    "reasons": ArrayType(np.str_, ("images",)),
}
COLUMNS = ("person", *IMAGE_ARRAYS)


@dataclass(frozen=True)
class Enrollments:
    """Images of people, one row each.

    Attributes:
        person: ``(N,)`` text, the person of each image.
        path: ``(N,)`` text, where the image was found.
        embedding: ``(N, d) float32`` of unit length.
        quality: ``(N,) float32``; NaN if the model has none.
        percentile: ``(N,) float32``, 0 to 100, the percentage of the calibration faces with lower quality; NaN if the
            model is not calibrated.
        reasons: ``(N,)`` text, what makes each image poor, see ``facerts.scoring.reasons``; joined by ``;``, empty for
            none.
        model_sha256: SHA-256 of the model's file; another model's embeddings cannot be compared with these.
    """

    person: NDArray[np.str_]
    path: NDArray[np.str_]
    embedding: NDArray[np.float32]
    quality: NDArray[np.float32]
    percentile: NDArray[np.float32]
    reasons: NDArray[np.str_]
    model: str
    model_sha256: str

    @classmethod
    def of(
        cls, rows: Sequence[tuple[Any, ...]], embedding: NDArray[np.float32], model: str, model_sha256: str
    ) -> Enrollments:
        """Images with these people, paths, qualities, percentiles and reasons."""
        person, path, quality, percentile, reasons = zip(*rows, strict=True) if rows else ((),) * 5
        return cls(
            np.array(person, dtype=str),
            np.array(path, dtype=str),
            embedding,
            np.array(quality, dtype=np.float32),
            np.array(percentile, dtype=np.float32),
            np.array(reasons, dtype=str),
            model,
            model_sha256,
        )

    def __len__(self) -> int:
        return len(self.path)

    @property
    def size(self) -> int:
        """Number of numbers of an embedding."""
        return int(self.embedding.shape[1])

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Enrollments:
        """Select rows."""
        return self._with(lambda name: getattr(self, name)[rows])

    def in_order(self) -> Enrollments:
        """The images by person, with names and paths as they are stored; spellings of one name are one person."""
        given, row = np.unique(self.person, return_inverse=True)
        person = np.array([*map(person_name, given.tolist())], dtype=str)[row]
        path = np.array([*map(storable, self.path.tolist())], dtype=str)
        return replace(self, person=person, path=path).take(np.argsort(person, kind="stable"))

    def changed(self, gone: NDArray[np.bool_], added: Enrollments) -> Enrollments:
        """These images without some, and with others."""
        left = self.take(~gone)
        joined = self._with(lambda name: np.concatenate([getattr(left, name), getattr(added, name)]))
        return joined.in_order()

    def _with(self, column: Callable[[str], Any]) -> Enrollments:
        return replace(self, **{name: column(name) for name in COLUMNS})

    def reasons_of(self, row: int) -> tuple[str, ...]:
        """The reasons of one image, most important first."""
        return tuple(filter(None, str(self.reasons[row]).split(SEPARATOR)))

    @property
    def weight(self) -> NDArray[np.float64]:
        """``(N,)`` weight of each image in its person's template, above 0 and at most 1."""
        return face_weights(self.percentile)

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Person and path of each image."""
        return list(zip(self.person.tolist(), self.path.tolist(), strict=True))

    @cached_property
    def people(self) -> NDArray[np.str_]:
        """``(P,)`` names of the people, in order."""
        return np.unique(self.person)

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """``(N,)`` row in ``people`` of each image."""
        return np.searchsorted(self.people, self.person).astype(np.int64)

    @cached_property
    def templates(self) -> NDArray[np.float32]:
        """``(P, d)`` of unit length: the mean of each person's embeddings, weighted by quality."""
        return pool(self.embedding, self.row, weights=self.weight)

    def own_cosines(self, weight: NDArray[np.floating] | None = None) -> NDArray[np.float32]:
        """``(N,)`` cosine of each image to the template of its person's other images; NaN for an only image."""
        weight = self.weight if weight is None else weight
        own = np.full(len(self), np.nan, dtype=np.float32)
        for rows in rows_by_label(self.row):
            if len(rows) > 1:
                own[rows] = leave_one_out_cosines(self.embedding[rows], weight[rows])
        return own

    def nearest_others(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The most similar other person to each of some images, as rows in ``people``, and the cosines."""
        if len(self.people) < 2:
            raise DataError(TOO_FEW)
        return nearest_other_rows(self.templates, self.embedding[rows], self.row[rows])

    @cached_property
    def threshold(self) -> Callable[..., SearchThreshold]:
        """The minimum cosine of a match, see ``search_threshold`` for the rate and the recognizer's thresholds."""
        rows = sampled_rows(len(self))
        scores = self.nearest_others(rows)[1]
        # A threshold takes longer than a search, and the requests of a service ask for few different rates.
        return lru_cache(KEPT_THRESHOLDS)(partial(search_threshold, scores, self.row[rows], len(self.people)))

    def search(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first."""
        nearest = search(self.templates, probes, k)
        names = self.people[nearest.templates].tolist()
        return [list(zip(*pair, strict=True)) for pair in zip(names, nearest.scores.tolist(), strict=True)]

    def among(self, entries: Collection[tuple[str, str]], people: Collection[str] = ()) -> NDArray[np.bool_]:
        """``(N,)`` which images are given by person and path, or are those of people."""
        given = set(entries)
        return np.array([entry in given or entry[0] in people for entry in self.entries], dtype=bool)


def check_faces(embedding: NDArray[np.float32], reasons: NDArray[np.str_]) -> None:
    """Check what somebody else stored of faces."""
    check_unit_length(embedding)
    for text in np.unique(reasons).tolist():
        given = text.split(SEPARATOR) if text else []
        if list(in_order(set(given) & set(REASONS))) != given:
            raise Error(f"the reasons of a face are {text[:100]!r}")


def check_unit_length(embedding: NDArray[np.float32]) -> None:
    """Check embeddings that somebody else stored."""
    norms = np.linalg.norm(embedding.astype(np.float64), axis=1)
    if not np.all(np.abs(norms - 1) < 1e-3):
        raise Error("an embedding is not of unit length")


def sampled_rows(total: int, most: int = MAX_SEARCHES) -> NDArray[np.int64]:
    """Rows of the images that stand for all when strangers are compared, evenly spread."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))


def nearest_other_rows(
    templates: NDArray[np.float32], embedding: NDArray[np.float32], own: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The row of the most similar template of another person to each image, and the cosine.

    Templates ``(P, d)``, two or more, and embeddings ``(N, d)`` are of unit length; ``own`` ``(N,)`` is the row of the
    template of each image's person.
    """
    nearest = search(templates, embedding, 2)
    second = (nearest.templates[:, 0] == own).astype(np.int64)
    each = np.arange(len(embedding))
    return nearest.templates[each, second], nearest.scores[each, second]


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
    """Copy images to one subfolder for each person, and return what was written; existing files are kept."""
    written = []
    for image in images:
        path = stored_file(image.path)
        # A gallery may name any file of this machine.
        if not is_image_name(path.name):
            raise DataError(f"{path}: not an image; only images are copied")
        written += copy_stored(path, folder, image.person, path.name)
    sync_names(written)
    return written
