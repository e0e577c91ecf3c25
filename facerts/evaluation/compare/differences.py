"""Paired differences between two results on the same pairs and images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from facerts.evaluation.baselines import BASELINES
from facerts.evaluation.labeled import SavedResult
from facerts.evaluation.pair_verification import FARS
from facerts.evaluation.results.comparison_result import (
    ComparedModel,
    OodDifference,
    PairedDifference,
    SeparationDifference,
    VerificationDifference,
)
from facerts.metrics.intervals import pair_subjects
from facerts.metrics.paired import Difference, compare_scores

# What is resampled where faces are held against non-faces.
IMAGES = "images"

PairStatistic = Literal["accuracy", "auroc", "tar_at_far"]


def same_pairs(one: SavedResult, other: SavedResult, name: str) -> bool:
    """Whether both were measured on the same pairs of the same images, and say so pair by pair."""
    prefix = f"verification/{name}/"
    both = (one, other)
    return (
        all(name in result.content.verification for result in both)
        and all(prefix + "folds" in result.arrays for result in both)
        and len({result.content.verification[name].data_sha256 for result in both}) == 1
        and np.array_equal(one.arrays[prefix + "pairs"], other.arrays[prefix + "pairs"])
    )


def same_sources(one: SavedResult, other: SavedResult) -> bool:
    """Whether both were measured on the same faces and the same non-faces."""
    first, second = one.content.ood, other.content.ood
    return (
        first is not None
        and second is not None
        and (first.data_sha256, first.faces, first.others)
        == (second.data_sha256, second.faces, second.others)
    )


def differences_of_pairs(
    one: SavedResult, other: SavedResult, name: str, far: float
) -> dict[str, Difference]:
    """One minus other on a benchmark that both were measured on: "accuracy", "auroc", "tar_at_far"."""
    prefix = f"verification/{name}/"
    ours, theirs = one.arrays, other.arrays
    return compare_scores(
        ours[prefix + "scores"],
        theirs[prefix + "scores"],
        theirs[prefix + "same"],
        folds=theirs[prefix + "folds"],
        far=far,
        subjects=pair_subjects(theirs.get(prefix + "subjects"), theirs[prefix + "pairs"]),
    )


def differences_of_separations(
    one: tuple[SavedResult, str],
    other: tuple[SavedResult, str],
    faces: Sequence[str],
    others: Sequence[str],
    *,
    tpr: float = 0.95,
) -> dict[str, Difference]:
    """One score of one result minus a score of another, over the same sources: "auroc", "tnr_at_tpr"."""
    first, second = (scores_of(*side, [*faces, *others]) for side in (one, other))
    is_face = np.arange(len(first)) < len(scores_of(*one, faces))
    return compare_scores(first, second, is_face, tpr=tpr)


def scores_of(result: SavedResult, score: str, sources: Sequence[str]) -> NDArray[np.float32]:
    """``(N,)`` a score of the images of several OOD sources, one after the other."""
    return np.concatenate([result.array(f"ood/{source}/{score}") for source in sources])


def verification_difference(
    name: str, first: SavedResult, other: SavedResult, model: ComparedModel, notes: list[str]
) -> VerificationDifference | None:
    """One benchmark's differences from the first, or None where the other has it not, or on other images."""
    if name not in other.content.verification:
        return None
    if not all(f"verification/{name}/folds" in result.arrays for result in (first, other)):
        notes.append(f"{name}: pairs of templates are not tested; their results stand side by side.")
        return None
    if not same_pairs(first, other, name):
        notes.append(
            f"{name}: {other.place} was measured on other images or pairs than {first.place}; no difference "
            "between them is tested, and their numbers may not compare."
        )
        return None
    # The lowest rate that both could show says most.
    far = min(map(float, first.content.verification[name].tar_at_far), default=max(FARS))
    differences = differences_of_pairs(other, first, name, far)
    return VerificationDifference(
        model=model,
        far=far,
        accuracy=_paired(differences["accuracy"]),
        auroc=_paired(differences["auroc"]),
        tar_at_far=_paired(differences["tar_at_far"]),
    )


def ood_difference(
    first: SavedResult, other: SavedResult, model: ComparedModel, notes: list[str]
) -> OodDifference | None:
    """Differences of every score from the first, or None where one has no such section, or of other images."""
    if first.content.ood is None or other.content.ood is None:
        return None
    if not same_sources(first, other):
        notes.append(
            f"ood: {other.place} was measured on other images than {first.place}; no difference between them is "
            "tested, and their numbers may not compare."
        )
        return None
    faces, others = list(first.content.ood.faces), list(first.content.ood.others)
    every = [*faces, *others]
    by = {}
    for score in first.content.ood.by:
        if score not in other.content.ood.by:
            continue
        if score in BASELINES and np.array_equal(
            scores_of(first, score, every), scores_of(other, score, every)
        ):
            continue  # a score of the images alone is the same for every model
        differences = differences_of_separations((other, score), (first, score), faces, others)
        by[score] = SeparationDifference(
            auroc=_paired(differences["auroc"], IMAGES), tnr_at_tpr=_paired(differences["tnr_at_tpr"], IMAGES)
        )
    return OodDifference(model=model, by=by) if by else None


def _paired(difference: Difference, unit: str | None = None) -> PairedDifference:
    return PairedDifference(
        value=difference.value,
        ci95=difference.ci95,
        p_value=difference.p_value,
        unit=unit or difference.unit,
    )
