"""An embedder on a benchmark gives a result."""

from facerts.embedding.embed import embed_source
from facerts.evaluation.verification import evaluate_verification

__all__ = ["embed_source", "evaluate_verification"]
