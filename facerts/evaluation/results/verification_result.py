"""Verification (1:1): the section ``verification[SET]`` of a result."""

from __future__ import annotations

from pydantic import Field

from facerts.evaluation.results.result_part import ByRate, Count, Interval, ResultPart


class AccuracyResult(ResultPart):
    """Accuracy by folds: each fold uses the threshold that is best on the others."""

    value: float = Field(description="Mean share of pairs that are decided correctly.")
    fold_std: float = Field(description="Standard deviation of the folds' accuracies.")
    ci95: Interval = Field(description="95% interval of `value`.")


class TarAtFar(ResultPart):
    """An operating point: the lowest threshold at which the false accept rate is not above the target."""

    value: float = Field(description="True accept rate: the share of genuine pairs that are accepted.")
    achieved_far: float = Field(description="False accept rate at the threshold.")
    threshold: float | None = Field(
        description="Minimum similarity of accepted pairs; null if no genuine pair scores above the best impostor pair."
    )
    impostors_accepted: Count = Field(description="Impostor pairs that are accepted.")
    ci95: Interval | None = Field(
        description="95% interval of `value`; null if the threshold is below the stored tail of all pairs."
    )


class VerificationIntervals(ResultPart):
    """95% intervals of the numbers that do not depend on a threshold."""

    auroc: Interval = Field(description="Interval of `auroc`.")
    eer: Interval = Field(description="Interval of `eer`.")


class PairNumbers(ResultPart):
    """Numbers for the listed pairs of a benchmark, and for all pairs of its images."""

    images: Count = Field(description="Images in the pairs.")
    subjects: Count | None = Field(description="People; null if identities are not known.")
    genuine: Count = Field(description="Pairs of one person.")
    impostors: Count = Field(description="Pairs of two people.")
    auroc: float = Field(description="Area under the ROC curve.")
    eer: float = Field(description="Equal error rate.")
    ci95: VerificationIntervals | None = Field(
        default=None, description="Intervals; absent for all pairs and for templates."
    )
    tar_at_far: ByRate[TarAtFar] = Field(description="Operating points by the target FAR: `0.1` … `1e-06`.")
    interval: str = Field(description="Unit that the intervals resample, as text.")


class AllPairsResult(PairNumbers):
    """Every pair of a benchmark's images (`--all-pairs`), compared by the cosine."""

    auroc_error: float = Field(
        description="Bound on the error of `auroc`, which is computed from binned similarities."
    )


class VerificationResult(PairNumbers):
    """The pairs of a benchmark; for templates, one section per pooling, as `SET (POOLING)`."""

    pairs: Count = Field(description="Pairs: `genuine` and `impostors`.")
    templates: Count | None = Field(default=None, description="Templates, for a benchmark of templates.")
    flip: bool | None = Field(
        description="Whether the embeddings of a crop and its mirror image are added; null if a table of "
        "embeddings was evaluated."
    )
    similarity: str = Field(description="How pairs are compared: `cosine` or `mls`.")
    accuracy: AccuracyResult | None = Field(
        default=None, description="Accuracy by folds; null for templates, which have no folds."
    )
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
    data_sha256: str | None = Field(
        default=None,
        description="SHA-256 of the names and bytes of all images, in order.",
    )
    all_pairs: AllPairsResult | None = Field(
        default=None, description="All pairs of the images, if measured."
    )
