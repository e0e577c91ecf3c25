"""Several runs on the same identities as an ensemble of classifiers.

Lakshminarayanan, Pritzel, Blundell: "Simple and Scalable Predictive Uncertainty Estimation using Deep Ensembles",
NeurIPS 2017, section 2.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from facerts.errors import Error
from facerts.training.classifier_scores.classifier import Classifier
from facerts.training.classifier_scores.max_softmax import mean_softmax


class SoftmaxEnsemble:
    """Maximum of the mean softmax of several runs.

    Args:
        members: the runs, which may differ in everything but their classes.
    """

    def __init__(self, members: Sequence[Classifier]) -> None:
        self._members = tuple(members)
        first = self._members[0]
        for member in self._members:
            member.check_classifies()
            if _classes(member) != _classes(first):
                raise Error(
                    f"{member.path}: the runs of an ensemble must have the same classes; this one has "
                    f"{_description(member)}, and {first.path} has {_description(first)}; use runs on the same data"
                )

    def __call__(self, images: Tensor) -> Tensor:
        """Scores ``(B,)`` of network inputs ``(B, 3, 112, 112)``; higher is better."""
        return mean_softmax(member.image_logits(images) for member in self._members)


def _classes(member: Classifier) -> tuple[Any, ...]:
    """Everything that determines which identity a class is; the seed does, if it selects held-out identities."""
    data = member.recipe.data
    seed = member.recipe.seed if data.holdout_identities else None
    return data.name, data.holdout_identities, seed, member.identities


def _description(member: Classifier) -> str:
    data = member.recipe.data
    held_out = f", {data.holdout_identities} held out by seed {member.recipe.seed}"
    return f"{member.identities} identities of {data.name!r}{held_out if data.holdout_identities else ''}"
