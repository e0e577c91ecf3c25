"""The pages: files of the package that need nothing from anywhere else, and say so to the browser."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from importlib import resources


@dataclass(frozen=True)
class Page:
    """A page.

    Attributes:
        html: of it.
        policy: the Content-Security-Policy under which its own style and script run, and nobody else's.
    """

    html: str
    policy: str


def load_page(name: str) -> Page:
    """A page of this package."""
    html = resources.files("facerts.serve").joinpath(name).read_text(encoding="utf-8")
    policy = {
        "default-src": "'none'",
        "style-src": _hashes(html, "style"),
        "script-src": _hashes(html, "script"),
        "connect-src": "'self'",
        # Pictures that the browser itself has read, and the icon.
        "img-src": "blob: data:",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return Page(html, "; ".join(f"{directive} {sources}" for directive, sources in policy.items()))


def _hashes(html: str, tag: str) -> str:
    """Of the text of each element, as the browser computes them."""
    texts = re.findall(rf"<{tag}>(.*?)</{tag}>", html, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in texts]
    return " ".join(f"'sha256-{value}'" for value in hashes)
