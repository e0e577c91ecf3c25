"""SupCon: supervised contrastive learning.

Khosla, Teterwak, Wang, Sarna, Tian, Isola, Maschinot, Liu, Krishnan: "Supervised Contrastive Learning",
NeurIPS 2020, L_out (Eq. 2). With s_ij = ẑ_i·ẑ_j, i over all views of all images and P_i the other rows of i's identity:

    L = (1/2N) Σ_i −(1/|P_i|) Σ_{p∈P_i} log [exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)]

The loss is the rows' mean, where the paper has their sum. There is no projection network: the embedding itself is
what is compared. It learns no uncertainty of its own; the length of the embedding serves as its quality.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from facerts.training.methods.base import Batch, Centers, Loss, Method, MethodConfig, Outputs, unit_embedding
from facerts.training.methods.contrastive import info_nce, positives, similarities


class SupConConfig(MethodConfig):
    """Settings of every method that contrasts the images of a batch.

    Attributes:
        temperature: τ; 0.1 is the paper's.
    """

    temperature: float = Field(0.1, gt=0)


class IdentityContrast(Method):
    """What the methods that contrast a batch's identities share: two views, several images of a person, ‖y‖."""

    views = 2
    sampler = "identities"

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        scored = unit_embedding(outputs)
        return {**scored, "quality": scored["norm"], "uncertainty": -scored["norm"]}


class SupCon(IdentityContrast):
    """Each row against the batch, its identity's other rows as positives (Eq. 2); quality is ‖y‖."""

    name = "supcon"
    Config = SupConConfig

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean of Eq. 2 over the rows; the class centers have no part in it."""
        logits = similarities(outputs["embedding"]) / self.config.temperature
        return Loss(info_nce(logits, positives(batch.labels)).mean())
