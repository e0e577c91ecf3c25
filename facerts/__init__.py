"""Face recognition that knows how much to trust each face.

scorer = facerts.load("model.onnx")
for row in scorer.score(["a.jpg", "b.jpg"]):
    print(row.path, row.quality, row.error)
"""

from facerts.embedding import Embedder, FaceOutputs
from facerts.errors import Error
from facerts.scoring import Row, Scorer, load
from facerts.version import __version__

__all__ = ["Embedder", "Error", "FaceOutputs", "Row", "Scorer", "__version__", "load"]
