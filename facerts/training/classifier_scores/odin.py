"""ODIN, and the score of Generalized ODIN: both on an input that was perturbed towards a higher score.

Liang, Li, Srikant: "Enhancing The Reliability of Out-of-distribution Image Detection in Neural Networks", ICLR 2018.
Hsu, Shen, Jin, Kira: "Generalized ODIN", CVPR 2020, perturbs with its own score instead of the maximum softmax.

To tune ε, use faces only and take the ε with the highest mean score.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field
from torch import Tensor

from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore
from facerts.training.classifier_scores.max_softmax import max_softmax

# Range of a pixel in the network's input, [−1, 1]; ε is a share of it.
INPUT_RANGE = 2.0


def perturbed(score_of: Callable[[Tensor], Tensor], images: Tensor, epsilon: float) -> Tensor:
    """x̃ = x − ε sign(−∇_x S(x)), a step that increases the score S (Liang et al., Eq. 2).

    ``score_of`` maps images ``(B, 3, H, W)`` to scores ``(B,)``, each of which must not depend on the other images. The
    result is detached, and the gradients of parameters are not changed.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(score_of(images).sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)


class ODIN(ClassifierScore):
    """Maximum softmax at a high temperature T on a perturbed input; the defaults are those of the authors' code."""

    name = "odin"
    epsilon: float = Field(0.0014, ge=0)
    temperature: float = Field(1000.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        def score(images: Tensor) -> Tensor:
            return max_softmax(classifier.image_logits(images), self.temperature)

        return score(perturbed(score, activations.images, INPUT_RANGE * self.epsilon))


class PerturbedQuality(ClassifierScore):
    """The quality of the run's own method on a perturbed input: of a run of GODIN, the score of its paper."""

    name = "perturbed_quality"
    epsilon: float = Field(0.0014, ge=0)

    def check(self, classifier: Classifier) -> None:
        """Every run has a quality."""

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        images = perturbed(classifier.image_quality, activations.images, INPUT_RANGE * self.epsilon)
        return classifier.image_quality(images)
