"""What recognizers and qualities give for the images of a source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding.outputs import FaceOutputs, Scores
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.fiqa.lineup import NORM, ComputedQuality, Lineup


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
