"""Moved to ``facerts.integrations.insightface``; importing it from here is deprecated."""

import warnings

from facerts.integrations.insightface import Face, FaceAnalysis, add_quality

warnings.warn(
    "facerts.insightface has moved to facerts.integrations.insightface", DeprecationWarning, stacklevel=2
)

__all__ = ["Face", "FaceAnalysis", "add_quality"]
