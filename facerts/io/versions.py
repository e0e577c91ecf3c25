"""Versions of Python, facerts and the packages that results depend on."""

from __future__ import annotations

import platform
from importlib import metadata

_VERSIONED = ("facerts", "numpy", "onnxruntime", "onnxruntime-gpu", "opencv-python-headless")


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that results may depend on, by name."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # usually only one of the ONNX Runtime packages is installed
            continue
    return versions
