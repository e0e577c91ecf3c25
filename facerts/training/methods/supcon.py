"""SupCon: supervised contrastive learning.

Khosla, Teterwak, Wang, Sarna, Tian, Isola, Maschinot, Liu, Krishnan: "Supervised Contrastive Learning",
NeurIPS 2020, L_out (Eq. 2). With s_ij = ẑ_i·ẑ_j, i over all views of all images and P_i the other rows of i's identity:

    L = (1/2N) Σ_i −(1/|P_i|) Σ_{p∈P_i} log [exp(s_ip/τ) / Σ_{k≠i} exp(s_ik/τ)]
    z = W₂ σ(W₁ ŷ + b₁) + b₂,   σ ReLU, the projection network on the unit embedding ŷ; without it z = y

The loss is the mean over the rows; the paper has their sum. The projection network serves the loss alone, and is thrown
away afterwards: the exported embedding is y. By default there is none, and embeddings are compared directly.

It learns no uncertainty of its own; the norm of the embedding serves as quality.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.training.methods.contrastive import info_nce, positives, similarities
from facerts.training.methods.method import Batch, Centers, Loss, Method, MethodConfig, Outputs


class ContrastConfig(MethodConfig):
    """Settings of the methods that contrast the identities of a batch; ``temperature`` is τ, 0.1 in the paper."""

    temperature: float = Field(0.1, gt=0)


class SupConConfig(ContrastConfig):
    """Settings of SupCon; ``projection`` is the number of the projection network's outputs, 0 for none (paper: 128)."""

    projection: int = Field(0, ge=0, le=16_384)


class IdentityContrast(Method):
    """Base of the methods that contrast the identities of a batch: two views of several images per identity."""

    views = 2
    sampler = "identities"


class SupCon(IdentityContrast):
    """Contrasts each row with the batch; the identity's other rows are positives (Eq. 2). Quality is ‖y‖."""

    name = "supcon"
    Config = SupConConfig
    learns_beside_embedding = False

    def __init__(self, config: MethodConfig, embedding_size: int = 512) -> None:
        super().__init__(config, embedding_size)
        if self.config.projection:
            self.state = ProjectionNetwork(embedding_size, self.config.projection)

    def loss(self, outputs: Outputs, batch: Batch, centers: Centers) -> Loss:
        """Mean of Eq. 2 over the rows; the class centers are not used."""
        embedding = outputs["embedding"]
        z = self.state(embedding) if self.config.projection else embedding
        logits = similarities(z) / self.config.temperature
        return Loss(info_nce(logits, positives(batch.labels)).mean())


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
