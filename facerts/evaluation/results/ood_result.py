"""Faces against non-faces: the section ``ood`` of a result."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from facerts.evaluation.results.result_part import ByScore, Count, Interval, ResultPart

TprName = Literal["0.90", "0.95"]
TnrAtTpr = TypedDict("TnrAtTpr", {"0.90": float, "0.95": float})
OodIntervals = TypedDict("OodIntervals", {"auroc": Interval, "0.90": Interval, "0.95": Interval})


class OodNumbers(ResultPart):
    """How well one score separates faces from non-faces."""

    auroc: float = Field(description="Area under the ROC curve.")
    aupr: float = Field(
        description="Area under the precision-recall curve, with faces as the positive class."
    )
    fpr95: float = Field(
        description="Share of the non-faces at or above the threshold that keeps 95% of the faces."
    )
    tnr_at_tpr: TnrAtTpr = Field(
        description="Share of the non-faces below the threshold that keeps 90% and 95% of the faces."
    )
    ci95: OodIntervals = Field(description="95% intervals of `auroc` and of the two values of `tnr_at_tpr`.")


class OodScore(OodNumbers):
    """One score: all faces against all non-faces, and by source."""

    per_source: dict[str, OodNumbers] = Field(
        default={}, description="Each source of faces against all non-faces."
    )
    per_out_source: dict[str, OodNumbers] = Field(
        default={}, description="All faces against each source of non-faces."
    )


class ExcludedFiles(ResultPart):
    """Patterns of the file names that were left out; null for none."""

    faces: str | None = Field(alias="in", default=None, description="Pattern for faces.")
    others: str | None = Field(alias="out", default=None, description="Pattern for non-faces.")


class OodResult(ResultPart):
    """Faces (in distribution) against non-faces (out of distribution)."""

    faces: dict[str, Count] = Field(
        alias="in", description="Number of images by source of faces.", min_length=1
    )
    others: dict[str, Count] = Field(
        alias="out", description="Number of images by source of non-faces.", min_length=1
    )
    by: ByScore[OodScore] = Field(description="Numbers by score.", min_length=1)
    interval: str = Field(description="Unit that the intervals resample, as text.")
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    excluded: ExcludedFiles | None = Field(default=None, description="Files that were left out.")
    data_sha256: dict[str, str] = Field(default={}, description="As under `verification`, by source.")
