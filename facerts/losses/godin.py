"""Generalized ODIN: logits as a quotient of class scores and one score of the image.

Hsu, Shen, Jin, Kira: "Generalized ODIN: Detecting Out-of-distribution Image without Learning from
Out-of-distribution Data", CVPR 2020.

Class scores h_j(x) are divided by one number g(x) per image:

    f_j(x) = h_j(x) / g(x),   g(x) = σ(BN(w·x + b)) in (0, 1)
    L = CE(s' / g)                                            the h_j are the ArcFace logits s'

At inference g alone is the score. The quality is −log(g/(1 − g)), which ranks faces as g does but does not saturate
in float32 as the sigmoid does. The paper leaves the direction of g open for logits with a margin. The sign follows the
loss, which favors a small g (sharp logits) where the right identity wins. Heads trained on a converged embedder agree
with it; networks far from convergence may not: docs/decisions/index.md.

The paper also perturbs the input towards a higher score before scoring. That needs gradients, which an exported file
does not have; see ``classifier_scores.odin``.
"""

from __future__ import annotations

from torch import Tensor

from facerts.losses.face_loss import ArcMarginLoss, ImageTerms, Noise, Outputs, settings
from facerts.nn.twin_heads import HeadSpec

# The logits are divided by a sigmoid, which can underflow to 0 in float32.
MIN_DIVISOR = 1e-4


def divisor(x: Tensor) -> Tensor:
    """g = σ(x): ``(B, 1)`` to ``(B,)``, in (0, 1)."""
    return x.squeeze(1).sigmoid().clamp_min(MIN_DIVISOR)


@settings
class GODIN(ArcMarginLoss):
    """ArcFace logits divided by a predicted g in (0, 1); quality is minus the log-odds of g."""

    name = "godin"

    def heads(self) -> dict[str, HeadSpec]:
        return {"divisor": HeadSpec(1, batch_norm=True)}

    def image_terms(self, outputs: Outputs, noise: Noise) -> ImageTerms:
        g = divisor(outputs["divisor"])
        return ImageTerms(outputs["embedding"], temperature=g, per_image={"g": g.detach()})

    def score(self, outputs: Outputs) -> dict[str, Tensor]:
        x = outputs["divisor"]
        return self.scored(outputs, quality=-x.squeeze(1), uncertainty=divisor(x))
