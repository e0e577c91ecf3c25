"""Images to faces that are searched for or enrolled, and why others were rejected."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from facerts.datasets.open_source import open_source
from facerts.datasets.source import Source
from facerts.errors import DataError, Error, ModelError
from facerts.galleries.enrollments import SEPARATOR, Enrollments
from facerts.galleries.person_name import person_name
from facerts.scoring.face import Face, embedded
from facerts.scoring.inputs import BytesLike, Color, ImageInputs, lazy_inputs
from facerts.scoring.reasons import in_words
from facerts.scoring.scorer import Scorer

Faces: TypeAlias = "ImageInputs | Face | Iterable[Face]"
# Shares of the calibration faces that the default thresholds keep: images to enroll can be chosen, probes cannot.
ENROLLMENT_KEEP = 0.95
PROBE_KEEP = 0.99


@dataclass(frozen=True)
class Rejected:
    """An image that was not enrolled.

    Attributes:
        reasons: why not, and what else makes its face poor, see ``facerts.scoring.Row``; empty if there is an error.
    """

    person: str
    path: str
    reasons: tuple[str, ...] = ()
    error: str | None = None

    @property
    def why(self) -> str:
        """Why it was not enrolled, in words."""
        return self.error or in_words(self.reasons)


def default_threshold(scorer: Scorer, keep: float) -> float | None:
    """The model's threshold of quality for a share of its calibration faces; None if it was not calibrated for that."""
    try:
        return scorer.threshold(keep)
    except ModelError:
        return None


def scored_faces(
    scorer: Scorer,
    images: Any,
    keep: float,
    min_quality: float | None,
    *,
    by_content: bool = False,
    **options: Any,
) -> Iterator[Face]:
    """The faces of images, or faces that the scorer has returned, accepted or not.

    Args:
        keep: share of the calibration faces that the model's threshold keeps, where there is no ``min_quality``.
        by_content: name those without a path by the SHA-256 of their content.
        options: of ``Scorer.score_each``.
    """
    if min_quality is None:
        min_quality = default_threshold(scorer, keep)
    several = isinstance(images, Iterable) and not (
        isinstance(images, str | BytesLike | np.ndarray | Mapping) or hasattr(images, "read")
    )
    given = list(images) if several else [images]
    if any(isinstance(each, Face) for each in given):
        faces = [_checked(face, scorer, by_content=by_content) for face in given]
        return map(scorer.row_builder(min_quality).decided, embedded(faces))
    if not isinstance(images, Source):
        images = lazy_inputs(given if several else images, options["color"], by_content=by_content)
    return scorer.score_each(images, min_quality=min_quality, **options)


def _checked(face: object, scorer: Scorer, *, by_content: bool) -> Face:
    if not isinstance(face, Face):
        raise Error(f"give images or faces, not both: there is a {type(face).__name__} among the faces")
    scorer.check_face(face)
    if by_content and re.fullmatch(r"image \d+", face.row.path):
        name = hashlib.sha256(b"" if face.crop is None else face.crop.tobytes()).hexdigest()[:16]
        return replace(face, row=replace(face.row, path=f"image {name}"))
    return face


def people_of(source: Source) -> list[str]:
    """The person of each image."""
    if source.labels is None:
        raise DataError(f"{source.name}: no people; give a folder with one subfolder for each, or person=NAME")
    try:
        names = [person_name(str(name)) for name in source.identities]
    except Error as error:
        raise DataError(f"{source.name}: {error}; nothing was enrolled, so rename that person's folder") from error
    return [names[label] for label in source.labels.tolist()]


def enroll(
    scorer: Scorer,
    images: Any,
    person: str | None = None,
    *,
    min_quality: float | None = None,
    color: Color = "RGB",
    progress: str = "",
) -> tuple[Enrollments, tuple[Rejected, ...]]:
    """Score the largest face of each image, and keep those that are good enough; see ``Gallery.add``."""
    if person is None and not isinstance(images, Source):
        several = images if isinstance(images, list | tuple) else [images]
        if not all(isinstance(each, str | Path) for each in several):
            raise Error(
                "give the person of these images, such as person='anna'; without one, images are taken from a folder "
                "with one subfolder for each person"
            )
        images = open_source(images)
    people = people_of(images) if person is None else repeat(person_name(person))
    how: dict[str, Any] = {"by_content": True, "largest": True, "color": color, "progress": progress}
    faces = scored_faces(scorer, images, ENROLLMENT_KEEP, min_quality, **how)
    kept, vectors, rejected = [], [], []
    for name, face in zip(people, faces, strict=person is None):
        row, vector = face.row, face.vector
        if vector is None or row.rejected:
            rejected.append(Rejected(name, row.path, row.reasons, row.error))
        else:
            kept.append((name, row.path, row.quality, row.percentile, SEPARATOR.join(row.reasons)))
            vectors.append(vector)
    if not kept:
        first = f", first {rejected[0].path}: {rejected[0].why}" if rejected else ""
        raise DataError(f"none of the {len(rejected)} images can be enrolled{first}")
    embedding, model = np.stack(vectors).astype(np.float32), scorer.recognizer
    return Enrollments.of(kept, embedding, model.name, model.sha256).in_order(), tuple(rejected)
