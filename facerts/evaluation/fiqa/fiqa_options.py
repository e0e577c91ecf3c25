"""How qualities are judged."""

from __future__ import annotations

from dataclasses import dataclass

from facerts.datasets import Source
from facerts.evaluation.image_groups import Groups

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
