"""The scores by name with their options, as ``facerts evaluate --score NAME:OPTION=VALUE,…`` takes them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from facerts.errors import Error, did_you_mean
from facerts.training.classifier_scores.dropout import RATE, dropped_embeddings
from facerts.training.classifier_scores.perturb import perturbed
from facerts.training.classifier_scores.run import Classifier
from facerts.training.classifier_scores.scores import (
    max_softmax,
    mean_softmax,
    negative_energy,
    solved_temperature,
    stability,
)

# Of a pixel in the network's input, [−1, 1]; ODIN's ε is a share of it.
INPUT_RANGE = 2.0


@dataclass(frozen=True)
class Seen:
    """A batch on its way through a network.

    Attributes:
        images: ``(B, 3, 112, 112)``, as the network takes them.
        features: ``(B, F)``, of the trunk.
        embedding: ``(B, d)``, of any length.
    """

    images: Tensor
    features: Tensor
    embedding: Tensor


class Score(BaseModel, ABC):
    """A score with its options.

    Attributes:
        name: in results and on the command line.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    name: ClassVar[str]

    def check(self, classifier: Classifier) -> None:
        """Refuse a run that cannot give this score.

        Raises:
            Error: the reason, and what to do.
        """
        classifier.check_classifies()

    @abstractmethod
    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        """``(B,)``, higher is better."""


class MaxSoftmax(Score):
    """See ``scores.max_softmax``.

    Attributes:
        temperature: T.
    """

    name = "max_softmax"
    temperature: float = Field(1.0, gt=0)

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        return max_softmax(classifier.logits(seen.embedding), self.temperature)


class Odin(Score):
    """Maximum softmax at a high temperature after a small step of the input; see ``perturb``.

    The defaults are those of the authors' code. Where others are tried, choose on faces only: the ε with the largest
    mean score.

    Attributes:
        epsilon: ε, as a share of a pixel's range.
        temperature: T.
    """

    name = "odin"
    epsilon: float = Field(0.0014, ge=0)
    temperature: float = Field(1000.0, gt=0)

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        def surest(images: Tensor) -> Tensor:
            return max_softmax(classifier.image_logits(images), self.temperature)

        return surest(perturbed(surest, seen.images, INPUT_RANGE * self.epsilon))


class PerturbedQuality(Score):
    """The run's own quality after a small step of the input that raises it; see ``perturb``.

    As Generalized ODIN scores (Hsu et al., CVPR 2020). Choose ε on faces only: the one with the largest mean score.

    Attributes:
        epsilon: ε, as a share of a pixel's range.
    """

    name = "perturbed_quality"
    epsilon: float = Field(0.0014, ge=0)

    def check(self, classifier: Classifier) -> None:
        """Any run has a quality."""

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        moved = perturbed(classifier.image_quality, seen.images, INPUT_RANGE * self.epsilon)
        return classifier.image_quality(moved)


class Energy(Score):
    """See ``scores.negative_energy``.

    Attributes:
        temperature: T.
    """

    name = "energy"
    temperature: float = Field(1.0, gt=0)

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        return negative_energy(classifier.logits(seen.embedding), self.temperature)


class Dropped(Score):
    """Scores that need several passes under dropout.

    Attributes:
        passes: how many.
        rate: of the dropout; by default the run's own, and 0.5 where it was trained without.
    """

    passes: int = Field(100, ge=2)
    rate: float | None = Field(None, gt=0, lt=1)

    def embeddings(self, classifier: Classifier, seen: Seen) -> list[Tensor]:
        """The embedding of each pass, ``(B, d)``."""
        rate = self.rate or classifier.recipe.backbone.dropout or RATE
        return list(dropped_embeddings(classifier.network, seen.features, self.passes, rate))


class MCDropout(Dropped):
    """Maximum of the mean softmax over passes under dropout; see ``scores.mean_softmax``."""

    name = "mc_dropout"

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        return mean_softmax(map(classifier.logits, self.embeddings(classifier, seen)))


class SERFIQ(Dropped):
    """Agreement of the embedding with itself under dropout; see ``scores.stability``."""

    name = "ser_fiq"

    def check(self, classifier: Classifier) -> None:
        """Any run will do: no class center is asked."""

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        return stability(torch.stack(self.embeddings(classifier, seen)))


class NewtonTemperature(Score):
    """The temperature that TempNet would imitate; see ``scores.solved_temperature``.

    The default ρ is the one of 1, 3 and 6 that tells held-out faces best from the same faces degraded.

    Attributes:
        rho: ρ, below log C.
        floor: τ_0.
    """

    name = "newton_temperature"
    rho: float = Field(1.0, gt=0)
    floor: float = Field(0.001, gt=0)

    def check(self, classifier: Classifier) -> None:
        super().check(classifier)
        highest = math.log(classifier.identities)
        if self.rho >= highest:
            raise Error(
                f"newton_temperature: rho {self.rho:g} must be below {highest:.4g}, the logarithm of the "
                f"{classifier.identities} identities of {classifier.path}, or every temperature is the floor; give "
                "--score newton_temperature:rho=…"
            )

    def of(self, classifier: Classifier, seen: Seen) -> Tensor:
        return solved_temperature(classifier.centers.cosines(seen.embedding), self.rho, self.floor)


SCORES: dict[str, type[Score]] = {
    score.name: score
    for score in (MaxSoftmax, Odin, Energy, MCDropout, SERFIQ, NewtonTemperature, PerturbedQuality)
}


def parse_score(text: str) -> Score:
    """``NAME`` or ``NAME:OPTION=VALUE,…``.

    Raises:
        Error: no such score or option, or a value that it cannot have.
    """
    name, _, rest = text.partition(":")
    if name not in SCORES:
        hint = did_you_mean(name, SCORES) or f"; there are {', '.join(SCORES)}"
        raise Error(f"no score {name!r}{hint} (--ensemble RUN gives the score of an ensemble)")
    known, options = SCORES[name].model_fields, {}
    for part in rest.split(",") if rest else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise Error(f"--score {text}: {part!r} is no OPTION=VALUE")
        if key not in known:
            hint = did_you_mean(key, known) or f"; it has {', '.join(known)}"
            raise Error(f"--score {text}: {name} has no option {key!r}{hint}")
        options[key] = value
    try:
        return SCORES[name].model_validate(options)
    except ValidationError as error:
        first = error.errors()[0]
        raise Error(f"--score {text}: {first['loc'][0]}: {first['msg']}") from error
