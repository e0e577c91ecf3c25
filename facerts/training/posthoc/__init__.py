"""Quality for a trained embedder: heads on its outputs, grafted onto its ONNX graph."""

from facerts.training.posthoc.posthoc_quality import GraftResult, add_quality
from facerts.training.posthoc.train_heads import HeadSettings

__all__ = ["GraftResult", "HeadSettings", "add_quality"]
