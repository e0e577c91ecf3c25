"""How thresholds treat groups of people or images, by attribute such as age or camera."""

from __future__ import annotations

from pydantic import Field

from facerts.evaluation.results.result_part import ByScore, Count, Interval, ResultPart


class GroupContrast(ResultPart):
    """The worst and the best of the groups that are large enough, chosen by their rates."""

    worst: str = Field(description="Group with the worst rate.")
    best: str = Field(description="Group with the best rate.")
    difference: float = Field(description="Rate of the worst group minus that of the best.")
    difference_ci95: Interval = Field(
        description="95% bootstrap interval of `difference`, which holds for all pairs of groups at the same time and "
        "so covers their choice."
    )
    ratio: float | None = Field(
        description="Rate of the worst group over that of the best; null if that is 0."
    )
    ratio_ci95: Interval | None = Field(
        description="95% bootstrap interval of `ratio`, likewise; null if a rate is often 0 when resampled."
    )
    over_mean: float | None = Field(
        description="Rate of the worst group over the geometric mean of the groups' rates (NIST IR 8429); null if one "
        "of them is 0."
    )


class GroupShare(ResultPart):
    """Images of one group at a quality threshold."""

    images: Count = Field(description="Images that have the quality.")
    people: Count | None = Field(description="People in these images; null if identities are not known.")
    accepted: float = Field(description="Share of the images at or above the threshold.")
    ci95: Interval = Field(description="95% interval of `accepted`.")
    median: float = Field(description="Median quality.")


class AcceptedByGroup(ResultPart):
    """What one quality threshold accepts of each group."""

    threshold: float = Field(description="Minimum quality of accepted images, the same for all groups.")
    keep: float | None = Field(
        description="Share of all images that the threshold was chosen to keep; null if it was given."
    )
    images: Count = Field(description="Images that have the quality, in any group or none.")
    accepted: float = Field(description="Share of these at or above the threshold.")
    groups: dict[str, GroupShare] = Field(description="Groups in order.")
    contrast: GroupContrast | None = Field(
        description="Worst and best group, the worst accepted least; null with fewer than two large enough."
    )


class PairRate(ResultPart):
    """An error rate of pairs."""

    pairs: Count = Field(description="Genuine pairs for FNMR, impostor pairs for FMR.")
    errors: Count = Field(description="Pairs that are decided wrongly.")
    rate: float | None = Field(description="Share of the pairs decided wrongly; null without pairs.")
    ci95: Interval | None = Field(description="95% interval of `rate`; null without pairs.")


class GroupErrors(ResultPart):
    """Errors among the pairs inside one group."""

    images: Count = Field(description="Images in the group.")
    people: Count = Field(description="People in these images.")
    fnmr: PairRate = Field(description="False non-match rate.")
    fmr: PairRate = Field(description="False match rate.")


class ErrorsByGroup(ResultPart):
    """Errors of each group at one match threshold."""

    everybody: GroupErrors = Field(description="Errors among all pairs, inside a group or not.")
    groups: dict[str, GroupErrors] = Field(description="Groups in order.")
    fnmr_contrast: GroupContrast | None = Field(
        description="Worst and best group by FNMR; null with fewer than two large enough."
    )
    fmr_contrast: GroupContrast | None = Field(
        description="Worst and best group by FMR, of those with enough impostor pairs for ten matches at the FMR of "
        "everybody; null with fewer than two."
    )


class MatchingByGroup(ResultPart):
    """Errors of each group at one match threshold, with and without rejected images."""

    threshold: float = Field(description="Minimum similarity of a match, the same for all groups.")
    fmr: float | None = Field(
        description="False match rate that the threshold was chosen for; null if it was given."
    )
    every_pair: ErrorsByGroup = Field(description="Errors among the pairs of all images.")
    accepted: ByScore[ErrorsByGroup] = Field(
        description="Errors among the pairs of images that are accepted by each quality of `accepted`."
    )


class AttributeGroups(ResultPart):
    """The groups of one attribute."""

    images: Count = Field(description="All images.")
    unknown: Count = Field(description="Images in no group.")
    accepted: ByScore[AcceptedByGroup] = Field(description="Accepted shares, by quality.")
    matching: dict[str, MatchingByGroup] = Field(description="Matching errors, by recognizer.")


class GroupsResult(ResultPart):
    """How quality thresholds and match thresholds treat groups."""

    by: dict[str, AttributeGroups] = Field(description="Groups by attribute.")
    min_images: Count = Field(description="Images that a group needs to be called the worst or the best.")
    interval: str = Field(description="How the intervals of accepted shares were computed, as text.")
    notes: list[str] = Field(default=[], description="Notes on problems with the data.")
