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

    Args:
        score_of: maps ``(B, 3, H, W)`` to scores ``(B,)``; the score of an image must not depend on the others.
        images: ``(B, 3, H, W)`` network inputs.
        epsilon: ε, in the units of the images.

    Returns:
        ``(B, 3, H, W)``, detached; the gradients of parameters are not changed.
    """
    with torch.enable_grad():
        images = images.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(score_of(images).sum(), images)
    return images.detach() - epsilon * torch.sign(-gradient)


class ODIN(ClassifierScore):
    """Maximum softmax at a high temperature on a perturbed input; the defaults are those of the authors' code.

    Attributes:
        epsilon: ε, as a share of a pixel's range.
        temperature: T.
    """

    name = "odin"
    epsilon: float = Field(0.0014, ge=0)
    temperature: float = Field(1000.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        def score(images: Tensor) -> Tensor:
            return max_softmax(classifier.image_logits(images), self.temperature)

        return score(perturbed(score, activations.images, INPUT_RANGE * self.epsilon))


class PerturbedQuality(ClassifierScore):
    """The quality of the run's own method on a perturbed input: of a run of GODIN, the score of its paper.

    Attributes:
        epsilon: ε, as a share of a pixel's range.
    """

    name = "perturbed_quality"
    epsilon: float = Field(0.0014, ge=0)

    def check(self, classifier: Classifier) -> None:
        """Every run has a quality."""

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        images = perturbed(classifier.image_quality, activations.images, INPUT_RANGE * self.epsilon)
        return classifier.image_quality(images)
