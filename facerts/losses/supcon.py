"""SupCon: supervised contrastive learning.

Khosla, Teterwak, Wang, Sarna, Tian, Isola, Maschinot, Liu, Krishnan: "Supervised Contrastive Learning",
NeurIPS 2020, L_out (Eq. 2). With s_ij = ẑ_i·ẑ_j, i over all views of all images and P_i the other rows of i's identity:

    L = (1/2N) Σ_i −(1/|P_i|) Σ_{p∈P_i} log [exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)]
    z = W₂ σ(W₁ ŷ + b₁) + b₂,   σ ReLU, the projection network on the unit embedding ŷ; without it z = y

The loss is the mean over the rows; the paper has their sum. The projection network serves the loss alone, and is thrown
away afterwards: the exported embedding is y. By default there is none, and embeddings are compared directly.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.losses.contrastive import info_nce, positives, similarities, tightness
from facerts.losses.face_loss import FaceLoss, LossValue, Outputs, Positive, settings


@settings
class IdentityContrast(FaceLoss):
    """Base of the losses that contrast the identities of a batch: two views of several images per identity.

    Args:
        temperature: τ, 0.1 in the papers.
    """

    views = 2
    sampler = "identities"
    temperature: Positive = 0.1


@settings
class SupCon(IdentityContrast):
    """Contrasts each row with the batch; the identity's other rows are positives (Eq. 2). Quality is ‖y‖.

    Args:
        projection: number of the projection network's outputs, 0 for none (paper: 128).
    """

    name = "supcon"
    learns_beside_embedding = False
    projection: Annotated[int, Field(ge=0, le=16_384)] = 0

    def build_state(self) -> nn.Module:
        """The projection network, if there is one."""
        return ProjectionNetwork(self.embedding_size, self.projection) if self.projection else nn.Module()

    def compute(self, outputs: Outputs, labels: Tensor, **_: Any) -> LossValue:
        """Mean of Eq. 2 over the rows; the class centers are not used."""
        embedding = outputs["embedding"]
        z = self.state(embedding) if self.projection else embedding
        return LossValue(info_nce(similarities(z) / self.temperature, positives(labels)).mean())


class ProjectionNetwork(nn.Module):
    """z from embeddings: ``(B, d)`` of any norm to ``(B, size)``, through one hidden layer of size d.

    Biases start at 0: PyTorch's are as large as the products of unit vectors, and all z would start out nearly equal.
    """

    def __init__(self, embedding_size: int, size: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(embedding_size, embedding_size)
        self.output = nn.Linear(embedding_size, size)
        nn.init.zeros_(self.hidden.bias)
        nn.init.zeros_(self.output.bias)

    def forward(self, embedding: Tensor) -> Tensor:
        z: Tensor = self.output(F.relu(self.hidden(F.normalize(embedding))))
        return z


@settings
class Tightness(SupCon):
    """SupCon for the embedding, with a classifier learned from detached embeddings; quality is ‖y‖.

    Aljundi, Patel, Sulc, Olmeda, Chumerin: "Contrastive Classification and Representation Learning with Probabilistic
    Interpretation", AAAI 2023. The prototypes θ_k are the unit class centers:

        L = L_SupCon − mean_i ẑ_i·θ_{y_i}

    The second term moves only the prototypes, each towards the mean direction of its identity, and is not divided by τ.
    With ``projection``, L_SupCon contrasts projections; the prototypes stay those of the embedding, as in the paper.
    """

    name = "tightness"
    needs_centers = True

    def compute(self, outputs: Outputs, labels: Tensor, **options: Any) -> LossValue:
        supcon = super().compute(outputs, labels).total
        tight = tightness(options["centers"].cosines(outputs["embedding"].detach()), labels).mean()
        return LossValue(supcon + tight, {"supcon": supcon.detach(), "tightness": tight.detach()})
