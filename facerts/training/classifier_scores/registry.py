"""The scores by name, with their options, for ``facerts evaluate --score NAME:OPTION=VALUE,…``."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from facerts.errors import Error, did_you_mean, problems_text
from facerts.training.classifier_scores.dropout import DEFAULT_RATE, dropped_embeddings
from facerts.training.classifier_scores.perturb import perturbed
from facerts.training.classifier_scores.run import Classifier
from facerts.training.classifier_scores.scores import (
    max_softmax,
    mean_softmax,
    negative_energy,
    solved_temperature,
    stability,
)

# Options by their names in earlier versions.
FORMER_OPTIONS = {"floor": "tau_min"}
# Range of a pixel in the network's input, [−1, 1]; ODIN's ε is a share of it.
INPUT_RANGE = 2.0


@dataclass(frozen=True)
class Activations:
    """Input and intermediate outputs of a network for a batch.

    Attributes:
        images: ``(B, 3, 112, 112)`` network inputs.
        features: ``(B, F)`` outputs of the trunk.
        embedding: ``(B, d)``, of any norm.
    """

    images: Tensor
    features: Tensor
    embedding: Tensor


class ClassifierScore(BaseModel, ABC):
    """A score with its options.

    Attributes:
        name: name in results and on the command line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    name: ClassVar[str]

    def check(self, classifier: Classifier) -> None:
        """Check that a run can give this score.

        Raises:
            Error: it cannot.
        """
        classifier.check_classifies()

    @abstractmethod
    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        """The scores ``(B,)`` of a batch; higher is better."""


class MaxSoftmax(ClassifierScore):
    """See ``scores.max_softmax``.

    Attributes:
        temperature: T.
    """

    name = "max_softmax"
    temperature: float = Field(1.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return max_softmax(classifier.logits(activations.embedding), self.temperature)


class MaxLogit(ClassifierScore):
    """max_k γ cos θ_k: confidence without a softmax.

    Hendrycks, Basart, Mazeika, Zou, Kwon, Mostajabi, Steinhardt, Song: "Scaling Out-of-Distribution Detection for
    Real-World Settings", ICML 2022. Of a run of GODIN it is max_k h_k, the other score of its paper.
    """

    name = "max_logit"

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return classifier.logits(activations.embedding).amax(dim=1)


class Odin(ClassifierScore):
    """Maximum softmax at a high temperature on a perturbed input; see ``perturb``.

    The defaults are those of the authors' code. To tune ε, use faces only and take the ε with the highest mean score.

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
    """The quality of the run's own method on a perturbed input; see ``perturb``.

    This is the score of Generalized ODIN (Hsu et al., CVPR 2020). To tune ε, use faces only and take the ε with the
    highest mean score.

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


class Energy(ClassifierScore):
    """See ``scores.negative_energy``.

    Attributes:
        temperature: T.
    """

    name = "energy"
    temperature: float = Field(1.0, gt=0)

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return negative_energy(classifier.logits(activations.embedding), self.temperature)


class DropoutScore(ClassifierScore):
    """Base of the scores that need several forward passes under dropout.

    Attributes:
        passes: number of forward passes.
        rate: dropout rate; by default the rate of the run, or 0.5 if it was trained without dropout.
    """

    passes: int = Field(100, ge=2)
    rate: float | None = Field(None, gt=0, lt=1)

    def embeddings(self, classifier: Classifier, activations: Activations) -> list[Tensor]:
        """The embeddings ``(B, d)`` of each pass."""
        rate = self.rate or classifier.recipe.backbone.dropout or DEFAULT_RATE
        return list(dropped_embeddings(classifier.network, activations.features, self.passes, rate))


class MCDropout(DropoutScore):
    """Maximum of the mean softmax over several passes under dropout; see ``scores.mean_softmax``."""

    name = "mc_dropout"

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return mean_softmax(map(classifier.logits, self.embeddings(classifier, activations)))


class SERFIQ(DropoutScore):
    """Robustness of the embedding under dropout; see ``scores.stability``."""

    name = "ser_fiq"

    def check(self, classifier: Classifier) -> None:
        """Every run has an embedding; class centers are not used."""

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return stability(torch.stack(self.embeddings(classifier, activations)))


class NewtonTemperature(ClassifierScore):
    """The temperature that TempNet learns to predict; see ``scores.solved_temperature``.

    Of the values 1, 3 and 6, the default ρ separates held-out faces best from degraded versions of them.

    Attributes:
        rho: ρ, below log C.
        tau_min: τ_0.
    """

    name = "newton_temperature"
    rho: float = Field(1.0, gt=0)
    tau_min: float = Field(0.001, gt=0)

    def check(self, classifier: Classifier) -> None:
        super().check(classifier)
        max_rho = math.log(classifier.identities)
        if self.rho >= max_rho:
            raise Error(
                f"newton_temperature: rho {self.rho:g} must be below {max_rho:.4g}, the logarithm of the "
                f"{classifier.identities} identities of {classifier.path}, or every temperature is tau_min; use a "
                "smaller rho: --score newton_temperature:rho=…"
            )

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return solved_temperature(classifier.centers.cosines(activations.embedding), self.rho, self.tau_min)


CLASSIFIER_SCORES: dict[str, type[ClassifierScore]] = {
    score.name: score
    for score in (MaxSoftmax, MaxLogit, Odin, Energy, MCDropout, SERFIQ, NewtonTemperature, PerturbedQuality)
}


def parse_score(text: str) -> ClassifierScore:
    """Parse ``NAME`` or ``NAME:OPTION=VALUE,…``.

    Raises:
        Error: unknown score or option, or an invalid value.
    """
    name, _, rest = text.partition(":")
    if name not in CLASSIFIER_SCORES:
        hint = did_you_mean(name, CLASSIFIER_SCORES) or f"; available: {', '.join(CLASSIFIER_SCORES)}"
        raise Error(f"no score {name!r}{hint} (--ensemble RUN gives the score of an ensemble)")
    known, options = CLASSIFIER_SCORES[name].model_fields, {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        key = FORMER_OPTIONS.get(key, key)
        if not equals:
            raise Error(f"--score {text}: {part!r} is not of the form OPTION=VALUE")
        if key not in known:
            hint = did_you_mean(key, known) or f"; available: {', '.join(known)}"
            raise Error(f"--score {text}: {name} has no option {key!r}{hint}")
        options[key] = value
    try:
        return CLASSIFIER_SCORES[name].model_validate(options)
    except ValidationError as error:
        raise Error(f"--score {text}: {problems_text(error.errors())}") from error
