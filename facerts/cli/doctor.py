"""``facerts doctor``: what is installed, what is missing, and which extra brings it."""

from __future__ import annotations

import platform
from importlib import import_module, metadata
from typing import Any

import typer

from facerts.cli.extras import OPTIONAL, advice
from facerts.cli.options import Json
from facerts.cli.output import fields_table, print_json
from facerts.version import __version__


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
    for module, (packages, _) in OPTIONAL.items():
        try:
            found = import_module(module)
        except ImportError as error:
            there = any(_installed(package) for package in packages)
            state = f"installed, but cannot be imported ({error})" if there else "missing"
            result[module] = f"{state}: {advice(module)}"
            continue
        result[module] = next((_installed(package) for package in packages if _installed(package)), "present")
        if module == "onnxruntime":
            result["providers"] = found.get_available_providers()
    return result


def _installed(package: str) -> str:
    """The package's version, or nothing."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
