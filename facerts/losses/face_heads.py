"""Outputs beside a method's: whether an image shows a face at all, and whether something covers the face.

Both are logits, learned from the trunk's features by binary cross-entropy. A poor face is still a face: everything but
``data.non_faces`` counts as one, however it is changed. What covers a face is known from how its view was made
(``facerts.images.changes``); where that does not say, the image does not count.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from facerts.nn.twin_heads import FaceNetwork, FeatureHead, HeadSpec

NOT_A_FACE, COVERED = "not_a_face", "covered"
FACE_HEADS = {NOT_A_FACE: HeadSpec(1, hidden=64), COVERED: HeadSpec(1, hidden=32)}
# Labels of images without identity: a face of an unknown person, and no face.
UNKNOWN, NON_FACE = -1, -2
# Of ``covered``: where it is not known.
UNCLEAR = -1
# Faces of a forward pass that calibrates.
BATCH = 256


# Of held-out faces, changed as in training, the share that may be called no face, and of those that nothing covers, the
# share that may be called covered.
ALARMS = {NOT_A_FACE: 0.005, COVERED: 0.002}


@torch.no_grad()
def calibrate_face_heads(network: FaceNetwork, images: Tensor, covered: Tensor) -> None:
    """Shift both outputs so that 0 is the cutoff at which these faces have the share ``ALARMS`` of false alarms.

    Faces are ``(N, 3, 112, 112)``, as the network takes them; ``covered`` ``(N,) int64`` is 1, 0 or ``UNCLEAR``.
    """
    outputs = [network(images[start : start + BATCH]) for start in range(0, len(images), BATCH)]
    for name, faces in ((NOT_A_FACE, slice(None)), (COVERED, covered == 0)):
        logits = torch.cat([each[name].squeeze(1) for each in outputs])[faces]
        head = network.heads[name]
        assert isinstance(head, FeatureHead)
        last = head[-1]
        assert isinstance(last, nn.Linear)
        last.bias.sub_(torch.quantile(logits, 1 - ALARMS[name]))


def face_losses(outputs: dict[str, Tensor], labels: Tensor, covered: Tensor) -> dict[str, Tensor]:
    """The mean loss of each head, scalars, from ``(B, 1)`` logits.

    Of labels ``(B,) int64`` only ``NON_FACE`` matters; ``covered`` ``(B,) int64`` is 1, 0 or ``UNCLEAR``.
    """
    non_face = labels == NON_FACE
    known = ((covered != UNCLEAR) & ~non_face).float()
    covering = F.binary_cross_entropy_with_logits(outputs[COVERED].squeeze(1), (covered == 1).float(), reduction="none")
    return {
        NOT_A_FACE: F.binary_cross_entropy_with_logits(outputs[NOT_A_FACE].squeeze(1), non_face.float()),
        COVERED: (covering * known).sum() / torch.clamp_min(known.sum(), 1.0),
    }
