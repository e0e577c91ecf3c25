"""``facerts doctor``: which packages are installed, which are missing, and which extra installs them."""

from __future__ import annotations

import platform
from importlib import import_module, metadata
from typing import Any

from facerts.cli.ending import OPTIONAL, install_command
from facerts.cli.output import fields_table, print_json
from facerts.cli.shared_options import Json
from facerts.errors import ModelError
from facerts.version import __version__


def doctor(*, json: Json = False) -> None:
    """Show which packages are installed, which are missing, and how to install them.

    Example: facerts doctor"""
    result = examine()
    print_json(result) if json else fields_table(result)


def examine() -> dict[str, Any]:
    """Versions of installed packages, the providers of ONNX Runtime, and the extras of missing packages."""
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
            imported = import_module(module)
        except ImportError as error:
            installed = any(_version(package) for package in packages)
            state = f"installed, but cannot be imported ({error})" if installed else "missing"
            result[module] = f"{state}: {install_command(module)}"
            continue
        result[module] = next((_version(package) for package in packages if _version(package)), "present")
        if module == "onnxruntime":
            result["providers"] = imported.get_available_providers()
    return result | _default_model()


def _default_model() -> dict[str, str]:
    """The model that is used if none is named, and its terms."""
    from facerts.hub.catalog import catalog_models
    from facerts.hub.find import default_model
    from facerts.hub.registry import shipped_models

    try:
        name = default_model()
        terms = {model.name: model.terms for model in (*catalog_models(), *shipped_models())}
    except ModelError as error:
        return {"default model": str(error)}
    if name is None:
        return {"default model": "none ships with this copy"}
    return {"default model": name, "its terms": terms[name]}


def _version(package: str) -> str:
    """The version of a package; empty if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
