"""Training methods, one file each; the registry is a plain dict."""

from __future__ import annotations

from facerts.training.methods.adaface import AdaFace
from facerts.training.methods.arcface import ArcFace
from facerts.training.methods.cosface import CosFace
from facerts.training.methods.crfiqa import CRFIQA
from facerts.training.methods.dul import DUL
from facerts.training.methods.esupcon import ESupCon
from facerts.training.methods.godin import GODIN
from facerts.training.methods.magface import MagFace
from facerts.training.methods.method import Batch, ClassificationMethod, Loss, Method, MethodConfig
from facerts.training.methods.pfe import PFE
from facerts.training.methods.relaxed_softmax import RelaxedSoftmax
from facerts.training.methods.rts import RTS
from facerts.training.methods.spce import SPCE
from facerts.training.methods.supcon import SupCon
from facerts.training.methods.tau import TaU
from facerts.training.methods.tempnet import TempNet
from facerts.training.methods.tightness import Tightness

__all__ = ["METHODS", "Batch", "ClassificationMethod", "Loss", "Method", "MethodConfig"]

METHODS: dict[str, type[Method]] = {
    method.name: method
    for method in (
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
