"""Images of people to enrollments: what a gallery holds of each image, and why others were rejected."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.open_source import open_source
from facerts.datasets.source import Source
from facerts.errors import DataError, Error, ModelError
from facerts.galleries.person_name import person_name
from facerts.io.npz import ArrayType
from facerts.metrics.pooling import face_weights
from facerts.scoring.inputs import Color, ImageInputs, lazy_inputs
from facerts.scoring.reasons import REASONS, in_order, in_words
from facerts.scoring.scorer import Scorer

Images = str | Path | Sequence[str | Path] | Source
# Shares of the calibration faces that the default thresholds keep: images to enroll can be chosen, probes cannot.
ENROLLMENT_KEEP = 0.95
PROBE_KEEP = 0.99
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
    """

    person: NDArray[np.str_]
    path: NDArray[np.str_]
    embedding: NDArray[np.float32]
    quality: NDArray[np.float32]
    percentile: NDArray[np.float32]
    reasons: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.path)

    def take(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> Enrollments:
        """Select rows."""
        return Enrollments(*(values[rows] for values in vars(self).values()))

    def joined(self, other: Enrollments) -> Enrollments:
        """These rows, then the others."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Enrollments(*(np.concatenate(pair) for pair in pairs))

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


def default_threshold(scorer: Scorer, keep: float) -> float | None:
    """The model's threshold of quality for a share of its calibration faces; None if it was not calibrated for that."""
    try:
        return scorer.threshold(keep)
    except ModelError:
        return None


def people_of(source: Source) -> list[str]:
    """The person of each image."""
    if source.labels is None:
        raise DataError(
            f"{source.name}: no people; give a folder with one subfolder of images for each person"
        )
    try:
        names = [person_name(str(name)) for name in source.identities]
    except Error as error:
        raise DataError(
            f"{source.name}: {error}; nothing was enrolled, so rename that person's folder"
        ) from error
    return [names[label] for label in source.labels.tolist()]


def enroll_images(
    scorer: Scorer,
    images: Images | ImageInputs,
    *,
    person: str | None = None,
    min_quality: float | None = None,
    color: Color = "RGB",
    progress: str = "",
) -> tuple[Enrollments, tuple[Rejected, ...]]:
    """Score the largest face of each image, and keep those that are good enough to be enrolled.

    Args:
        images: images with identities: a folder with one subfolder for each person, records, tar shards; with
            ``person``, those of ``Scorer.score``, all of that person. An image without a path is named by the SHA-256
            of its content.
        min_quality: reject faces below this quality; None for the model's threshold that keeps 0.95 of its calibration
            faces, if it has one; -inf for none. What is not a face is rejected too, unless this is -inf.
        color: order of the channels of arrays: "RGB", or "BGR" for those of OpenCV.
    """
    if min_quality is None:
        min_quality = default_threshold(scorer, ENROLLMENT_KEEP)
    if person is None:
        source = images if isinstance(images, Source) else open_source(images)  # type: ignore[arg-type]
        return enroll(scorer, source, people_of(source), min_quality, progress=progress)
    named = lazy_inputs(images, color, by_content=True)
    people = [person_name(person)] * len(named)
    return enroll(scorer, named, people, min_quality, color=color, progress=progress)


def check_model(scorer: Scorer, model: str, sha256: str) -> None:
    """Refuse a model other than a gallery's.

    Args:
        model: name of the gallery's model.
        sha256: SHA-256 of its file.
    """
    if scorer.recognizer.sha256 != sha256:
        raise ModelError(
            f"the gallery is of the model {model} ({sha256[:12]}…), and embeddings of "
            f"{scorer.recognizer.name} ({scorer.recognizer.sha256[:12]}…) cannot be compared with it; give that model "
            "with --model, or build the gallery again"
        )


def enroll(
    scorer: Scorer,
    images: ImageInputs,
    people: Sequence[str],
    min_quality: float | None,
    *,
    color: Color = "RGB",
    progress: str = "",
) -> tuple[Enrollments, tuple[Rejected, ...]]:
    """Score the largest face of each image.

    Args:
        people: the person of each image.
        min_quality: reject faces below this quality; None for none. What is not a face is rejected too, unless this is
            -inf.
    """
    kept, rejected = [], []
    faces = scorer.score_each(images, min_quality=min_quality, largest=True, color=color, progress=progress)
    for person, face in zip(people, faces, strict=True):
        row, embedding = face.row, face.embedding
        if embedding is None or row.rejected:
            rejected.append(Rejected(person, row.path, row.reasons, row.error))
        else:
            joined = SEPARATOR.join(row.reasons)
            kept.append((person, row.path, embedding, row.quality, row.percentile, joined))
    if not kept:
        first = f", first {rejected[0].path}: {rejected[0].why}" if rejected else ""
        raise DataError(f"none of the {len(people)} images can be enrolled{first}")
    people, paths, embeddings, quality, percentile, reasons = zip(*kept, strict=True)
    return Enrollments(
        np.array(people, dtype=str),
        np.array(paths, dtype=str),
        np.stack(embeddings).astype(np.float32),
        np.array(quality, dtype=np.float32),
        np.array(percentile, dtype=np.float32),
        np.array(reasons, dtype=str),
    ), tuple(rejected)
