"""ONNX files from ONNX files, without PyTorch."""
