"""How one threshold of each quality and each recognizer treats groups."""

from __future__ import annotations

from collections.abc import Mapping

from facerts.datasets.fingerprint import hash_images
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.fiqa.face_sets import FaceSet
from facerts.evaluation.fiqa.fiqa_options import FiqaOptions
from facerts.evaluation.fiqa.lineup import Lineup
from facerts.evaluation.fiqa.scored import ScoredImages, score_images
from facerts.evaluation.group_differences import MatchedPairs, groups_of
from facerts.evaluation.image_groups import Groups
from facerts.evaluation.results.fiqa_result import FiqaSection
from facerts.evaluation.results.groups_result import GroupsResult
from facerts.metrics.all_pairs import AllPairs
from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.separation import keep_threshold


def measure_groups(
    section: FiqaSection,
    faces: FaceSet,
    scored: ScoredImages,
    pairs: Mapping[str, ComparedPairs],
    groups: Groups,
    thresholds: Mapping[str, float],
    fiqa: FiqaOptions,
) -> GroupsResult:
    """How one threshold of each quality and each recognizer treats the groups."""
    values, notes = groups.of([faces.images.key(int(row)) for row in faces.rows])
    fmr, compared = section.headline_fmr, {}
    for label, of_recognizer in pairs.items():
        if isinstance(of_recognizer, AllPairs) and fmr is not None:
            threshold = section.recognizers[label].at_fmr[f"{fmr:g}"].threshold
            compared[label] = MatchedPairs(of_recognizer, threshold, fmr)
    return groups_of(
        values,
        scored.by_name(),
        people=None if faces.people is None else faces.people[faces.rows],
        keep=fiqa.keep,
        thresholds=thresholds,
        compared=compared,
        notes=notes,
        seed=fiqa.seed,
    )


def keep_thresholds(lineup: Lineup, fiqa: FiqaOptions, options: EvaluationOptions) -> dict[str, float]:
    """Thresholds of the qualities that keep a share of the given faces; none if no faces are given."""
    if fiqa.keep_on is None or fiqa.groups is None:
        return {}
    hashed = hash_images(fiqa.keep_on)
    scored = score_images(lineup, fiqa.keep_on, options, sha256=hashed.sha256, first=hashed.first)
    return {label: keep_threshold(quality, fiqa.keep) for label, quality in scored.by_name().items()}
