"""What recognizers and qualities give for the images of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding.outputs import FaceOutputs, Scores
from facerts.evaluation.fiqa.lineup import NORM, Lineup
from facerts.evaluation.options import EvaluationOptions


@dataclass(frozen=True)
class ScoredImages:
    """Outputs for the images of a source.

    Attributes:
        outputs: embeddings by recognizer.
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
) -> ScoredImages:
    """Embed and score the images of a source.

    Args:
        lineup: recognizers and qualities.
        source: aligned images.
        options: how to embed.
        sha256: hash of the images.
        first: ``(N,)`` first image with the same crop, from ``fingerprint.hash_images``.
        rows: the images to keep; None for all.
    """
    kept = np.arange(len(source)) if rows is None else rows
    outputs = {
        label: one.outputs(source, options, sha256, first).take(kept)
        for label, one in lineup.recognizers.items()
    }
    shared = {label: quality.of(source, options, sha256) for label, quality in lineup.qualities.items()}
    own = {
        label: {
            **({} if (norm := outputs[label].norm) is None else {NORM: norm}),
            **{name: score.of(source, options, sha256)[kept] for name, score in one.own.items()},
        }
        for label, one in lineup.recognizers.items()
    }
    return ScoredImages(
        outputs, {label: values[kept] for label, values in shared.items() if values is not None}, own
    )
