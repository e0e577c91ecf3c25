"""The folder for what was downloaded or measured on this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ADVICE = "set FACERTS_CACHE to a writable folder"


def cache_folder() -> Path:
    """``$FACERTS_CACHE``, or the platform's cache folder."""
    if folder := os.environ.get("FACERTS_CACHE"):
        return Path(folder)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "facerts"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "facerts"
