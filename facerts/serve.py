"""Moved to ``facerts.serving``; importing it from here is deprecated."""

import warnings

from facerts.serving import Settings, build, listen, serve

warnings.warn("facerts.serve has moved to facerts.serving", DeprecationWarning, stacklevel=2)

__all__ = ["Settings", "build", "listen", "serve"]
