"""Verification (1:1): the section ``verification[SET]`` of a result."""

from __future__ import annotations

from pydantic import Field

from facerts.evaluation.results.base import ByRate, Count, Interval, ResultPart


class AccuracyResult(ResultPart):
    """Accuracy by folds: each fold is decided at the threshold that is best on the others."""

    value: float = Field(description="Mean share of pairs that are decided rightly.")
    fold_std: float = Field(description="Standard deviation of the folds' accuracies.")
    ci95: Interval = Field(description="95 % interval of `value`.")


class TarAtFar(ResultPart):
    """An operating point: the laxest threshold whose false accept rate is not above the target."""

    value: float = Field(description="True accept rate: the share of genuine pairs that are accepted.")
    achieved_far: float = Field(description="False accept rate at the threshold.")
    threshold: float | None = Field(
        description="Similarity from which pairs are accepted; null where no genuine pair beats the best impostor pair."
    )
    impostors_accepted: Count = Field(description="Impostor pairs that are accepted.")
    ci95: Interval | None = Field(
        description="95 % interval of `value`; null where the kept tail of all pairs does not reach."
    )


class VerificationIntervals(ResultPart):
    """95 % intervals of the numbers that belong to no threshold."""

    auroc: Interval = Field(description="Of `auroc`.")
    eer: Interval = Field(description="Of `eer`.")


class PairNumbers(ResultPart):
    """What is measured on the pairs that a benchmark lists as well as on all pairs of its images."""

    images: Count = Field(description="Images that the pairs are of.")
    subjects: Count | None = Field(description="People; null where they are not known.")
    genuine: Count = Field(description="Pairs of one person.")
    impostors: Count = Field(description="Pairs of two people.")
    auroc: float = Field(description="Area under the ROC curve.")
    eer: float = Field(description="Equal error rate.")
    ci95: VerificationIntervals | None = Field(
        default=None, description="Intervals; absent for all pairs and for templates."
    )
    tar_at_far: ByRate[TarAtFar] = Field(description="Operating points by the target FAR: `0.1` … `1e-06`.")
    interval: str = Field(description="What the intervals resample, in words.")


class AllPairsResult(PairNumbers):
    """Every pair of a benchmark's images (`--all-pairs`), compared by the cosine."""

    auroc_error: float = Field(
        description="By how much `auroc` may be off, as similarities are counted in bins."
    )


class VerificationResult(PairNumbers):
    """The pairs of a benchmark; of templates, one section for each pooling, as `SET (POOLING)`."""

    pairs: Count = Field(description="Pairs: `genuine` and `impostors`.")
    templates: Count | None = Field(default=None, description="Templates, for a benchmark of templates.")
    flip: bool | None = Field(
        description="Whether the embeddings of crop and mirror are added; null where embeddings were given."
    )
    similarity: str = Field(
        default="cosine",
        description="How pairs are compared: `cosine` or `mls`; earlier versions, with the cosine alone, lack it.",
    )
    accuracy: AccuracyResult | None = Field(
        default=None, description="Accuracy by folds; null for templates, which have no folds."
    )
    notes: list[str] = Field(default=[], description="What is odd about the data, in sentences.")
    data_sha256: str | None = Field(
        default=None,
        description="SHA-256 over the images' names and bytes, in order; the same data, the same hash.",
    )
    all_pairs: AllPairsResult | None = Field(
        default=None, description="All pairs of the images, if measured."
    )
