"""Aligned crops to embeddings and quality, through ONNX Runtime; or a table of those computed elsewhere."""

from facerts.embedder.description import read_description
from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.embedder.quality import OnnxQuality, load_quality
from facerts.embedder.session import OnnxEmbedder, OnnxModel, load_embedder
from facerts.embedder.table import EmbeddingTable, load_table

__all__ = [
    "Embedder",
    "EmbeddingTable",
    "FaceOutputs",
    "OnnxEmbedder",
    "OnnxModel",
    "OnnxQuality",
    "load_embedder",
    "load_quality",
    "load_table",
    "read_description",
]
