"""Pairs of identities that look like one person: report, merge or drop them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import PAIRS, CurationJob
from facerts.datasets.source import Relabeled, Source

# The report shows only the most certain pairs.
MAX_SHOWN = 20
# Two identities are one person if they share this much of the smaller one; a few shared images may be of either.
SHARED = 0.5


class IdentityAction(str, Enum):
    """What to do with identities that look like one person."""

    REPORT = "report"
    MERGE = "merge"
    DROP = "drop"


@dataclass(frozen=True)
class IdentityPair:
    """Two identities that may be one person.

    Attributes:
        one_person: whether they are considered one person; otherwise they only have images in common.
        certainty: higher is more certain; comparable between pairs that were found in the same way.
    """

    first: int
    second: int
    one_person: bool
    certainty: float
    details: Mapping[str, Any] = field(default_factory=dict)


def report_pairs(job: CurationJob, pairs: Sequence[IdentityPair], action: IdentityAction) -> None:
    """Write all pairs to their list, and the most certain ones into the report."""
    rows: list[dict[str, Any]] = []
    for pair in sorted(pairs, key=lambda pair: (-pair.one_person, -pair.certainty)):
        first, second = (job.source.identities[label] for label in (pair.first, pair.second))
        rows.append({"first": first, "second": second, "one_person": pair.one_person, **pair.details})
        job.add_line(PAIRS, rows[-1])
    job.report["identity_pairs"] = {
        "count": len(rows),
        "one_person": sum(pair.one_person for pair in pairs),
        "done": action.value,
        "surest": rows[:MAX_SHOWN],
    }


def merge_labels(pairs: Sequence[IdentityPair], images: NDArray[np.integer]) -> NDArray[np.int64]:
    """The new label ``(C,)`` of each label after merging pairs that are one person.

    Connected labels become the one with the most images, or the first of these.

    Args:
        images: ``(C,)`` number of images of each label.
    """
    root = np.arange(len(images))

    def find(label: int) -> int:
        while root[label] != label:
            root[label] = root[root[label]]
            label = int(root[label])
        return label

    for pair in pairs:
        if not pair.one_person:
            continue
        first_root, second_root = find(pair.first), find(pair.second)
        # The root is always the label that is kept.
        kept, gone = sorted((first_root, second_root), key=lambda label: (-images[label], label))
        root[gone] = kept
    return np.array([find(label) for label in range(len(images))], dtype=np.int64)


def choose_dropped(pairs: Sequence[IdentityPair], images: NDArray[np.integer]) -> dict[int, IdentityPair]:
    """The labels to drop so that no person has two labels, each with the pair that is the reason.

    Of each pair, most certain first, the label with fewer images is dropped, or else the second one.

    Args:
        images: ``(C,)`` number of images of each label.
    """
    dropped: dict[int, IdentityPair] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.certainty):
        if pair.one_person and not dropped.keys() & {pair.first, pair.second}:
            label = pair.second if images[pair.second] <= images[pair.first] else pair.first
            dropped[label] = pair
    return dropped


def drop_identities(job: CurationJob, pairs: Sequence[IdentityPair]) -> None:
    """Drop the images of the identities of ``choose_dropped``."""
    labels = job.source.labels
    assert labels is not None
    images = np.bincount(labels[job.kept], minlength=len(job.source.identities))
    dropped = choose_dropped(pairs, images)
    for index in np.flatnonzero(np.isin(labels, list(dropped))).tolist():
        pair = dropped[int(labels[index])]
        other = pair.second if labels[index] == pair.first else pair.first
        job.drop(index, "identity resembles another", resembles=job.source.identities[other], **pair.details)


def resolve_pairs(
    job: CurationJob,
    pairs: Sequence[IdentityPair],
    action: IdentityAction,
    images: NDArray[np.integer],
    drop_duplicates: Callable[[NDArray[np.int64]], None],
) -> Source:
    """Report the pairs of a job's source, and merge or drop identities if ``action`` says so.

    Args:
        images: ``(C,)`` number of images of each identity, which decides whose name is kept.
        drop_duplicates: drops the duplicates within merged identities, given the new label ``(C,)`` of each.

    Returns:
        The source of the images to write.
    """
    report_pairs(job, pairs, action)
    if action is IdentityAction.DROP:
        drop_identities(job, pairs)
    if action is not IdentityAction.MERGE:
        return job.source
    new_labels = merge_labels(pairs, images)
    drop_duplicates(new_labels)
    return relabel(job.source, new_labels)


def relabel(source: Source, new_labels: NDArray[np.int64]) -> Source:
    """A source with merged identities.

    Args:
        new_labels: ``(C,)`` from ``merge_labels``.
    """
    names = [source.identities[label] for label in new_labels]
    prefixes = ["" if name == own else f"{own}_" for name, own in zip(names, source.identities, strict=True)]
    return Relabeled(source, names, prefixes)
