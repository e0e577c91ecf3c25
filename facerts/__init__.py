"""Face recognition that knows how far to trust each face."""

from facerts.errors import Error
from facerts.version import __version__

__all__ = ["Error", "__version__"]
