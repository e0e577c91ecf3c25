"""Export from PyTorch to ONNX."""
