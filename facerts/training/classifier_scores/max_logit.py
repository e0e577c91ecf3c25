"""Maximum logit: confidence without a softmax.

Hendrycks, Basart, Mazeika, Zou, Kwon, Mostajabi, Steinhardt, Song: "Scaling Out-of-Distribution Detection for
Real-World Settings", ICML 2022.
"""

from __future__ import annotations

from torch import Tensor

from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore


class MaxLogit(ClassifierScore):
    """max_k γ cos θ_k. Of a run of GODIN it is max_k h_k, the other score of its paper."""

    name = "max_logit"

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return classifier.logits(activations.embedding).amax(dim=1)
