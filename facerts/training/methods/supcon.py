"""SupCon: supervised contrastive learning.

Khosla, Teterwak, Wang, Sarna, Tian, Isola, Maschinot, Liu, Krishnan: "Supervised Contrastive Learning",
NeurIPS 2020, L_out (Eq. 2). With s_ij = ẑ_i·ẑ_j, i over all views of all images and P_i the other rows of i's identity:

    L = (1/2N) Σ_i −(1/|P_i|) Σ_{p∈P_i} log [exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)]

The loss is the mean over the rows; the paper has their sum. There is no projection network: embeddings are compared
directly. It learns no uncertainty of its own; the norm of the embedding serves as quality.
"""

from __future__ import annotations

from pydantic import Field

from facerts.training.methods.base import Batch, Centers, Loss, Method, MethodConfig, Outputs
from facerts.training.methods.contrastive import info_nce, positives, similarities


class SupConConfig(MethodConfig):
    """Settings shared by the methods that contrast the identities of a batch.

    Attributes:
        temperature: τ; the paper uses 0.1.
    """

    temperature: float = Field(0.1, gt=0)


class IdentityContrast(Method):
    """Base of the methods that contrast the identities of a batch: two views of several images per identity."""

    views = 2
    sampler = "identities"


class SupCon(IdentityContrast):
    """Contrasts each row with the batch; the identity's other rows are positives (Eq. 2). Quality is ‖y‖."""

    name = "supcon"
    Config = SupConConfig

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean of Eq. 2 over the rows; the class centers are not used."""
        logits = similarities(outputs["embedding"]) / self.config.temperature
        return Loss(info_nce(logits, positives(batch.labels)).mean())
