"""Does quality predict error? The sections ``reject[SET]`` and ``calibration[SET]`` of a result."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from typing_extensions import TypedDict

from facerts.evaluation.results.result_part import (
    ByScore,
    Count,
    Interval,
    Numbers,
    ResultPart,
    check_lengths,
)

AreaEnd = Literal["0.2", "0.95"]
PairSet = Literal["benchmark", "all"]
Areas = TypedDict("Areas", {"0.2": float, "0.95": float})
AreaIntervals = TypedDict("AreaIntervals", {"0.2": Interval, "0.95": Interval})


class RejectResult(ResultPart):
    """A curve of error versus reject: one for each score and set of pairs."""

    by: str = Field(
        description="Score that rejects: `quality`, `norm`, a baseline, or a score of a run's classifier."
    )
    similarity: str = Field(description="How pairs are compared: `cosine` or `mls`.")
    pairs: PairSet = Field(description="Pairs that the benchmark lists, or all pairs of its images.")
    fmr: float = Field(description="False match rate at which the threshold is chosen.")
    genuine: Count = Field(description="Pairs of one person.")
    impostors: Count = Field(description="Pairs of two people.")
    impostors_accepted: Count = Field(
        description="Impostor pairs at or above the threshold, before anything is rejected."
    )
    threshold: float = Field(description="Minimum similarity of a match, before anything is rejected.")
    rejected: Numbers = Field(
        description="Shares of the genuine pairs that are rejected, those of lowest quality first."
    )
    fnmr: Numbers = Field(
        description="False non-match rate of the pairs that remain, for each of `rejected`."
    )
    oracle_fnmr: Numbers = Field(
        description="The lowest possible `fnmr`, if pairs were rejected by their similarity."
    )
    area: Areas = Field(description="pAUC: the mean of `fnmr` from nothing rejected to 20% and to 95%.")
    random_area: float = Field(description="The same for an uninformative score: `fnmr` without rejection.")
    oracle_area: Areas = Field(description="The same for `oracle_fnmr`.")
    ci95: AreaIntervals | None = Field(default=None, description="95% intervals of `area`.")
    fnmr_ci95: Annotated[tuple[Numbers, Numbers], Field(strict=False)] | None = Field(
        default=None,
        description="Lower and upper ends of the 95% interval of each `fnmr`.",
    )
    interval: str | None = Field(default=None, description="Unit that the intervals resample, as text.")

    @model_validator(mode="after")
    def is_one_curve(self) -> RejectResult:
        low, high = self.fnmr_ci95 or (self.fnmr, self.fnmr)
        check_lengths(
            rejected=self.rejected, fnmr=self.fnmr, oracle_fnmr=self.oracle_fnmr, fnmr_ci95=low, high=high
        )
        if not self.rejected:
            raise ValueError("rejected is empty")
        return self

    def index_at(self, share: float) -> int:
        """Where the curve has a share rejected, or the nearest to it."""
        return min(range(len(self.rejected)), key=lambda place: abs(self.rejected[place] - share))


class ReliabilityResult(ResultPart):
    """FNMR by quality: lists over bins of equal numbers of genuine pairs, from the worst quality to the best."""

    spearman: float = Field(
        description="Spearman's correlation of quality with similarity over the genuine pairs."
    )
    quality: Numbers = Field(description="Mean quality.")
    fnmr: Numbers = Field(description="False non-match rate.")
    low: Numbers = Field(description="Lower end of the 95% interval of `fnmr`.")
    high: Numbers = Field(description="Upper end of the 95% interval of `fnmr`.")
    pairs: list[Count] = Field(description="Genuine pairs.")

    @model_validator(mode="after")
    def has_the_same_bins(self) -> ReliabilityResult:
        check_lengths(quality=self.quality, fnmr=self.fnmr, low=self.low, high=self.high, pairs=self.pairs)
        return self


class ReliabilitySection(ResultPart):
    """FNMR by quality at one threshold."""

    similarity: str = Field(description="How pairs are compared: `cosine` or `mls`.")
    fmr: float = Field(description="False match rate at which the threshold is chosen.")
    threshold: float = Field(description="Minimum similarity of a match.")
    genuine: Count = Field(description="Genuine pairs in all bins.")
    by: ByScore[ReliabilityResult] = Field(description="Bins by score.")
    data_sha256: str | None = Field(default=None, description="As under `verification`.")
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
