"""Standard error, for everything that is not a result, and messages on it."""

from __future__ import annotations

from unicodedata import category

from rich.console import Console
from rich.text import Text

stderr = Console(stderr=True)
# Without width, but they neither drive a terminal nor reorder text, and names in Persian or emoji need them.
JOINERS = "\u200c\u200d"


def is_live() -> bool:
    """Whether standard error is a terminal (or a notebook), where what was printed can be replaced."""
    return stderr.is_jupyter or (stderr.is_terminal and not stderr.is_dumb_terminal)


def printable(text: object, *, keep: str = "") -> str:
    r"""Text with control characters as escapes (``\x1b``): names may contain what drives a terminal or hides text.

    Args:
        keep: characters to leave as they are, such as line breaks.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(letter if _is_harmless(letter) or letter in keep else ascii(letter)[1:-1] for letter in text)


def _is_harmless(letter: str) -> bool:
    """Whether a character only shows itself, which Python denies of all spaces but one."""
    return letter.isprintable() or letter in JOINERS or category(letter) == "Zs"


def say(text: object, *, before: str = "", style: str = "") -> None:
    """Print one line, however long, after a word in a style of its own."""
    stderr.print(Text.assemble((before, style), printable(text)), soft_wrap=True)


def warn(text: object) -> None:
    """Print a warning."""
    say(text, before="warning: ", style="yellow")
