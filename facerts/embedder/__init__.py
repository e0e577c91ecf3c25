"""Aligned crops to embeddings and quality, through ONNX Runtime; or a table of those computed elsewhere."""

from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.embedder.session import OnnxEmbedder, load_embedder
from facerts.embedder.table import EmbeddingTable, load_table

__all__ = ["Embedder", "EmbeddingTable", "FaceOutputs", "OnnxEmbedder", "load_embedder", "load_table"]
