"""Templates of pages and the files that belong to them; text is escaped wherever it comes from."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

from facerts.errors import MissingExtraError
from facerts.io.console import printable

if TYPE_CHECKING:
    from jinja2 import Template

PAGES_EXTRA = "pages need Jinja: pip install 'facerts[report]'"


def open_template(name: str) -> Template:
    """A template of this package; needs Jinja."""
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtraError(PAGES_EXTRA) from error
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource),
        autoescape=True,
        # Controls of direction would reorder the page's own words.
        finalize=lambda value: value if isinstance(value, Markup) else printable(value, keep="\n"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def resource(name: str) -> str:
    """The text of a file of this package."""
    return resources.files("facerts.report").joinpath(name).read_text(encoding="utf-8")
