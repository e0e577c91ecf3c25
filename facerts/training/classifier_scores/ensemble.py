"""Several runs on the same identities as one classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from facerts.errors import Error
from facerts.training.classifier_scores.run import Classifier
from facerts.training.classifier_scores.scores import mean_softmax


class Ensemble:
    """Maximum of the mean softmax of several runs; see ``scores.mean_softmax``.

    Args:
        members: the runs, which may differ in all but what they were trained to tell apart.

    Raises:
        Error: a run that has no logits, or other classes than the first.
    """

    def __init__(self, members: Sequence[Classifier]) -> None:
        self._members = tuple(members)
        first = self._members[0]
        for member in self._members:
            member.check_classifies()
            if _classes(member) != _classes(first):
                raise Error(
                    f"{member.path}: an ensemble takes the mean over the same classes, and this run has "
                    f"{_told(member)}, while {first.path} has {_told(first)}; give runs on the same data"
                )

    def __call__(self, images: Tensor) -> Tensor:
        """``(B, 3, 112, 112)`` network inputs to ``(B,)``, higher is better."""
        return mean_softmax(member.image_logits(images) for member in self._members)


def _classes(member: Classifier) -> tuple[Any, ...]:
    """What decides which identity a class is: the seed too, where it draws those that are kept out."""
    data = member.recipe.data
    drawn_by = member.recipe.seed if data.holdout_identities else None
    return data.name, data.holdout_identities, drawn_by, member.identities


def _told(member: Classifier) -> str:
    data = member.recipe.data
    kept_out = f", {data.holdout_identities} kept out by seed {member.recipe.seed}"
    return f"{member.identities} identities of {data.name!r}{kept_out if data.holdout_identities else ''}"
