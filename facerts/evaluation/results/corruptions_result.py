"""The corruption benchmark: the section ``corruptions[SOURCE]`` of a result."""

from __future__ import annotations

from pydantic import Field, model_validator

from facerts.evaluation.results.result_part import ByScore, Count, Numbers, ResultPart, check_lengths


class Percentiles(ResultPart):
    """Percentiles over the images, one number per severity, beginning with the clean images."""

    p5: Numbers = Field(description="5th percentile.")
    p50: Numbers = Field(description="Median.")
    p95: Numbers = Field(description="95th percentile.")


class CorruptedScore(Percentiles):
    """A score by severity of a corruption."""

    auroc: Numbers = Field(
        description="How well the score separates the clean images from those of each severity above 0.",
        min_length=1,
    )
    monotone: bool = Field(description="Whether the median falls from each severity to the next.")


class CorruptionKind(ResultPart):
    """One kind of corruption."""

    cosine: Percentiles = Field(description="Cosine similarity of each corrupted image to the clean one.")
    by: ByScore[CorruptedScore] = Field(description="Scores by name.")


class CorruptionResult(ResultPart):
    """The corruption benchmark on one source: the same faces with each kind of corruption at rising severity."""

    images: Count = Field(description="Images that were corrupted.")
    severity: Numbers = Field(
        description="Severities from 0, the clean image, to 1, barely recognizable as a face."
    )
    seed: int = Field(description="Seed of the random corruptions.")
    kinds: dict[str, CorruptionKind] = Field(
        description="Results by kind of corruption: `blur`, `noise` and so on.", min_length=1
    )
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    data_sha256: str | None = Field(default=None, description="As under `verification`.")

    @model_validator(mode="after")
    def has_a_number_for_each_severity(self) -> CorruptionResult:
        for kind in self.kinds.values():
            for steps in (kind.cosine, *kind.by.values()):
                check_lengths(severity=self.severity, p5=steps.p5, p50=steps.p50, p95=steps.p95)
        return self
