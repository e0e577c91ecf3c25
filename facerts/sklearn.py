"""Moved to ``facerts.integrations.sklearn``; importing it from here is deprecated."""

import warnings

from facerts.integrations.sklearn import FaceEmbedder

warnings.warn("facerts.sklearn has moved to facerts.integrations.sklearn", DeprecationWarning, stacklevel=2)

__all__ = ["FaceEmbedder"]
