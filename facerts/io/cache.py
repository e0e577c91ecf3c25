"""The user's folders: for what was downloaded or measured on this machine, and for settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ADVICE = "set FACERTS_CACHE to a writable folder"
# By kind: the variable that names the folder of all programs, and where it is without it, also on macOS.
_PLACES = {
    "cache": ("XDG_CACHE_HOME", ".cache", "Library/Caches"),
    "config": ("XDG_CONFIG_HOME", ".config", "Library/Application Support"),
}


def cache_folder() -> Path:
    """``$FACERTS_CACHE``, or the platform's cache folder."""
    if folder := os.environ.get("FACERTS_CACHE"):
        return Path(folder)
    return user_folder("cache")


def user_folder(kind: str) -> Path:
    """The folder of facerts for a kind of files, cache or config, where the platform has them."""
    variable, usual, on_macos = _PLACES[kind]
    if sys.platform == "darwin":
        return Path.home() / on_macos / "facerts"
    return Path(os.environ.get(variable) or Path.home() / usual) / "facerts"
