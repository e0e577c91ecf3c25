"""Generalized ODIN: logits decomposed into a quotient.

Hsu, Shen, Jin, Kira: "Generalized ODIN: Detecting Out-of-distribution Image without Learning from
Out-of-distribution Data", CVPR 2020.

The logits are a quotient of class scores h_j(x) and one number g(x) for the image:

    f_j(x) = h_j(x) / g(x),   g(x) = σ(BN(w·x + b)) in (0, 1)
    L = CE(s' / g)                                            h_j are here the ArcFace logits s'

At inference g alone is the score; quality is log(g/(1 − g)) with a sign, which orders faces as g does but keeps
apart what a sigmoid in float32 makes equal. The paper moves the input a little before it is scored, towards a higher
score; that needs gradients, which an exported file does not have: see ``classifier.perturb``.
"""

from __future__ import annotations

from torch import Tensor

from facerts.training.methods.base import (
    Batch,
    ClassificationMethod,
    ImageTerms,
    MarginConfig,
    Outputs,
    unit_embedding,
)
from facerts.training.nn.heads import HeadSpec

# A sigmoid may come out as 0 in float32, and the logits are divided by it.
SMALLEST_DIVISOR = 1e-4

# S = DIRECTION · log(g/(1 − g)). The paper leaves open which way g points for margin logits. The sign follows the loss,
# which favors a small g (sharp logits) where the right identity wins, and heads on a finished embedder agree; networks
# that are far from convergence may not: docs/decisions/0008.
DIRECTION = -1.0


def divisor(x: Tensor) -> Tensor:
    """g = σ(x): ``(B, 1)`` to ``(B,)``, in (0, 1)."""
    return x.squeeze(1).sigmoid().clamp_min(SMALLEST_DIVISOR)


class GODIN(ClassificationMethod):
    """ArcFace logits divided by a number in (0, 1) that the network predicts; quality is ± that number's log-odds."""

    name = "godin"
    Config = MarginConfig

    def heads(self) -> dict[str, HeadSpec]:
        return {"divisor": HeadSpec(1, batch_norm=True)}

    def image_terms(self, outputs: Outputs, batch: Batch) -> ImageTerms:
        g = divisor(outputs["divisor"])
        return ImageTerms(outputs["embedding"], temperature=g, per_image={"g": g.detach()})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        x = outputs["divisor"]
        return {
            **unit_embedding(outputs),
            "quality": DIRECTION * x.squeeze(1),
            "uncertainty": -DIRECTION * divisor(x),
        }
