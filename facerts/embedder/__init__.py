"""Aligned crops to embeddings and quality, through ONNX Runtime."""

from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.embedder.session import OnnxEmbedder, load_embedder

__all__ = ["Embedder", "FaceOutputs", "OnnxEmbedder", "load_embedder"]
