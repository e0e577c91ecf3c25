"""The energy score.

Liu, Wang, Owens, Li: "Energy-based Out-of-distribution Detection", NeurIPS 2020, Eq. 4.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore


def negative_energy(logits: Tensor, temperature: float = 1.0) -> Tensor:
    """−E(x) = T log Σ_k exp(f_k/T): ``(B, C)`` to ``(B,) float64``."""
    return temperature * (logits.double() / temperature).logsumexp(dim=1)


class Energy(ClassifierScore):
    """The negative energy −E(x); ``temperature`` is T."""

    name = "energy"
    temperature: float = Field(1.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return negative_energy(classifier.logits(activations.embedding), self.temperature)
