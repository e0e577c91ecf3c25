"""Which quality predicts whose errors? The section ``fiqa[SET]`` of a result."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field
from typing_extensions import TypedDict

from facerts.evaluation.results.groups_result import GroupsResult
from facerts.evaluation.results.ood_result import OodNumbers
from facerts.evaluation.results.reject_result import PairSet
from facerts.evaluation.results.result_part import (
    ByRate,
    ByScore,
    Count,
    Interval,
    ResultPart,
)

FiqaEnd = Literal["0.2", "0.3"]
# None where there are no errors that could be rejected.
FiqaAreas = TypedDict("FiqaAreas", {"0.2": float | None, "0.3": float | None})
FiqaIntervals = TypedDict("FiqaIntervals", {"0.2": Interval | None, "0.3": Interval | None})
QualityKind = Literal["model", "table", "crop", "recognizer", "bound"]


class Milliseconds(ResultPart):
    """Time per image on one processor core or as many threads as were given."""

    median: float = Field(description="Median over the rounds.")
    low: float = Field(description="Minimum over the rounds.")
    high: float = Field(description="Maximum over the rounds.")


class FiqaOperatingPoint(ResultPart):
    """A recognizer at one false match rate, before anything is rejected."""

    threshold: float = Field(description="Minimum similarity of a match.")
    impostors_accepted: Count = Field(description="Impostor pairs at or above the threshold.")
    fnmr: float = Field(description="False non-match rate.")
    ci95: Interval | None = Field(default=None, description="95% interval of `fnmr`.")


class FiqaRecognizer(ResultPart):
    """A recognizer whose errors the qualities are to predict."""

    sha256: str = Field(description="SHA-256 of the file.")
    at_fmr: ByRate[FiqaOperatingPoint] = Field(
        default={}, description="By false match rate; empty without pairs."
    )
    milliseconds: Milliseconds | None = Field(
        default=None, description="Time per image of a forward pass; null if it was not measured."
    )


class FiqaQuality(ResultPart):
    """A quality that is judged."""

    kind: QualityKind = Field(
        description="Where it comes from: a `model`, a `table` of scores, the `crop` itself, each `recognizer` itself "
        "(for its own errors), or a `bound` that no quality can pass."
    )
    sha256: str | None = Field(default=None, description="SHA-256 of the file; null if there is none.")
    milliseconds: Milliseconds | None = Field(
        default=None,
        description="Time per image; null if it was not measured, for tables, and for what a recognizer computes "
        "anyway.",
    )
    milliseconds_by_recognizer: dict[str, Milliseconds] = Field(
        default={}, description="The same for qualities of the kind `recognizer`."
    )


class FiqaArea(ResultPart):
    """Error versus reject of one quality on one recognizer, as one number for each range of rejection.

    Genuine pairs are rejected by the lower quality of their two images, at a threshold that stays.
    """

    quality: str = Field(description="Label of the quality.")
    recognizer: str | None = Field(description="Label of the recognizer; null for the mean over all.")
    fmr: float = Field(description="False match rate at which the threshold is chosen.")
    area: FiqaAreas = Field(
        description="Mean FNMR from nothing rejected to 20% and 30%, divided by FNMR without rejection: 1 for "
        "a random order, lower is better."
    )
    ci95: FiqaIntervals | None = Field(default=None, description="95% intervals of `area`.")
    difference: FiqaAreas | None = Field(
        default=None, description="`area` minus that of the quality `against`, on the same pairs."
    )
    difference_ci95: FiqaIntervals | None = Field(
        default=None, description="95% intervals of `difference`, paired."
    )


class FiqaConsistency(ResultPart):
    """Whether recognizers agree on the order of the qualities."""

    mean: float = Field(description="Mean of `pairs`.")
    ci95: Interval | None = Field(default=None, description="95% interval of `mean`.")
    pairs: dict[str, float] = Field(
        description="Kendall's τ-b between the areas to 30% of two recognizers, by their labels: 1 for one order, "
        "-1 for opposite orders."
    )


class FiqaNonFaces(ResultPart):
    """How well the qualities separate the faces of this set from non-faces."""

    others: dict[str, Count] = Field(description="Number of images by source of non-faces.")
    excluded: str | None = Field(default=None, description="Pattern of file names that were left out.")
    data_sha256: dict[str, str] = Field(default={}, description="As under `verification`, by source.")
    interval: str = Field(description="Unit that the intervals resample, as text.")
    by: ByScore[OodNumbers] = Field(description="Numbers by quality.")
    by_recognizer: dict[str, ByScore[OodNumbers]] = Field(
        default={}, description="The same for qualities of the kind `recognizer`."
    )


class FiqaSection(ResultPart):
    """Qualities on one set of faces."""

    images: Count = Field(description="Number of images.")
    people: Count | None = Field(default=None, description="Number of people; null if they are unknown.")
    pairs: PairSet | None = Field(
        default=None, description="Pairs that the benchmark lists, or all pairs of its images; null for none."
    )
    genuine: Count = Field(default=0, description="Pairs of one person.")
    impostors: Count = Field(default=0, description="Pairs of two people.")
    interval: str = Field(description="Unit that the intervals resample, as text.")
    thresholds_on: str | None = Field(
        default=None, description="Set whose impostor pairs determine the thresholds; null for this one."
    )
    against: str = Field(description="Label of the quality that the others are compared with.")
    recognizers: dict[str, FiqaRecognizer] = Field(description="Recognizers by label.")
    qualities: ByScore[FiqaQuality] = Field(description="Qualities by label.")
    areas: list[FiqaArea] = Field(
        default=[],
        description="Areas; those on a recognizer have curves in `arrays.npz`, in the same order.",
    )
    consistency: ByRate[FiqaConsistency] = Field(
        default={}, description="Agreement of the recognizers by false match rate; empty for one recognizer."
    )
    non_faces: FiqaNonFaces | None = Field(
        default=None, description="Separation from non-faces; null if none were given."
    )
    groups: GroupsResult | None = Field(
        default=None,
        description="How one threshold of each quality and recognizer treats groups; null if none were given.",
    )
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    data_sha256: str | None = Field(default=None, description="As under `verification`.")

    @property
    def headline_fmr(self) -> float | None:
        """The rate that people look at first: 0.001, or the nearest that was measured; None without pairs."""
        return min({one.fmr for one in self.areas}, key=lambda fmr: abs(math.log10(fmr) + 3), default=None)

    def areas_of(self, fmr: float) -> dict[str | None, dict[str, FiqaArea]]:
        """Areas by recognizer and quality; under None their means, or those of the only recognizer."""
        areas: dict[str | None, dict[str, FiqaArea]] = {}
        for entry in self.areas:
            if entry.fmr == fmr:
                areas.setdefault(entry.recognizer, {})[entry.quality] = entry
        if len(self.recognizers) == 1 and areas:
            areas[None] = next(iter(areas.values()))
        return areas
