"""``facerts doctor``: what is installed, what is missing, and which extra brings it."""

from __future__ import annotations

import platform
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import typer

from facerts.cli.options import Json
from facerts.cli.output import fields_table, print_json
from facerts.version import __version__

# Importable name, name on the package index, extra.
OPTIONAL = (
    ("onnxruntime", ("onnxruntime", "onnxruntime-gpu"), "cpu or gpu"),
    ("pyarrow", ("pyarrow",), "parquet"),
    ("matplotlib", ("matplotlib",), "report"),
    ("jinja2", ("jinja2",), "report"),
    ("torch", ("torch",), "train"),
    ("albumentations", ("albumentations",), "train"),
    ("onnx", ("onnx",), "train"),
    ("onnxscript", ("onnxscript",), "train"),
    ("tensorboard", ("tensorboard",), "train"),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(doctor)


def doctor(json: Json = False) -> None:
    """Say what is installed, what is missing and how to get it.

    Example: facerts doctor
    """
    result = examine()
    print_json(result) if json else fields_table(result)


def examine() -> dict[str, Any]:
    """Versions of what is there, ONNX Runtime's providers, and the extra for what is not."""
    import cv2
    import numpy

    result: dict[str, Any] = {
        "facerts": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "opencv": cv2.__version__,
    }
    for module, packages, extra in OPTIONAL:
        if find_spec(module) is None:
            result[module] = f"missing: pip install 'facerts[{extra}]'"
        else:
            result[module] = _version(packages)
    if find_spec("onnxruntime") is not None:
        import onnxruntime

        result["providers"] = onnxruntime.get_available_providers()
    return result


def _version(packages: tuple[str, ...]) -> str:
    for package in packages:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return "present"
