"""Optional packages, and the extras that install them."""

from __future__ import annotations

# Module name: (names on the package index, extra).
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


def install_command(module: str) -> str:
    """The command that installs a missing module; empty if no extra of facerts does."""
    root = module.split(".")[0]
    return f"pip install 'facerts[{OPTIONAL[root][1]}]'" if root in OPTIONAL else ""
