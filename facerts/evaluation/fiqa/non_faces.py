"""How well qualities separate the faces of a set from non-faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.fiqa.lineup import Lineup
from facerts.evaluation.fiqa.scored import ScoredImages, score_images
from facerts.evaluation.ood import separation_numbers
from facerts.evaluation.results.fiqa_result import FiqaNonFaces
from facerts.evaluation.results.ood_result import OodNumbers


@dataclass(frozen=True)
class ScoredNonFaces:
    """Non-faces and their qualities, by source."""

    scored: Mapping[str, ScoredImages] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    excluded: str | None = None

    @classmethod
    def read(
        cls,
        lineup: Lineup,
        others: Mapping[str, Source],
        options: EvaluationOptions,
        excluded: str | None,
        *,
        embed: bool,
    ) -> ScoredNonFaces:
        hashes = {name: hash_images(source) for name, source in others.items()}
        scored = {
            name: score_images(
                lineup, source, options, sha256=hashes[name].sha256, first=hashes[name].first, embed=embed
            )
            for name, source in others.items()
        }
        return cls(scored, {name: hashed.sha256 for name, hashed in hashes.items()}, excluded)

    def against(self, faces: ScoredImages) -> FiqaNonFaces:
        """How well the faces' qualities separate them from all non-faces."""
        sources = list(self.scored.values())
        count = {name: len(next(iter(one.shared.values()))) for name, one in self.scored.items()}
        return FiqaNonFaces(
            others=count,
            excluded=self.excluded,
            data_sha256=dict(self.hashes),
            interval="bootstrap over images",
            by=_separations(faces.shared, [one.shared for one in sources]),
            by_recognizer={
                label: _separations(own, [one.own[label] for one in sources])
                for label, own in faces.own.items()
            },
        )


def _separations(
    faces: Mapping[str, NDArray[np.float32]], others: Sequence[Mapping[str, NDArray[np.float32]]]
) -> dict[str, OodNumbers]:
    """Numbers of the qualities that faces and all non-faces have."""
    return {
        label: separation_numbers(inside, np.concatenate([one[label] for one in others]))
        for label, inside in faces.items()
        if all(label in one for one in others)
    }
