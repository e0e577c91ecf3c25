"""An embedder on a benchmark gives a result."""

from facerts.evaluate.embed import embed_source
from facerts.evaluate.verification import evaluate_verification

__all__ = ["embed_source", "evaluate_verification"]
