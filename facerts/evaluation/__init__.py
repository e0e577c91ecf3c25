"""An embedder on a benchmark gives a result."""

from facerts.embedding.embed import embed_source
from facerts.evaluation.pair_verification import evaluate_verification

__all__ = ["embed_source", "evaluate_verification"]
