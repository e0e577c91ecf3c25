"""The corruption benchmark: the section ``corruptions[SOURCE]`` of a result."""

from __future__ import annotations

from pydantic import Field, model_validator

from facerts.evaluation.results.result_part import (
    ByScore,
    Count,
    Interval,
    Numbers,
    ResultPart,
    check_lengths,
)


class Percentiles(ResultPart):
    """Percentiles over the images, one number per severity, beginning with the unchanged images."""

    p5: Numbers = Field(description="5th percentile.")
    p50: Numbers = Field(description="Median.")
    p95: Numbers = Field(description="95th percentile.")


class CorruptedScore(Percentiles):
    """A score by severity of a change."""

    auroc: Numbers = Field(
        description="How well the score separates the unchanged images from those of each severity above 0.",
        min_length=1,
    )
    kept: Numbers = Field(description="Share of the images at or above the score's threshold.")
    percentile: Numbers = Field(
        description="Percentile, 0 to 100, of the median: among the faces that the model was calibrated on, or else "
        "among the unchanged images."
    )


class CorruptionKind(ResultPart):
    """One kind of change."""

    family: str = Field(description="Family of the change: `photometric`, `geometric` and so on.")
    held_out: bool = Field(description="Whether models that ship are not trained on it.")
    cosine: Numbers | None = Field(
        description="Mean over the recognizers of the median cosine, to the other image of the person where there is "
        "one, else to the unchanged image; null without recognizers."
    )
    to_unchanged: dict[str, Percentiles] = Field(
        description="Cosine of each changed image to the unchanged one, by recognizer."
    )
    to_other: dict[str, Percentiles] = Field(
        description="Cosine of each changed image to another image of the person, unchanged, by recognizer; empty if "
        "people are unknown."
    )
    not_a_face: Numbers | None = Field(
        description="Share of the images that the model takes for non-faces; null for models that do not say."
    )
    by: ByScore[CorruptedScore] = Field(description="Scores by name.")


class KeptThreshold(ResultPart):
    """The threshold of a score that keeps 95% of the faces."""

    value: float = Field(description="Images at or above it are kept.")
    calibrated: bool = Field(
        description="Whether the model's calibration chose it, and not the unchanged images here."
    )


class RankCorrelation(ResultPart):
    """Spearman's rank correlation over kinds and severities."""

    value: float = Field(description="From -1 to 1.")
    ci95: Interval = Field(description="95% interval of `value`, over images (one of each person).")


class RankCorrelations(ResultPart):
    """Rank correlations over all kinds of change, and over those that models that ship were and were not trained on."""

    all: RankCorrelation = Field(description="Over all kinds.")
    trained: RankCorrelation | None = Field(default=None, description="Over kinds that are not held out.")
    held_out: RankCorrelation | None = Field(default=None, description="Over kinds that are held out.")


class CorruptionResult(ResultPart):
    """The corruption benchmark on one source: the same faces with each kind of change at rising severity."""

    images: Count = Field(description="Images that were changed.")
    people: bool = Field(
        description="Whether they are of different people, each with another image to compare with."
    )
    severity: Numbers = Field(description="Severities from 0, the unchanged image, to 1.")
    seed: int = Field(description="Seed of the random changes and of the intervals.")
    recognizers: dict[str, str] = Field(description="SHA-256 of each recognizer's file.")
    thresholds: ByScore[KeptThreshold] = Field(description="Thresholds of `kept`.", min_length=1)
    kinds: dict[str, CorruptionKind] = Field(
        description="Results by kind of change: `blur`, `noise` and so on.", min_length=1
    )
    rank_correlation: ByScore[RankCorrelations] = Field(
        description="Of the score's median with `cosine`; empty without recognizers."
    )
    agreement: dict[str, RankCorrelations] = Field(
        description="Of a recognizer's median cosine with the mean of the others': how well it can be predicted; empty "
        "for fewer than two."
    )
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    data_sha256: str | None = Field(default=None, description="As under `verification`.")

    @property
    def first(self) -> str:
        """The score that tables and figures show: the quality if there is one."""
        return next(iter(self.thresholds))

    @model_validator(mode="after")
    def has_a_number_for_each_severity(self) -> CorruptionResult:
        if self.rank_correlation and self.rank_correlation.keys() != self.thresholds.keys():
            raise ValueError("there are other rank correlations than thresholds")
        for kind in self.kinds.values():
            for steps in (*kind.to_unchanged.values(), *kind.to_other.values(), *kind.by.values()):
                check_lengths(severity=self.severity, p5=steps.p5, p50=steps.p50, p95=steps.p95)
            if kind.by.keys() != self.thresholds.keys():
                raise ValueError("a kind has other scores than thresholds")
            for score in kind.by.values():
                check_lengths(severity=self.severity, kept=score.kept, percentile=score.percentile)
            for numbers in (kind.cosine, kind.not_a_face):
                check_lengths(severity=self.severity, shares=numbers or self.severity)
        return self
