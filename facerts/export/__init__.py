"""Convert ONNX files to other ONNX files, without PyTorch."""
