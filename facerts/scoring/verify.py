"""Whether two faces are of the same person: the decision, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Literal

from facerts.scoring.face import Face, cosine
from facerts.scoring.reasons import NO_FACE, NOT_A_FACE, in_words

Decision = Literal["same", "different", "inconclusive"]

# Two crops of one image may differ by rounding.
IDENTICAL = 1 - 1e-5


@dataclass(frozen=True)
class Verification:
    """A decision on two images; fields without a value are None.

    Attributes:
        decision: "same" if the similarity reaches the threshold, otherwise "different"; "inconclusive" if the quality
            of an image is too low for either; None if there is an error.
        similarity: cosine similarity of the two embeddings.
        reason: why the decision is inconclusive.
        note: what else to know, such as that an image has several faces.
        first_quality: quality of the first image's face; higher is better.
        first_percentile: the percentage, 0 to 100, of the faces used for calibration that scored lower.
        first_faces: number of faces found in the first image; the largest is compared.
        fmr: the false match rate that was asked for; None if a threshold was.
        threshold: the similarity at or above which two faces match at that rate, or that was asked for.
        fnmr: the false non-match rate, 0 to 1, of the pairs used for calibration at that threshold; if the minimum
            quality is one of the model's own, of those pairs whose faces both reach it.
        fnmr_ci95: its 95% confidence interval.
        min_quality: faces below this quality are not compared; None if quality does not matter.
    """

    first: str
    second: str
    decision: Decision | None = None
    similarity: float | None = None
    reason: str | None = None
    note: str | None = None
    error: str | None = None
    first_quality: float | None = None
    second_quality: float | None = None
    first_percentile: float | None = None
    second_percentile: float | None = None
    first_faces: int | None = None
    second_faces: int | None = None
    fmr: float | None = None
    threshold: float | None = None
    fnmr: float | None = None
    fnmr_ci95: list[float] | None = None
    min_quality: float | None = None
    model_sha256: str = ""


@dataclass(frozen=True)
class MatchRule:
    """Decides whether two faces are of the same person; its attributes are those of ``Verification``."""

    fmr: float | None
    threshold: float
    fnmr: float | None
    fnmr_ci95: list[float] | None
    min_quality: float | None
    model_sha256: str

    def verify(self, first: Face, second: Face) -> Verification:
        """Compare two faces; the result has an error if there is none in one of the images."""
        error = "; ".join([*_error(first), *_error(second)]) or None
        result = replace(
            self.failed(first.row.path, second.row.path, error),
            first_quality=first.row.quality,
            second_quality=second.row.quality,
            first_percentile=first.row.percentile,
            second_percentile=second.row.percentile,
            first_faces=None if first.row.error else first.found,
            second_faces=None if second.row.error else second.found,
        )
        if first.vector is None or second.vector is None:
            return result
        similarity = cosine(first.vector, second.vector)
        reason = "; ".join([*self._too_poor(first), *self._too_poor(second)]) or None
        several = [face for face in (first, second) if face.found > 1]
        notes = [f"{face.row.path}: {face.found} faces, of which the largest is compared" for face in several]
        if similarity > IDENTICAL:
            notes.append("both images give the same embedding, so they are probably copies of one image")
        answer: Decision = "same" if similarity >= self.threshold else "different"
        return replace(
            result,
            decision=answer if reason is None else "inconclusive",
            similarity=similarity,
            reason=reason,
            note="; ".join(notes) or None,
        )

    def failed(self, first: str, second: str, error: str | None) -> Verification:
        """The result for two images that cannot be compared."""
        return Verification(first, second, error=error, **asdict(self))

    def _too_poor(self, face: Face) -> Iterator[str]:
        row = face.row
        if row.rejected and NOT_A_FACE in row.reasons:
            yield f"{row.path}: not a face"
        elif row.rejected:
            percentile = "" if row.percentile is None else f"percentile {int(row.percentile)}, "
            yield (f"{row.path}: {percentile}quality {row.quality:.3f} is below the minimum of {self.min_quality:.3f}")


def _error(face: Face) -> Iterator[str]:
    if face.row.error is not None:
        yield face.row.error
    elif face.vector is None:
        yield f"{face.row.path}: {in_words([NO_FACE])}"
