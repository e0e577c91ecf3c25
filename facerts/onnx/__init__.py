"""ONNX files and sessions without PyTorch: what a model says of itself, and how it is run."""
