"""Training methods, one file each; the registry is a plain dict."""

from __future__ import annotations

from facerts.methods.arcface import ArcFace
from facerts.methods.base import Batch, ClassificationMethod, Loss, Method, MethodConfig
from facerts.methods.rts import RTS

__all__ = ["METHODS", "Batch", "ClassificationMethod", "Loss", "Method", "MethodConfig"]

METHODS: dict[str, type[Method]] = {method.name: method for method in (ArcFace, RTS)}
