"""ONNX files and sessions without PyTorch: model descriptions, metadata, model packs and inference."""
