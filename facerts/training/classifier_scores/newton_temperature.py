"""The temperature that minimizes an image's robust loss against all class centers, solved by Newton's method.

Qiu et al.: "To Cool or not to Cool? Temperature Network Meets Large Foundation Models via DRO", ICML 2024. This is what
their temperature network (``methods.tempnet``) learns to predict; see ``methods.robust_loss``.
"""

from __future__ import annotations

import math

from pydantic import Field
from torch import Tensor

from facerts.errors import Error
from facerts.training.classifier_scores.classifier import Activations, Classifier, ClassifierScore
from facerts.training.methods.robust_loss import newton_temperature

# A high temperature means a good image. The paper does not give a direction; measured against all class centers, the
# temperature of held-out faces falls as they are degraded. (The one that TempNet learns from batches rises.)
TEMPERATURE_SIGN = 1.0


class NewtonTemperature(ClassifierScore):
    """± the minimizing temperature τ ≥ τ_0, ``float64``; ρ must be below log C.

    Of the values 1, 3 and 6, the default ρ separates held-out faces best from degraded versions of them.
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
        cosines = classifier.centers.cosines(activations.embedding)
        return TEMPERATURE_SIGN * newton_temperature(cosines, self.rho, self.tau_min)
