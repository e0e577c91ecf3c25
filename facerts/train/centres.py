"""Class centres and the softmax over them: the one place that knows all identities."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.methods.base import Margin

# Shorter embeddings are not brought to unit length: at length 0 the gradient of that is without bound, and one step
# would throw the weights so far that nothing brings them back. Those of a network in training are longer by far.
SMALLEST_LENGTH = 1e-2


class ClassCentres(nn.Module):
    """One unit class centre per identity, held whole in this process.

    Args:
        identities: C.
        embedding_size: d.

    The centres start as N(0, 0.01²) and are weight-decayed like the rest, as in the field's code.
    """

    def __init__(self, identities: int, embedding_size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(identities, embedding_size))
        nn.init.normal_(self.weight, std=0.01)

    def forward(self, embedding: Tensor, labels: Tensor, margin: Margin, scale: Tensor) -> Tensor:
        """Softmax cross-entropy of each embedding against every centre; see ``methods.base.Centres``.

        In float32 (or wider) even under autocast: cosines near 1 are where margins act.
        """
        with torch.autocast(embedding.device.type, enabled=False):
            cosine = self.cosines(embedding)
            index = labels.unsqueeze(1)
            target = margin(cosine.gather(1, index).squeeze(1))
            # A scalar or one scale per image; a column, so that a row of logits shares it.
            logits = cosine.scatter(1, index, target.unsqueeze(1)) * scale.reshape(-1, 1)
            return F.cross_entropy(logits, labels, reduction="none")

    def cosines(self, embedding: Tensor) -> Tensor:
        """``(B, C)`` cosine of each embedding to every centre, in float32 (or wider) even under autocast."""
        with torch.autocast(embedding.device.type, enabled=False):
            return F.linear(F.normalize(embedding, eps=SMALLEST_LENGTH), F.normalize(self.weight))

    def own_and_nearest(self, embedding: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine to the own centre, and the largest to another; see ``methods.base.Centres``."""
        cosine, index = self.cosines(embedding), labels.unsqueeze(1)
        return cosine.gather(1, index).squeeze(1), cosine.scatter(1, index, -2.0).amax(dim=1)
