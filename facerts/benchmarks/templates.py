"""The form that benchmarks of templates take once they are read: several pictures stand for a person."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source


@dataclass(frozen=True)
class Roster:
    """Templates whose subjects are known: a gallery, or the probes of a search.

    Attributes:
        name: for tables and results.
        templates: ``(K,) int64`` rows of templates.
        subjects: ``(K,) int64`` as the benchmark numbers them.
    """

    name: str
    templates: NDArray[np.int64]
    subjects: NDArray[np.int64]


@dataclass(frozen=True)
class TemplateBenchmark:
    """Pictures in templates, pairs of templates, and searches of probes in galleries.

    Attributes:
        name: for tables and results.
        images: the pictures; their crops are aligned.
        template: ``(N,) int64`` row of each picture's template.
        media: ``(N,) int64`` of each picture; pictures of one video share it.
        template_ids: ``(T,) int64``, the templates as the benchmark numbers them.
        pairs: ``(P, 2)`` rows of templates, of any integer type; ``(0, 2)`` where the pairs are not there.
        same: ``(P,) bool``, True for a genuine pair.
        galleries: what is searched, one after the other.
        probes: what is searched for, or None.
        notes: what was found and what is missing, one sentence each.
    """

    name: str
    images: Source
    template: NDArray[np.int64]
    media: NDArray[np.int64]
    template_ids: NDArray[np.int64]
    pairs: NDArray[np.integer]
    same: NDArray[np.bool_]
    galleries: tuple[Roster, ...]
    probes: Roster | None
    notes: tuple[str, ...] = field(default=())
