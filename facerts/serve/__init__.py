"""A scoring service for HTTP, with a page for people; needs the extra ``serve``."""

from facerts.serve.run import build, listen, serve
from facerts.serve.settings import Settings

__all__ = ["Settings", "build", "listen", "serve"]
