"""What recognizers and qualities give for the images of a source, and how well they separate faces from non-faces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.datasets.fingerprint import ImageHashes, hash_images
from facerts.embedding.outputs import FaceOutputs, Scores
from facerts.evaluation.evaluation_options import EvaluationOptions
from facerts.evaluation.lineup import NORM, ComputedQuality, Lineup
from facerts.evaluation.measure import Measure
from facerts.evaluation.ood import separation_measures


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
        own = {f"{name} of {label}": values for label, by_name in self.own.items() for name, values in by_name.items()}
        return {**self.shared, **own}


def score_images(
    lineup: Lineup,
    source: Source,
    options: EvaluationOptions,
    hashed: ImageHashes | None = None,
    *,
    rows: NDArray[np.int64] | None = None,
    embed: bool = True,
) -> ScoredImages:
    """Embed and score the images of a source, all of them or ``rows``; ``hashed`` is ``hash_images`` of it."""
    hashed = hashed or hash_images(source)
    sha256, first = hashed.sha256, hashed.first
    kept = np.arange(len(source)) if rows is None else rows
    recognizers = lineup.recognizers if embed else {}
    outputs = {label: one.outputs(source, options, sha256, first).take(kept) for label, one in recognizers.items()}
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


def separations(faces: ScoredImages, others: Sequence[ScoredImages]) -> dict[str, list[Measure]]:
    """How well each quality separates faces from all non-faces.

    Of the recognizers' own qualities, the lowest and the highest over the recognizers.
    """
    found = _separations(faces.shared, [one.shared for one in others])
    own: dict[str, list[list[Measure]]] = {}
    for label, qualities in faces.own.items():
        for name, measures in _separations(qualities, [one.own[label] for one in others]).items():
            own.setdefault(name, []).append(measures)
    for name, of_recognizers in own.items():
        found[name] = of_recognizers[0]
        if len(of_recognizers) > 1:
            for several in zip(*of_recognizers, strict=True):
                values = [one.value for one in several if one.value is not None]
                several[0].value, several[0].ci95 = None, None
                several[0].range = min(values), max(values)
    return found


def _separations(
    faces: Mapping[str, NDArray[np.float32]], others: Sequence[Mapping[str, NDArray[np.float32]]]
) -> dict[str, list[Measure]]:
    """AUROC and TNR at TPR 95% of the qualities that faces and all non-faces have."""
    found = {}
    for label, inside in faces.items():
        if all(label in one for one in others):
            measures = separation_measures(inside, np.concatenate([one[label] for one in others]))
            area, tnr = measures[0], measures[2]
            area.name, area.test, tnr.test = "AUROC, non-faces", None, None
            found[label] = [area, tnr]
    return found
