"""Which rows of a file belong to which images: a row names an image by its key, or by a path that ends with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

Parts = tuple[str, ...]


def name_parts(name: str) -> Parts:
    """The components of a path, with slashes or backslashes."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def rows_of_images(names: Sequence[Parts], keys: Sequence[str]) -> list[list[int]]:
    """The rows of each image: those named by its key, or else those whose names end with it.

    Endings are compared path component by path component: ``/data/lfw/Ann/Ann_0001.jpg`` is ``Ann/Ann_0001.jpg``. A row
    that ends with several keys belongs to the longest of them. Names are in components, see ``name_parts``.

    Examples:
        >>> rows_of_images([name_parts(name) for name in ("/lfw/Ann/1.jpg", "2.jpg")], ["2.jpg", "Ann/1.jpg", "3.jpg"])
        [[1], [0], []]
    """
    key_parts = [name_parts(key) for key in keys]
    named = defaultdict(list)
    for row, name in enumerate(names):
        named[name].append(row)
    ending = _rows_by_ending(names, key_parts)
    return [named.get(parts) or ending.get(parts, []) for parts in key_parts]


def _rows_by_ending(names: Sequence[Parts], keys: Sequence[Parts]) -> dict[Parts, list[int]]:
    wanted = set(keys)
    depths = sorted({len(key) for key in wanted}, reverse=True)
    rows = defaultdict(list)
    for row, name in enumerate(names):
        endings = (name[-depth:] for depth in depths if depth <= len(name))
        ending = next((ending for ending in endings if ending in wanted), None)
        if ending is not None:
            rows[ending].append(row)
    return rows
