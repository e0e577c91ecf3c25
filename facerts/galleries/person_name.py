"""What a person may be called: one form of each name, wherever people are enrolled, named, stored or looked for."""

from __future__ import annotations

import re
from unicodedata import category, normalize

from facerts.errors import Error
from facerts.io.console import printable

MAX_NAME = 200
# Fillers of Hangul, the empty pattern of Braille, the null notehead: letters and signs of which nothing is to be seen.
_BLANK = "\u115f\u1160\u2800\u3164\uffa0\U0001d159"
# What galleries and the page call people without a name, and what commands call one who is not there.
_RESERVED = re.compile(r"(person[\W_]*)?\d+|new|nobody")


def normal_name(name: str) -> str:
    """The form in which a name is kept and looked for: Unicode's NFC, without spaces around it."""
    return normalize("NFC", name).strip()


def person_name(name: str, *, numbered: bool = False) -> str:
    """A name in its normal form; it may not look like a number where people without a name are ``numbered``."""
    name = normal_name(name)
    shown = printable(name[:MAX_NAME])
    if not name:
        raise Error("a name must not be empty")
    if len(name) > MAX_NAME:
        raise Error(f"the name {shown}… is too long: {len(name):,} letters, where {MAX_NAME} is the limit")
    if shown != name:
        raise Error(f"the name {shown} must not have control characters or undecodable ones")
    if not any(map(_is_seen, name)):
        raise Error(f"the name {name!a} must have a letter that can be seen")
    folded = "".join(filter(_is_seen, normalize("NFKC", name).casefold()))
    if numbered and _RESERVED.fullmatch(folded):
        raise Error(f"the name {name} would be taken for a person's number, a new person or nobody; give another")
    return name


def _is_seen(letter: str) -> bool:
    """Whether a letter, digit, sign or symbol shows itself, which spaces, joiners and marks alone do not."""
    return category(letter)[0] in "LNPS" and letter not in _BLANK
