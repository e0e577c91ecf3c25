"""Versions of what computes: Python, facerts, and the packages that numbers depend on."""

from __future__ import annotations

import platform
from importlib import metadata

_VERSIONED = ("facerts", "numpy", "onnxruntime", "onnxruntime-gpu", "opencv-python-headless")


def installed_versions() -> dict[str, str]:
    """Versions that a number may depend on."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # one of the ONNX Runtimes is never there
            continue
    return versions
