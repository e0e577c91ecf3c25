"""Pairs of identities that seem to be one person, and what can be done about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.curation.curation_job import PAIRS, Making
from facerts.curation.relabeled import Regrouped
from facerts.datasets.source import Source

# Of thousands of pairs a report shows the surest.
SHOWN = 20
# Identities are one person where one has so much of the other's pictures. A few shared ones may be of either.
SHARED = 0.5


class Across(str, Enum):
    """What is done with identities that seem to be one person."""

    REPORT = "report"
    MERGE = "merge"
    DROP = "drop"


@dataclass(frozen=True)
class Pair:
    """Two identities.

    Attributes:
        first: the label of one.
        second: of the other, above the first.
        one_person: whether they are taken for one; otherwise they only have pictures in common.
        sure: the surer, the higher; comparable between pairs that were found in the same way.
        facts: what speaks for it, as the report has it.
    """

    first: int
    second: int
    one_person: bool
    sure: float
    facts: Mapping[str, Any] = field(default_factory=dict)


def tell_pairs(made: Making, pairs: Sequence[Pair], across: Across) -> None:
    """Write all pairs to their list, and the surest into the report.

    Args:
        made: the command at work.
        pairs: of its source's labels.
        across: what is done with those that are one person.
    """
    rows: list[dict[str, Any]] = []
    for pair in sorted(pairs, key=lambda pair: (-pair.one_person, -pair.sure)):
        first, second = (made.source.identities[label] for label in (pair.first, pair.second))
        rows.append({"first": first, "second": second, "one_person": pair.one_person, **pair.facts})
        made.tell(PAIRS, rows[-1])
    made.report["identity_pairs"] = {
        "count": len(rows),
        "one_person": sum(pair.one_person for pair in pairs),
        "done": across.value,
        "surest": rows[:SHOWN],
    }


def merged(pairs: Sequence[Pair], images: NDArray[np.integer]) -> NDArray[np.int64]:
    """``(C,)`` the label that each label becomes when those that are one person become one.

    Whoever hangs together by such pairs becomes the one among them with the most pictures, the first of equals.

    Args:
        pairs: of labels.
        images: ``(C,)`` pictures of each label.
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
        one, other = find(pair.first), find(pair.second)
        # The root is always the one whose name stays.
        keeps, goes = sorted((one, other), key=lambda label: (-images[label], label))
        root[goes] = keeps
    return np.array([find(label) for label in range(len(images))], dtype=np.int64)


def dropped(pairs: Sequence[Pair], images: NDArray[np.integer]) -> dict[int, Pair]:
    """The labels to leave out so that nobody is there twice, each with the pair that it goes for.

    Of a pair goes the one with fewer pictures, the later one of equals; the surest pairs come first.

    Args:
        pairs: of labels.
        images: ``(C,)`` pictures of each label.
    """
    gone: dict[int, Pair] = {}
    for pair in sorted(pairs, key=lambda pair: -pair.sure):
        if pair.one_person and not gone.keys() & {pair.first, pair.second}:
            goes = pair.second if images[pair.second] <= images[pair.first] else pair.first
            gone[goes] = pair
    return gone


def leave_out_dropped(made: Making, pairs: Sequence[Pair]) -> None:
    """Leave out the pictures of ``dropped`` identities."""
    labels = made.source.labels
    assert labels is not None
    images = np.bincount(labels[made.kept], minlength=len(made.source.identities))
    gone = dropped(pairs, images)
    for index in np.flatnonzero(np.isin(labels, list(gone))).tolist():
        pair = gone[int(labels[index])]
        other = pair.second if labels[index] == pair.first else pair.first
        made.leave_out(
            index, "identity resembles another", resembles=made.source.identities[other], **pair.facts
        )


def regrouped(source: Source, becomes: NDArray[np.int64]) -> Source:
    """A source whose identities are merged.

    Args:
        source: with identities.
        becomes: ``(C,)`` of ``merged``.
    """
    names = [source.identities[label] for label in becomes]
    prefixes = ["" if name == own else f"{own}_" for name, own in zip(names, source.identities, strict=True)]
    return Regrouped(source, names, prefixes)
