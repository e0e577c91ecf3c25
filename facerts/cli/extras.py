"""Optional packages, and the extra that brings each."""

from __future__ import annotations

# Importable name: (names on the package index, extra).
OPTIONAL: dict[str, tuple[tuple[str, ...], str]] = {
    "onnxruntime": (("onnxruntime", "onnxruntime-gpu"), "cpu or gpu"),
    "pyarrow": (("pyarrow",), "parquet"),
    "faiss": (("faiss-cpu",), "faiss"),
    "ray": (("ray",), "ray"),
    "matplotlib": (("matplotlib",), "report"),
    "jinja2": (("jinja2",), "report"),
    "sklearn": (("scikit-learn",), "sklearn"),
    "torch": (("torch",), "train"),
    "albumentations": (("albumentations",), "train"),
    "onnx": (("onnx",), "train"),
    "onnxscript": (("onnxscript",), "train"),
    "tensorboard": (("tensorboard",), "train"),
    "fastapi": (("fastapi",), "serve"),
    "uvicorn": (("uvicorn",), "serve"),
    "prometheus_client": (("prometheus-client",), "serve"),
}


def advice(module: str) -> str:
    """How to install a missing module, or nothing for one that is not ours to install."""
    root = module.split(".")[0]
    return f"pip install 'facerts[{OPTIONAL[root][1]}]'" if root in OPTIONAL else ""
