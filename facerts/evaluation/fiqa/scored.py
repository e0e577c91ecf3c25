"""What recognizers and qualities give for the images of a source, and how well they separate faces from non-faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import hash_images
from facerts.embedding.outputs import FaceOutputs, Scores
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.fiqa.lineup import NORM, ComputedQuality, Lineup
from facerts.evaluation.ood import separation_numbers
from facerts.evaluation.results.fiqa_result import FiqaNonFaces
from facerts.evaluation.results.ood_result import OodNumbers


@dataclass(frozen=True)
class ScoredImages:
    """Outputs for the images of a source.

    Attributes:
        shared: qualities ``(N,)`` that are the same for all recognizers, by label; without those of tables that have
            none of the images.
        own: the recognizers' own qualities ``(N,)``, by recognizer and label.
    """

    outputs: Mapping[str, FaceOutputs]
    shared: Mapping[str, Scores]
    own: Mapping[str, Mapping[str, Scores]]

    def qualities(self, recognizer: str) -> dict[str, Scores]:
        """All qualities that can be judged on a recognizer."""
        return {**self.shared, **self.own[recognizer]}

    def by_name(self) -> dict[str, Scores]:
        """All qualities, those of recognizers as "NAME of RECOGNIZER"."""
        own = {
            f"{name} of {label}": values
            for label, by_name in self.own.items()
            for name, values in by_name.items()
        }
        return {**self.shared, **own}


def score_images(
    lineup: Lineup,
    source: Source,
    options: EvaluationOptions,
    *,
    sha256: str,
    first: NDArray[np.int64],
    rows: NDArray[np.int64] | None = None,
    embed: bool = True,
) -> ScoredImages:
    """Embed and score the images of a source, all of them or ``rows``.

    ``first`` is the ``(N,)`` first image with the same crop, from ``fingerprint.hash_images``.
    """
    kept = np.arange(len(source)) if rows is None else rows
    recognizers = lineup.recognizers if embed else {}
    outputs = {
        label: one.outputs(source, options, sha256, first).take(kept) for label, one in recognizers.items()
    }
    # A model that is a recognizer, too, has given its quality with the embedding.
    given = {
        getattr(recognizers[label].embedder, "identity", None): of_images.quality
        for label, of_images in outputs.items()
        if of_images.quality is not None
    }
    shared = {}
    for label, quality in lineup.qualities.items():
        if isinstance(quality, ComputedQuality) and quality.identity in given:
            shared[label] = given[quality.identity]
        elif (values := quality.of(source, options, sha256)) is not None:
            shared[label] = values[kept]
    own = {
        label: {
            **({} if (norm := outputs[label].norm) is None else {NORM: norm}),
            **{name: score.of(source, options, sha256)[kept] for name, score in one.own.items()},
        }
        for label, one in recognizers.items()
    }
    return ScoredImages(outputs, shared, own)


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
