"""Face recognition that knows how much to trust each face.

scorer = facerts.load("model.onnx")
for face in scorer.faces("photo.jpg"):
    print(face.box, face.percentile, face.reasons)
print(scorer.verify("a.jpg", "b.jpg").decision)
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from facerts.version import __version__

if TYPE_CHECKING:
    from facerts.detection import Detector
    from facerts.embedding import Embedder, FaceOutputs
    from facerts.errors import Error
    from facerts.galleries import Gallery
    from facerts.scoring import Face, Quality, Recognizer, Row, Scorer, Track, Verification, annotate, load
    from facerts.scoring.scorer import verify

__all__ = [
    "Detector",
    "Embedder",
    "Error",
    "Face",
    "FaceOutputs",
    "Gallery",
    "Quality",
    "Recognizer",
    "Row",
    "Scorer",
    "Track",
    "Verification",
    "__version__",
    "annotate",
    "load",
    "verify",
]

# Before ONNX Runtime is imported, which would otherwise keep an identifier of this machine and report its use.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

# Imported when they are first used: every command imports this package, and few need NumPy and OpenCV to print a help.
_ELSEWHERE = {
    "Detector": "facerts.detection",
    "Embedder": "facerts.embedding",
    "Error": "facerts.errors",
    "FaceOutputs": "facerts.embedding",
    "Gallery": "facerts.galleries",
    "verify": "facerts.scoring.scorer",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_ELSEWHERE.get(name, "facerts.scoring")), name)
    return value


def __dir__() -> list[str]:
    return __all__
