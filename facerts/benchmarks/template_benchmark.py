"""The in-memory form of template benchmarks, in which several images represent a person."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source


@dataclass(frozen=True)
class Roster:
    """Templates ``(K,) int64``, by row, and their known subjects: a gallery, or the probes of a search."""

    name: str
    templates: NDArray[np.int64]
    subjects: NDArray[np.int64]


@dataclass(frozen=True)
class TemplateBenchmark:
    """Images grouped into templates, pairs of templates, and searches for probes in galleries.

    Attributes:
        template: ``(N,) int64`` row of each image's template.
        media: ``(N,) int64`` medium of each image; frames of the same video share it.
        template_ids: ``(T,) int64`` templates, as the benchmark numbers them.
        pairs: ``(P, 2)`` rows of templates, of any integer type; ``(0, 2)`` if the benchmark has no pairs.
        same: ``(P,) bool``, True for a genuine pair.
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
