"""Training methods, one file each; the registry is a plain dict."""

from __future__ import annotations

from facerts.methods.adaface import AdaFace
from facerts.methods.arcface import ArcFace
from facerts.methods.base import Batch, ClassificationMethod, Loss, Method, MethodConfig
from facerts.methods.cosface import CosFace
from facerts.methods.crfiqa import CRFIQA
from facerts.methods.dul import DUL
from facerts.methods.esupcon import ESupCon
from facerts.methods.godin import GODIN
from facerts.methods.magface import MagFace
from facerts.methods.pfe import PFE
from facerts.methods.relaxed_softmax import RelaxedSoftmax
from facerts.methods.rts import RTS
from facerts.methods.spce import SPCE
from facerts.methods.supcon import SupCon
from facerts.methods.tau import TaU
from facerts.methods.tempnet import TempNet
from facerts.methods.tightness import Tightness

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
