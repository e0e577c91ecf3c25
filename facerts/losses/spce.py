"""SPCE: the simplified pairwise cross-entropy, with a classifier learned from detached embeddings.

Defined by Boudiaf, Rony, Ziko, Granger, Pedersoli, Piantanida, Ben Ayed: "A Unifying Mutual Information View of
Metric Learning: Cross-Entropy vs. Pairwise Losses", ECCV 2020. The tightness term of the classifier is from Aljundi,
Patel, Sulc, Olmeda, Chumerin: "Contrastive Classification and Representation Learning with Probabilistic
Interpretation", AAAI 2023. Over the K classes of the batch:

    l_ik = (1/N) Σ_{j: y_j = k} z_j·z_i                     class sums divided by N, including j = i
    L = CE(l) − mean_i ẑ_i·θ_{y_i}                          the embedding is detached in the second term

N counts all rows. With unit vectors |l_ik| ≤ N_k/N, which is too small for a softmax to separate the classes.
Therefore z = sqrt(K/τ)·ẑ here, so that

    l_ik = (K/(N τ)) Σ_{j: y_j = k} ẑ_j·ẑ_i,

which in a balanced batch (N_k = N/K) is the mean cosine to the class divided by τ, for any batch size. With an
unnormalized z, the loss could fall merely by growing norms, which do not affect the cosines used at inference.

As in Aljundi et al., there is no projection network: z is the embedding that is used later.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.nn import functional as F

from facerts.losses.contrastive import members, similarities, tightness
from facerts.losses.face_loss import LossValue, Outputs, settings
from facerts.losses.supcon import IdentityContrast


def pairwise_cross_entropy(similarity: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """CE(l) ``(B,)`` with l_ik = (K/(N τ)) Σ_{j: y_j = k} s_ij, from ``(B, B)`` cosines s_ij = ẑ_i·ẑ_j."""
    member = members(labels).to(similarity)
    rows, classes = member.shape
    logits = similarity @ member * (classes / (rows * temperature))
    return F.cross_entropy(logits, member.argmax(dim=1), reduction="none")


@settings
class SPCE(IdentityContrast):
    """Cross-entropy against the batch's class sums, plus a detached classifier; quality is ‖y‖."""

    name = "spce"
    needs_centers = True

    def compute(self, outputs: Outputs, labels: Tensor, *, centers: Any, **_: Any) -> LossValue:
        """L of the module docstring."""
        embedding = outputs["embedding"]
        entropy = pairwise_cross_entropy(similarities(embedding), labels, self.temperature).mean()
        tight = tightness(centers.cosines(embedding.detach()), labels).mean()
        return LossValue(entropy + tight, {"cross_entropy": entropy.detach(), "tightness": tight.detach()})
