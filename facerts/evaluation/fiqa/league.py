"""The league: qualities judged on recognizers, on sets of faces, written to a result folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding import EmbeddingTable
from facerts.embedding.aligned import alignment_notes
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error, ModelError, did_you_mean
from facerts.evaluation.evaluation_options import DEFAULT_OPTIONS, EvaluationOptions
from facerts.evaluation.fiqa.face_sets import FaceSet
from facerts.evaluation.fiqa.lineup import NORM, ORACLE, Lineup
from facerts.evaluation.fiqa.quality_areas import measure_areas
from facerts.evaluation.fiqa.quality_costs import Costs, measure_costs
from facerts.evaluation.fiqa.scored import ScoredImages, ScoredNonFaces, score_images
from facerts.evaluation.group_differences import MatchedPairs, groups_of
from facerts.evaluation.image_groups import Groups
from facerts.evaluation.rejection import check_fmr
from facerts.evaluation.result_folder import Arrays, ResultFolder
from facerts.evaluation.results import Result, Sections
from facerts.evaluation.results.fiqa_result import FiqaQuality, FiqaRecognizer, FiqaSection
from facerts.evaluation.results.groups_result import GroupsResult
from facerts.evaluation.similarity import compare_images
from facerts.metrics.all_pairs import AllPairs, compare_all
from facerts.metrics.compared_pairs import ComparedPairs, compare_listed
from facerts.metrics.error_versus_reject import RATES
from facerts.metrics.separation import keep_threshold
from facerts.metrics.verification import pair_cosine, reachable

FMRS = (1e-2, 1e-3, 1e-4)


@dataclass(frozen=True)
class FiqaOptions:
    """How qualities are judged, as the command's options say.

    Attributes:
        fmrs: false match rates of the thresholds; None for those of ``FMRS`` that there are enough pairs for.
        against: label of the quality that the others are compared with; None for the first.
        groups: groups of images whose acceptance and errors are compared; None for no groups.
        keep: share of faces that each quality's threshold keeps, for groups.
        keep_on: faces that determine these thresholds; None for the images that are in the groups.
    """

    fmrs: tuple[float, ...] | None = None
    against: str | None = None
    degraded: bool = False
    replicates: int = 300
    seed: int = 0
    groups: Groups | None = None
    keep: float = 0.95
    keep_on: Source | None = None
    cost: bool = True


def run_fiqa(
    lineup: Lineup,
    data: Sequence[FaceSet],
    out: str | Path,
    fiqa: FiqaOptions,
    options: EvaluationOptions = DEFAULT_OPTIONS,
    *,
    others: Mapping[str, Source] | None = None,
    excluded: str | None = None,
) -> Result:
    """Judge every quality on every recognizer and every set of faces, and return the folder's result.

    Sets without pairs are only separated from non-faces, without the recognizers.
    """
    against = _check(lineup, data, fiqa, others or {})
    rates = {
        one.name: _fmrs(one, fiqa.fmrs)
        for faces in data
        for one in (faces, faces.original)
        if one is not None and one.has_pairs
    }
    folder = ResultFolder(out, lineup)
    costs = measure_costs(lineup, data[0].images, options.batch_size) if fiqa.cost else {}
    any_pairs = any(faces.has_pairs for faces in data)
    non_faces = ScoredNonFaces.read(lineup, others or {}, options, excluded, embed=any_pairs)
    thresholds = keep_thresholds(lineup, fiqa, options)
    sets = [faces for one in data for faces in _with_degraded(one, fiqa)]
    pairs: dict[str, dict[str, ComparedPairs]] = {}
    for faces in sets:
        scored = _score(lineup, faces, options)
        section, arrays = _section(lineup, faces, scored, costs, against), {}
        if faces.has_pairs and lineup.recognizers:
            original = faces.original
            if original is not None and original.name not in pairs:
                pairs[original.name] = _compare(original, _score(lineup, original, options))
            pairs[faces.name] = _compare(faces, scored)
            arrays = _add_areas(
                section,
                pairs[faces.name],
                scored,
                rates[original.name if original is not None else faces.name],
                fiqa,
                None if original is None else pairs[original.name],
            )
        if faces.original is None:
            if others:
                section.non_faces = non_faces.against(scored)
            if fiqa.groups is not None:
                section.groups = measure_groups(
                    section, faces, scored, pairs.get(faces.name, {}), fiqa.groups, thresholds, fiqa
                )
        folder.add(Sections(fiqa={faces.name: section}), arrays)
        folder.write()
    return folder.content


def _with_degraded(faces: FaceSet, fiqa: FiqaOptions) -> list[FaceSet]:
    """A set, and the same with half of its images degraded if that is asked for and can be measured."""
    degraded = fiqa.degraded and faces.has_pairs and faces.original is None
    return [faces, faces.degraded(fiqa.seed)] if degraded else [faces]


def _score(lineup: Lineup, faces: FaceSet, options: EvaluationOptions) -> ScoredImages:
    return score_images(
        lineup,
        faces.images,
        options,
        sha256=faces.hashes.sha256,
        first=faces.first,
        rows=faces.rows,
        embed=faces.has_pairs,
    )


def _section(lineup: Lineup, faces: FaceSet, scored: ScoredImages, costs: Costs, against: str) -> FiqaSection:
    """A section without pairs."""
    own = list(dict.fromkeys(name for qualities in scored.own.values() for name in qualities))
    qualities = {
        **{
            label: FiqaQuality(kind=one.kind, sha256=one.sha256, milliseconds=costs.get(("quality", label)))
            for label, one in lineup.qualities.items()
            if label in scored.shared
        },
        **{
            name: FiqaQuality(
                kind="recognizer",
                milliseconds_by_recognizer={
                    label: costs[key]
                    for label in lineup.recognizers
                    if (key := ("own", label, name)) in costs
                },
            )
            for name in own
        },
    }
    recognizers = {
        label: FiqaRecognizer(sha256=one.embedder.sha256, milliseconds=costs.get(("recognizer", label)))
        for label, one in lineup.recognizers.items()
    }
    computed_here = any(not isinstance(one.embedder, EmbeddingTable) for one in lineup.recognizers.values())
    return FiqaSection(
        images=len(faces.rows),
        people=None if faces.people is None else len(np.unique(faces.people[faces.rows])),
        interval="bootstrap over images",
        thresholds_on=None if faces.original is None else faces.original.name,
        against=against,
        recognizers=recognizers,
        qualities=qualities,
        notes=[*faces.notes, *(alignment_notes(faces.images) if computed_here else [])],
        data_sha256=faces.hashes.sha256,
    )


def _add_areas(
    section: FiqaSection,
    pairs: Mapping[str, ComparedPairs],
    scored: ScoredImages,
    fmrs: Sequence[float],
    fiqa: FiqaOptions,
    originals: Mapping[str, ComparedPairs] | None,
) -> Arrays:
    """Add what pairs tell to a section; returns the curves."""
    measured = measure_areas(
        pairs,
        {label: scored.qualities(label) for label in pairs},
        fmrs,
        section.against,
        replicates=fiqa.replicates,
        seed=fiqa.seed,
        thresholds_on=originals,
    )
    first = next(iter(pairs.values()))
    section.pairs = "all" if isinstance(first, AllPairs) else "benchmark"
    section.genuine, section.impostors = len(first.genuine), first.impostors
    section.interval = f"bootstrap over {'people' if first.unit == 'subjects' else 'pairs'}"
    section.areas, section.consistency = measured.entries, measured.consistency
    section.qualities[ORACLE] = FiqaQuality(kind="bound")
    for label, points in measured.points.items():
        section.recognizers[label].at_fmr = points
    return {"rejected": np.array(RATES), "fnmr": measured.curves}


def _compare(faces: FaceSet, scored: ScoredImages) -> dict[str, ComparedPairs]:
    """The pairs of a set, compared by each recognizer."""
    return {label: _compared(faces, outputs) for label, outputs in scored.outputs.items()}


def _compared(faces: FaceSet, outputs: FaceOutputs) -> ComparedPairs:
    """The pairs of a set, compared by a recognizer."""
    if faces.listed is not None:
        # Rows of the images that are kept; a repeated image is the first one of its kind.
        place = np.empty(len(faces.images), dtype=np.int64)
        place[faces.rows] = np.arange(len(faces.rows))
        pairs = place[faces.hashes.first[faces.listed.pairs]]
        people = None if faces.listed_people is None or faces.people is None else faces.people[faces.rows]
        scores = pair_cosine(outputs.embedding, pairs)
        return compare_listed(scores, faces.listed.same, pairs, people)
    assert faces.people is not None
    return compare_images(faces.name, outputs.embedding, faces.people[faces.rows], compare_all)


def _fmrs(faces: FaceSet, wanted: Sequence[float] | None) -> list[float]:
    """The false match rates to measure at."""
    impostors = faces.impostors
    rates = reachable(FMRS if wanted is None else wanted, impostors)
    for fmr in wanted or ():
        check_fmr(fmr, impostors, faces.name)
    if not rates:
        raise Error(f"{faces.name}: {impostors:,} impostor pairs are too few for any of {FMRS}; give --fmr")
    return list(dict.fromkeys(rates))


def _check(lineup: Lineup, data: Sequence[FaceSet], fiqa: FiqaOptions, others: Mapping[str, Source]) -> str:
    """Refuse what could not be measured, before anything is embedded."""
    for faces in data:
        if not others and fiqa.groups is None and not (faces.has_pairs and lineup.recognizers):
            missing = "its people are unknown" if lineup.recognizers else "there is no recognizer"
            raise Error(
                f"{faces.name}: nothing can be measured, since {missing}; give images with identities or a benchmark "
                "and recognizers (--model), non-faces (--out-of), or groups (--groups)"
            )
    if fiqa.degraded and not any(faces.has_pairs for faces in data):
        raise Error("--degraded needs a set with pairs")
    own = [name for one in lineup.recognizers.values() for name in one.own]
    known = [*lineup.qualities, *own, *([NORM] if lineup.recognizers else [])]
    if not known:
        raise ModelError("there is no quality to judge; give one with --quality")
    against = fiqa.against or known[0]
    if against not in known:
        raise Error(f"--against {against}: no such quality{did_you_mean(against, known)}")
    return against


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
