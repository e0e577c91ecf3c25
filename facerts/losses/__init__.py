"""Losses for face recognition as PyTorch modules, one file each; the recipes run the same ones.

from facerts.losses import RTS

loss = RTS(num_classes=10_575, embedding_size=512)
loss((embedding, log_scale), labels).backward()
"""

from __future__ import annotations

from facerts.losses.adaface import AdaFace
from facerts.losses.arcface import ArcFace
from facerts.losses.cosface import CosFace
from facerts.losses.crfiqa import CRFIQA
from facerts.losses.dul import DUL
from facerts.losses.esupcon import ESupCon
from facerts.losses.face_loss import ClassificationLoss, FaceLoss, LossValue
from facerts.losses.godin import GODIN
from facerts.losses.magface import MagFace
from facerts.losses.partial_fc import PartialFC
from facerts.losses.pfe import PFE
from facerts.losses.relaxed_softmax import RelaxedSoftmax
from facerts.losses.rts import RTS
from facerts.losses.spce import SPCE
from facerts.losses.supcon import SupCon, Tightness
from facerts.losses.tau import TaU
from facerts.losses.tempnet import TempNet

# By their names in recipes.
LOSSES: dict[str, type[FaceLoss]] = {
    loss.name: loss
    for loss in (
        ArcFace,
        RTS,
        CosFace,
        MagFace,
        AdaFace,
        CRFIQA,
        SupCon,
        ESupCon,
        Tightness,
        SPCE,
        TaU,
        DUL,
        GODIN,
        PFE,
        RelaxedSoftmax,
        TempNet,
    )
}

__all__ = [
    "CRFIQA",
    "DUL",
    "GODIN",
    "LOSSES",
    "PFE",
    "RTS",
    "SPCE",
    "AdaFace",
    "ArcFace",
    "ClassificationLoss",
    "CosFace",
    "ESupCon",
    "FaceLoss",
    "LossValue",
    "MagFace",
    "PartialFC",
    "RelaxedSoftmax",
    "SupCon",
    "TaU",
    "TempNet",
    "Tightness",
]
