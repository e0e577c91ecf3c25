"""SER-FIQ: the stability of the embedding under dropout.

Terhörst, Kolf, Damer, Kirchbuchner, Kuijper: "SER-FIQ: Unsupervised Estimation of Face Image Quality Based on
Stochastic Embedding Robustness", CVPR 2020.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from facerts.training.classifier_scores.classifier import Activations, Classifier
from facerts.training.classifier_scores.mc_dropout import DropoutScore


def stability(embeddings: Tensor) -> Tensor:
    """2 σ(−mean_{i<j} ‖y_i − y_j‖) of m unit embeddings of an image: ``(m, B, d)`` to ``(B,)``, in (0, 1].

    The mean is over the pairs, as in the authors' code; a mean over all m² would be smaller by (m − 1)/m and rank
    images in the same way.

    Args:
        embeddings: ``(m, B, d)``, of any norm; m at least 2.
    """
    passes = F.normalize(embeddings, dim=2).transpose(0, 1).contiguous()
    # Dot products would lose the small distances between almost equal embeddings.
    distance = torch.cdist(passes, passes, compute_mode="donot_use_mm_for_euclid_dist")
    count = passes.shape[1]
    return 2.0 * torch.sigmoid(-distance.sum(dim=(1, 2)) / (count * (count - 1)))


class SERFIQ(DropoutScore):
    """Stability of the embedding over several passes under dropout."""

    name = "ser_fiq"

    def check(self, classifier: Classifier) -> None:
        """Every run has an embedding; class centers are not used."""

    def compute(self, classifier: Classifier, activations: Activations) -> Tensor:
        return stability(torch.stack(self.embeddings(classifier, activations)))
