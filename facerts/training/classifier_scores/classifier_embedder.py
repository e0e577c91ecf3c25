"""A training run as an embedder whose outputs include the scores of its classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from facerts.embedding.outputs import FaceOutputs
from facerts.errors import Error
from facerts.io.files import sha256_file
from facerts.training.classifier_scores import parse_score
from facerts.training.classifier_scores.classifier import (
    Activations,
    Classifier,
    ClassifierScore,
    load_classifier,
)
from facerts.training.classifier_scores.ensemble import SoftmaxEnsemble
from facerts.training.network_embedder import NetworkEmbedder, to_network_input


class ClassifierEmbedder:
    """Embeds crops with a run; the scores are extras of its outputs. See ``embedding.outputs.Embedder``.

    Attributes:
        sha256: SHA-256 of the checkpoint.
        without_scores: the same embedder without the scores.
    """

    def __init__(
        self,
        classifier: Classifier,
        scores: Sequence[ClassifierScore] = (),
        ensemble: SoftmaxEnsemble | None = None,
    ) -> None:
        for score in scores:
            score.check(classifier)
        self.name = classifier.name
        self.method = classifier.method.name
        self.sha256 = sha256_file(classifier.path)
        self.without_scores = NetworkEmbedder(classifier.network, classifier.method, name=self.name)
        self.without_scores.sha256 = self.sha256
        self._classifier, self._scores, self._ensemble = classifier, tuple(scores), ensemble

    @torch.no_grad()
    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        features: list[Tensor] = []
        hook = self._classifier.network.trunk.register_forward_hook(
            lambda _module, _inputs, output: features.append(output)
        )
        try:
            outputs = self.without_scores(crops)
        finally:
            hook.remove()
        images = to_network_input(torch.from_numpy(np.ascontiguousarray(crops)).to(self._classifier.device))
        activations = Activations(images, features[0], self._classifier.network.embedding(features[0]))
        scored = {score.name: score.compute(self._classifier, activations) for score in self._scores}
        if self._ensemble is not None:
            scored["ensemble"] = self._ensemble(images)
        extras = {name: values.float().cpu().numpy() for name, values in scored.items()}
        return replace(outputs, extras={**outputs.extras, **extras})


def load_run(
    run: str | Path,
    scores: Sequence[str] = (),
    ensemble: Sequence[str | Path] = (),
    *,
    threads: int | None = None,
) -> ClassifierEmbedder:
    """A training run as an embedder.

    Args:
        run: folder of the run, or a checkpoint file.
        scores: ``NAME`` or ``NAME:OPTION=VALUE,…``, see ``CLASSIFIER_SCORES``.
        ensemble: further runs on the same identities; if there are any, the outputs include the score ``ensemble``.
    """
    parsed = [parse_score(text) for text in scores]
    names = [score.name for score in parsed]
    for name in names:
        if names.count(name) > 1:
            raise Error(f"--score {name}: given twice; give each score once")
    if threads is not None:
        torch.set_num_threads(threads)
    classifier = load_classifier(run)
    members = [classifier, *map(load_classifier, ensemble)]
    return ClassifierEmbedder(classifier, parsed, SoftmaxEnsemble(members) if ensemble else None)
