"""A scoring service over HTTP, with a web page; needs the extra ``serve``.

Raises:
    MissingExtraError: where a package of the extra is not installed, when what needs it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from facerts.errors import importing
from facerts.serving.settings import Settings

if TYPE_CHECKING:
    from facerts.serving.app import build
    from facerts.serving.server import listen, serve

__all__ = ["Settings", "build", "listen", "serve"]


def __getattr__(name: str) -> Any:
    """What needs the extra, imported when it is first used; settings are options of a command, and need nothing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with importing("serving needs FastAPI, uvicorn and prometheus-client", "serve"):
        return getattr(import_module(f"{__name__}.{'app' if name == 'build' else 'server'}"), name)
