"""Help texts: the descriptions in the docstrings of commands and settings."""

from __future__ import annotations

import re

_SECTION = re.compile(r"\n\n(?:Args|Attributes):\n(?=    )")


def read_docstring(docstring: str) -> tuple[str, dict[str, str]]:
    """The text of a clean docstring without the section of its parameters, and their descriptions by name."""
    text, *sections = _SECTION.split(docstring)
    entries = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", "".join(sections), flags=re.MULTILINE)
    return text, {name: " ".join(description.split()) for name, description in entries}
