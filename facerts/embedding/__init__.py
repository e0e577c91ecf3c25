"""Aligned crops to embeddings and quality, through ONNX Runtime or from a table computed elsewhere."""

from facerts.embedding.embedding_table import EmbeddingTable, load_table
from facerts.embedding.onnx_embedder import OnnxEmbedder, OnnxModel, OnnxQuality, load_embedder
from facerts.embedding.outputs import Embedder, FaceOutputs
from facerts.onnx.contract import read_description

__all__ = [
    "Embedder",
    "EmbeddingTable",
    "FaceOutputs",
    "OnnxEmbedder",
    "OnnxModel",
    "OnnxQuality",
    "load_embedder",
    "load_table",
    "read_description",
]
