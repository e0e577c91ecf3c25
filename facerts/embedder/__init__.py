"""Aligned crops to embeddings and quality, through ONNX Runtime."""
