"""A gallery: people, their templates, and the images that these were made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from facerts.curation.identity_means import leave_one_out_cosines, rows_by_label
from facerts.embedding.search import find
from facerts.errors import DataError, ModelError
from facerts.galleries.enroll import (
    Enrollments,
    Images,
    Rejected,
    check_model,
    enroll_images,
)
from facerts.galleries.match import Match, match_faces
from facerts.galleries.people_search import PeopleSearch
from facerts.galleries.person_name import normal_name, person_name
from facerts.galleries.unmated import SearchThreshold, check_rate, search_threshold
from facerts.metrics.pooling import pool
from facerts.scoring.inputs import Color, ImageInputs
from facerts.scoring.row_builder import ScoredFace
from facerts.scoring.scorer import Scorer

# Images that stand for all when a gallery is so large that comparing each with every person would take long.
MAX_SEARCHES = 20_000
KEPT_THRESHOLDS = 64
TOO_FEW = "a gallery of one person has no others to compare with; enroll at least two people"
NOBODY_LEFT = "that would remove every image of the gallery; nothing was removed"


@dataclass(frozen=True)
class Gallery(PeopleSearch):
    """People to search for. It never changes: ``add`` and ``remove`` return another one, so threads may share it.

    Attributes:
        model_sha256: SHA-256 of the model's file; another model's embeddings cannot be compared with these.
        enrollments: the images, ordered by person.
        rejected: images that ``build`` or ``add`` did not enroll; not saved.

    Examples:
        >>> from pathlib import Path
        >>> import facerts
        >>> from facerts.datasets.synthetic import write_synthetic_faces
        >>> from facerts.galleries import best_images, read_gallery, write_gallery
        >>> write_synthetic_faces(Path("people"), identities=4, images=4)
        >>> scorer = facerts.load()
        >>> write_gallery("people.npz", Gallery.build(scorer, "people", min_quality=-9))
        >>> gallery = read_gallery("people.npz")
        >>> len(gallery.people), len(gallery.enrollments)
        (4, 16)
        >>> best = best_images(gallery)[0]
        >>> (match,) = gallery.search(scorer, best.path, min_quality=-9, fpir=0.1)
        >>> match.person == best.person
        True
    """

    model: str
    model_sha256: str
    enrollments: Enrollments
    rejected: tuple[Rejected, ...] = ()

    @classmethod
    def build(
        cls,
        scorer: Scorer,
        images: Images,
        *,
        min_quality: float | None = None,
        progress: str = "",
    ) -> Gallery:
        """Enroll the largest face of each image.

        Args:
            scorer: the model, and the detector for photos.
            images: images with identities: a folder with one subfolder for each person, records, tar shards.
            min_quality: reject faces below this quality; None for the model's threshold that keeps 0.95 of its
                calibration faces, if it has one; -inf for none. What is not a face is rejected too, unless
                this is -inf.
        """
        enrolled, rejected = enroll_images(scorer, images, min_quality=min_quality, progress=progress)
        return cls.from_enrollments(scorer.recognizer.name, scorer.recognizer.sha256, enrolled, rejected)

    @classmethod
    def from_enrollments(
        cls, model: str, sha256: str, enrollments: Enrollments, rejected: tuple[Rejected, ...] = ()
    ) -> Gallery:
        """A gallery of embeddings that were computed elsewhere, in any order; spellings of one name are one person."""
        given, row = np.unique(enrollments.person, return_inverse=True)
        person = np.array([*map(person_name, given.tolist())], dtype=str)[row]
        order = np.argsort(person, kind="stable")
        return cls(model, sha256, replace(enrollments, person=person).take(order), rejected)

    @cached_property
    def people(self) -> NDArray[np.str_]:
        """``(P,)`` names of the people, in order."""
        return np.unique(self.enrollments.person)

    @cached_property
    def row(self) -> NDArray[np.int64]:
        """``(N,)`` row in ``people`` of each image."""
        return np.searchsorted(self.people, self.enrollments.person).astype(np.int64)

    @cached_property
    def templates(self) -> NDArray[np.float32]:
        """``(P, d)`` of unit length: the mean of each person's embeddings, weighted by quality."""
        return pool(self.enrollments.embedding, self.row, weights=self.enrollments.weight)

    def own_cosines(self, weight: NDArray[np.floating] | None = None) -> NDArray[np.float32]:
        """``(N,)`` cosine of each image to the template of its person's other images; NaN for an only image."""
        weight = self.enrollments.weight if weight is None else weight
        own = np.full(len(self.row), np.nan, dtype=np.float32)
        for rows in rows_by_label(self.row):
            if len(rows) > 1:
                own[rows] = leave_one_out_cosines(self.enrollments.embedding[rows], weight[rows])
        return own

    def nearest_others(self, rows: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The most similar other person to each of some images, as rows in ``people``, and the cosines."""
        if len(self.people) < 2:
            raise DataError(TOO_FEW)
        return nearest_other_rows(self.templates, self.enrollments.embedding[rows], self.row[rows])

    def threshold(self, fpir: float) -> SearchThreshold:
        check_rate(fpir)
        return self._threshold(fpir)

    @cached_property
    def _threshold(self) -> Callable[[float], SearchThreshold]:
        total = len(self.enrollments)
        rows = sampled_rows(total)
        scores = self.nearest_others(rows)[1]
        # A threshold takes longer than a search, and the requests of a service ask for few different rates.
        return lru_cache(KEPT_THRESHOLDS)(partial(search_threshold, scores, self.row[rows], len(self.people)))

    def match(self, faces: Sequence[ScoredFace], *, fpir: float = 0.01, k: int = 1) -> list[Match]:
        size = self.templates.shape[1]
        return match_faces(faces, size, self.threshold(fpir).cosine, partial(self.nearest_people, k=k))

    def nearest_people(self, probes: NDArray[np.float32], k: int) -> list[list[tuple[str, float]]]:
        """The k most similar people to each probe ``(n, d)``, with their cosines, best first."""
        nearest = find(self.templates, probes, k, "numpy")
        names = self.people[nearest.templates].tolist()
        return [list(zip(*pair, strict=True)) for pair in zip(names, nearest.scores.tolist(), strict=True)]

    def add(
        self,
        scorer: Scorer,
        images: ImageInputs,
        *,
        person: str | None = None,
        min_quality: float | None = None,
        color: Color = "RGB",
        progress: str = "",
    ) -> Gallery:
        """This gallery with more images; an image that is enrolled already, by its path, is enrolled anew.

        Args:
            images: see ``build``; with ``person``, those of ``Scorer.score``, all of that person. An image without a
                path is named by the SHA-256 of its content.
            min_quality: see ``build``.
            color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.
        """
        self.check_model(scorer)
        new, rejected = enroll_images(
            scorer, images, person=person, min_quality=min_quality, color=color, progress=progress
        )
        return self.merged(Gallery(self.model, self.model_sha256, new, rejected))

    def merged(self, other: Gallery) -> Gallery:
        """This gallery with the images of another; those that are in both, by person and path, are the other's."""
        if other.model_sha256 != self.model_sha256:
            raise ModelError(
                f"galleries of different models cannot be merged: {self.model} ({self.model_sha256[:12]}…) and "
                f"{other.model} ({other.model_sha256[:12]}…)"
            )
        sizes = self.enrollments.embedding.shape[1], other.enrollments.embedding.shape[1]
        if sizes[0] != sizes[1]:
            raise DataError(f"embeddings of {sizes[0]} and {sizes[1]} numbers cannot be in one gallery")
        kept = self.enrollments.take(~self._among(set(other.entries)))
        joined = kept.joined(other.enrollments)
        return Gallery.from_enrollments(self.model, self.model_sha256, joined, other.rejected)

    def remove(self, *, people: Iterable[str] = (), images: Iterable[tuple[str, str]] = ()) -> Gallery:
        """This gallery without people, or without images, each given by person and path."""
        gone = self.rows_of(people=people, images=images)
        if gone.all():
            raise DataError(NOBODY_LEFT)
        return Gallery(self.model, self.model_sha256, self.enrollments.take(~gone))

    def rows_of(
        self, *, people: Iterable[str] = (), images: Iterable[tuple[str, str]] = ()
    ) -> NDArray[np.bool_]:
        """``(N,)`` which images are those of people, or are given by person and path."""
        names, entries = {*map(normal_name, people)}, {(normal_name(name), path) for name, path in images}
        known = set(self.entries)
        missing = sorted(names - set(self.people.tolist())) + [path for _, path in sorted(entries - known)]
        if missing:
            raise DataError(f"{missing[0]} is not in the gallery; nothing was removed")
        return self._among(entries) | np.isin(self.enrollments.person, sorted(names) or [""])

    def check_model(self, scorer: Scorer) -> None:
        check_model(scorer, self.model, self.model_sha256)

    @property
    def entries(self) -> list[tuple[str, str]]:
        """Person and path of each image."""
        return self.enrollments.entries

    def _among(self, entries: set[tuple[str, str]]) -> NDArray[np.bool_]:
        return np.array([entry in entries for entry in self.entries], dtype=bool)


def sampled_rows(total: int, most: int = MAX_SEARCHES) -> NDArray[np.int64]:
    """Rows of the images that stand for all when strangers are compared, evenly spread."""
    return np.unique(np.linspace(0, total - 1, min(total, most)).astype(np.int64))


def nearest_other_rows(
    templates: NDArray[np.float32], embedding: NDArray[np.float32], own: NDArray[np.integer]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The row of the most similar template of another person to each image, and the cosine.

    Args:
        templates: ``(P, d)`` of unit length, two or more.
        embedding: ``(N, d)`` of unit length.
        own: ``(N,)`` row of the template of each image's person.
    """
    nearest = find(templates, embedding, 2, "numpy")
    second = (nearest.templates[:, 0] == own).astype(np.int64)
    each = np.arange(len(embedding))
    return nearest.templates[each, second], nearest.scores[each, second]
