"""facerts in the browser: a folder for any web server, with a page and an ES module that send nothing anywhere."""

from __future__ import annotations

from facerts.web.site import write_site

__all__ = ["write_site"]
