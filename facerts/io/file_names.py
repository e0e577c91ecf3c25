"""Names of files and folders, made from names in data: of a member of a tar file, of a person."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePath

# File systems allow 255 bytes; the rest is for what is added: a number, a suffix, the affixes of a temporary file.
MAX_NAME_BYTES = 220
# Of a path below a folder that the user chose; systems allow at least 1,024 bytes for the whole, and Linux 4,096.
MAX_PATH_BYTES = 800
MAX_PARTS = 20
MAX_SUFFIX_BYTES = 10
HASH_DIGITS = 12

# Characters that no name can have: separators, NUL, and surrogates that do not stand for a byte of a file's name.
_IMPOSSIBLE = re.compile("[/\0\ud800-\udc7f\udd00-\udfff]")


def safe_name(name: str) -> str:
    """A name that a file or folder can have, inside the folder that it is put in.

    Nearly all names are kept. One that is too long or impossible is shortened or changed, and gets a hash of the whole
    before its suffix, so that different names stay different.

    Examples:
        >>> safe_name("Ann.jpg")
        'Ann.jpg'
        >>> safe_name("Ann/Bea.jpg")
        'Ann_Bea~0104c118e8f3.jpg'
    """
    possible = _IMPOSSIBLE.sub("_", name)
    if possible == name and name not in ("", ".", "..") and len(os.fsencode(name)) <= MAX_NAME_BYTES:
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:HASH_DIGITS]
    suffix = PurePath(possible).suffix
    if len(os.fsencode(suffix)) > MAX_SUFFIX_BYTES:
        suffix = ""
    room = MAX_NAME_BYTES - HASH_DIGITS - 1 - len(os.fsencode(suffix))
    stem = os.fsencode(possible.removesuffix(suffix))[:room].decode("utf-8", "ignore")
    return f"{stem}~{digest}{suffix}"


def safe_path(parts: Sequence[str]) -> Path:
    """A relative path of one or more safe names; the folders of one that is too long or deep become one folder."""
    path = Path(*map(safe_name, parts))
    if len(parts) <= MAX_PARTS and len(os.fsencode(path)) <= MAX_PATH_BYTES:
        return path
    return Path(safe_name("/".join(parts[:-1])), path.name)
