"""Find enrollments that are poor, not a face, of somebody else, or there twice.

How alike different people are shows in the gallery itself: every image is compared with the templates of all other
people. An image that is less like its own person than most strangers are is taken for another person's. As some people
are more like everybody than others are, cosines are counted in standard deviations from those of strangers to the same
person (Z-norm; Auckenthaler et al., "Score normalization for text-independent speaker verification systems", DSP 2000).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from facerts.curation.pairwise import EmbeddingSubset, nearest_before
from facerts.errors import DataError
from facerts.galleries.enrollments import Enrollments, best_images, number_or_none
from facerts.io.csv_file import MAX_LIST_BYTES, csv_rows, text_lines
from facerts.io.json_file import parse_json
from facerts.scoring.reasons import NOT_A_FACE
from facerts.scoring.sinks import from_cell

# Images and people that stand for all when cosines of strangers are sampled: up to four million comparisons.
SAMPLE = 2000
# Weight of an image that looks like another person's when the other images of its person are checked once more.
SUSPECT_WEIGHT = 0.05
ROUNDS = 3
# As many strangers' cosines to all people count beside those to one person, of which small galleries have few.
POOLED = 10
# With fewer people, too little is known of how alike different people are to tell one person with two names.
MIN_PEOPLE = 20


class Reason(str, Enum):
    """What is wrong with an enrollment."""

    NOT_A_FACE = "no recognizable face"
    POOR = "poor image"
    ANOTHER_PERSON = "another person"
    SAME_PERSON = "same person under two names"
    SAME_IMAGE = "same image twice"


@dataclass(frozen=True)
class Finding:
    """A suspicious enrollment.

    Attributes:
        path: the image; empty if the finding is about all of the person's images.
        false_alarms: estimated share of correct enrollments (for two names: of people) that look at least this
            suspicious, 0 to 1.
        own_cosine: cosine similarity to the template of the person's other images; None for an only image.
        other_person: the most similar other person, or the other name; None if there is nobody else.
        other_cosine: cosine similarity to that person's template; for the same image, to that image.
        other_path: the other image, if the same image is enrolled twice.
    """

    person: str
    path: str
    reason: Reason
    false_alarms: float
    own_cosine: float | None = None
    other_person: str | None = None
    other_cosine: float | None = None
    other_path: str | None = None
    quality: float | None = None
    percentile: float | None = None
    reasons: tuple[str, ...] = ()


class Listed(NamedTuple):
    """What a row of a report is about; the reason is empty if people made the report."""

    person: str
    path: str
    reason: str


# What a person's last image may be: something is better than nothing, and where each image is unlike the others, the
# check cannot say which is wrong.
KEPT_IF_LAST = (Reason.POOR, Reason.ANOTHER_PERSON)
NORMAL = NormalDist()
# Of the clean faces of 150 held-out people (docs/results/galleries.md): the share with a reason, that of those below
# percentile 30, and the share taken for no face.
WITH_REASON, LOW_WITH_REASON, FALSE_NOT_A_FACE = 0.022, 0.037, 0.000


@dataclass(frozen=True)
class Limits:
    """When an enrollment is suspicious; chosen on 150 held-out people, see docs/results/galleries.md.

    Attributes:
        percentile: a poor image has a lower percentile of quality than this, 0 to 100.
        reason_percentile: an image with a reason is poor if its percentile is lower than this, or unknown.
        missed: the share of other people's images that may stay unnoticed, above 0 and below 1.
        people: the share of people who may be taken for a second name of another one, above 0 and below 1.
        same_image: minimum cosine similarity of the same image.
    """

    percentile: float = 0.5
    reason_percentile: float = 10.0
    missed: float = 0.08
    people: float = 0.02
    same_image: float = 0.95


def check_images(images: Enrollments, limits: Limits | None = None) -> list[Finding]:
    """Enrollments that are poor, not a face, of somebody else, or there twice; most suspicious first.

    People under two names are found among ``MIN_PEOPLE`` people or more, other people's images among two.
    """
    limits = limits or Limits()
    findings = []
    if len(images.people) >= MIN_PEOPLE:
        findings += _same_person(images, limits.people)
    findings += _same_image(images, limits.same_image)
    findings += _suspicious_images(images, limits)
    order = {reason: number for number, reason in enumerate(Reason)}
    return sorted(findings, key=lambda each: (order[each.reason], each.false_alarms, each.person, each.path))


def listed_rows(images: Enrollments, listed: Sequence[Listed]) -> NDArray[np.bool_]:
    """``(N,)`` which images a correction removes, of at least all images of the people that are listed.

    The best image of a person who would have none stays, unless it is not a face or is there twice.
    """
    people = {each.person for each in listed if not each.path}
    entries = {(each.person, each.path) for each in listed if each.path}
    missing = sorted(people - set(images.people.tolist()))
    missing += [path for _, path in sorted(entries - set(images.entries))]
    if missing:
        raise DataError(f"{missing[0]} is not in the gallery; nothing was removed")
    final = {(each.person, each.path) for each in listed if each.reason not in KEPT_IF_LAST}
    left = {person for person, path in images.entries if (person, path) not in entries} | people
    for image in best_images(images, len(images)):
        if image.person not in left and (image.person, image.path) not in final:
            left.add(image.person)
            entries.remove((image.person, image.path))
    return images.among(entries, people)


def _suspicious_images(images: Enrollments, limits: Limits) -> list[Finding]:
    poor, no_face, alarms = _poor_images(images, limits)
    several = len(images.people) > 1
    if several:
        mean, spread = stranger_spread(images)
        strangers = _strangers(images, mean, spread)
        limit = float(np.quantile(strangers, 1 - limits.missed))
    else:
        mean, spread, strangers, limit = np.zeros(1), np.ones(1), np.zeros(1), -np.inf
    weight = images.weight
    for _ in range(ROUNDS):
        own = images.own_cosines(weight)
        likeness = (own - mean[images.row]) / spread[images.row]
        unlike = likeness < limit
        weight = images.weight * np.where(poor | unlike, SUSPECT_WEIGHT, 1.0)
    alarms = np.where(unlike, np.fmin(alarms, _false_alarms(likeness, strangers)), alarms)
    no_face |= poor & unlike
    rows = np.flatnonzero(poor | unlike)
    person, cosine = images.nearest_others(rows) if several and len(rows) else (rows, np.zeros(len(rows)))
    return [
        _finding(
            images,
            row,
            Reason.NOT_A_FACE if no_face[row] else Reason.POOR if poor[row] else Reason.ANOTHER_PERSON,
            own[row],
            false_alarms=_four_digits(alarms[row]),
            other_person=str(images.people[other]) if several else None,
            other_cosine=number_or_none(other_cosine) if several else None,
        )
        for row, other, other_cosine in zip(rows.tolist(), person.tolist(), cosine.tolist(), strict=True)
    ]


def _finding(images: Enrollments, row: int, reason: Reason, own_cosine: float, **others: Any) -> Finding:
    return Finding(
        str(images.person[row]),
        str(images.path[row]),
        reason,
        own_cosine=number_or_none(own_cosine),
        quality=number_or_none(images.quality[row]),
        percentile=number_or_none(images.percentile[row]),
        reasons=images.reasons_of(row),
        **others,
    )


def _four_digits(share: float) -> float:
    """A share with four significant digits, however small it is."""
    return float(f"{share:.4g}")


def _poor_images(
    images: Enrollments, limits: Limits
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
    """Which images are poor, which of these are not a face, and the share of clean faces that look so; NaN if none."""
    has_reason = images.reasons != ""
    no_face = np.char.find(images.reasons, NOT_A_FACE) >= 0
    poor = no_face | (images.percentile < limits.percentile)
    poor |= has_reason & ~(images.percentile >= limits.reason_percentile)
    share = images.percentile.astype(np.float64) / 100
    with_reason = np.fmin(LOW_WITH_REASON * share, np.where(no_face, FALSE_NOT_A_FACE, WITH_REASON))
    return poor, no_face, np.where(poor, np.where(has_reason, with_reason, share), np.nan)


def stranger_spread(images: Enrollments) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation ``(P,)`` of the cosines of other people's images to each template."""
    embedding = images.embedding.astype(np.float64)
    templates = images.templates.astype(np.float64)
    own = np.sum(embedding * templates[images.row], axis=1)
    total = templates @ embedding.sum(axis=0) - np.bincount(images.row, own)
    squares = np.sum(templates @ (embedding.T @ embedding) * templates, axis=1)
    squares -= np.bincount(images.row, own**2)
    count = len(images) - np.bincount(images.row)
    mean = (total + POOLED * total.sum() / count.sum()) / (count + POOLED)
    square = (squares + POOLED * squares.sum() / count.sum()) / (count + POOLED)
    return mean, np.sqrt(np.maximum(square - mean**2, 1e-12))


def _strangers(images: Enrollments, mean: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosines of images to the templates of other people, in standard deviations, in ascending order."""
    random = np.random.default_rng(0)
    rows = random.permutation(len(images))[:SAMPLE]
    people = random.permutation(len(images.people))[:SAMPLE]
    cosines = images.embedding[rows] @ images.templates[people].T
    cosines = (cosines - mean[people]) / spread[people]
    return np.sort(cosines[images.row[rows][:, None] != people[None]])


def _false_alarms(own: NDArray[np.floating], strangers: NDArray[np.floating]) -> NDArray[np.float64]:
    """Share of correct enrollments that are no more like their person than each image is.

    Where half of the strangers lie there are hardly any correct images, so the images there tell how many strangers
    there are (Storey, "A direct approach to false discovery rates", JRSS B 2002); these are subtracted.
    """
    known = np.sort(own[~np.isnan(own)])
    if not len(known):
        return np.zeros(len(own))
    wrong = min(2 * float(np.mean(known < np.median(strangers))), 0.5)
    below = np.searchsorted(known, own, side="right") / len(known)
    stranger = np.searchsorted(strangers, own, side="right") / len(strangers)
    return np.clip((below - wrong * stranger) / (1 - wrong), 0, 1)


def _same_person(images: Enrollments, rate: float) -> list[Finding]:
    """People whose templates are more alike than those of different people, the smaller one of each pair.

    Cosines of different people are close to a normal distribution. Its median and its 99% quantile hardly move where
    a few people have two names, as those are few among all pairs.
    """
    people = len(images.people)
    some = np.random.default_rng(0).permutation(people)[:SAMPLE]
    cosines = (images.templates[some] @ images.templates[some].T)[np.triu_indices(len(some), 1)]
    middle, high = np.quantile(cosines, [0.5, 0.99])
    spread = max((high - middle) / NORMAL.inv_cdf(0.99), 1e-6)
    limit = float(middle + spread * NORMAL.inv_cdf(1 - rate / (people - 1)))
    order = np.argsort(-np.bincount(images.row), kind="stable")
    findings = []
    for kept, gone, cosine in _alike(images.templates, order, limit, "comparing people"):
        by_chance = (people - 1) * (1 - NORMAL.cdf((cosine - middle) / spread))
        findings.append(
            Finding(
                str(images.people[gone]),
                "",
                Reason.SAME_PERSON,
                _four_digits(by_chance),
                other_person=str(images.people[kept]),
                other_cosine=number_or_none(cosine),
            )
        )
    return findings


def _same_image(images: Enrollments, minimum: float) -> list[Finding]:
    own = images.own_cosines()
    # The less like its person is to be removed; an only image has nothing to be like.
    order = np.argsort(-np.nan_to_num(own, nan=-1.0), kind="stable")
    return [
        _finding(
            images,
            gone,
            Reason.SAME_IMAGE,
            own[gone],
            false_alarms=0.0,
            other_person=str(images.person[kept]),
            other_cosine=number_or_none(cosine),
            other_path=str(images.path[kept]),
        )
        for kept, gone, cosine in _alike(images.embedding, order, minimum, "comparing images")
    ]


def _alike(
    embedding: NDArray[np.float32], order: NDArray[np.int64], minimum: float, text: str
) -> Iterator[tuple[int, int, float]]:
    """Rows that are at least so similar to one that is preferred, as the most similar one, the row, and the cosine.

    Embeddings ``(N, d)`` are of unit length; ``order`` ``(N,)`` has preferred rows first.
    """
    nearest, cosine = nearest_before(EmbeddingSubset(embedding, order), text)
    gone = np.flatnonzero(cosine >= minimum)
    rows = order[nearest[gone]].tolist(), order[gone].tolist(), cosine[gone].tolist()
    return zip(*rows, strict=True)


def read_findings(path: Path) -> list[Listed]:
    """The people and images that a report of a check lists."""
    if path.suffix == ".jsonl":
        rows = [parse_json(line, path) for line in text_lines(path) if line.strip()]
    else:
        table = csv_rows(path, max_bytes=MAX_LIST_BYTES)
        _, header = next(table)
        # A hostile table has thousands of columns: those beyond a row's last cell are not gone through.
        rows = [dict(zip(header, map(from_cell, row), strict=False)) for _, row in table]
    for row in rows:
        if not (isinstance(row, dict) and all(isinstance(row.get(name), str) for name in ("person", "path"))):
            raise DataError(
                f"{path}: not a report of facerts gallery check (.csv or .jsonl); it needs the columns person and path"
            )
    return [Listed(row["person"], row["path"], str(row.get("reason") or "")) for row in rows]
