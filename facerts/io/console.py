"""Standard error, for everything that is not a result, and messages on it."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

stderr = Console(stderr=True)


def is_live() -> bool:
    """Whether standard error is a terminal (or a notebook), where what was printed can be replaced."""
    return stderr.is_jupyter or (stderr.is_terminal and not stderr.is_dumb_terminal)


def printable(text: object) -> str:
    """Text without control characters, which file names may contain."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in str(text))


def say(text: object, *, before: str = "") -> None:
    """Print one line, however long; brackets in the text are not markup."""
    stderr.print(before + escape(printable(text)), highlight=False, soft_wrap=True)


def warn(text: object) -> None:
    """Print a warning."""
    say(text, before="[yellow]warning:[/yellow] ")
