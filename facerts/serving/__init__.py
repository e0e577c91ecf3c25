"""A scoring service over HTTP, with a web page; needs the extra ``serve``.

Raises:
    MissingExtraError: on import, where a package of the extra is not installed.
"""

from facerts.errors import MissingExtraError

try:
    from facerts.serving.app import build
    from facerts.serving.server import listen, serve
except ModuleNotFoundError as error:
    raise MissingExtraError(
        f"serving needs {error.name}, which is not installed: pip install 'facerts[serve]'"
    ) from error
from facerts.serving.settings import Settings

__all__ = ["Settings", "build", "listen", "serve"]
