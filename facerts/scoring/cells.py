"""Text in cells that a spreadsheet opens: names of files may be formulas, and must not be computed.

OWASP, "CSV Injection": cells that begin with certain characters get a quote mark before them.
"""

from __future__ import annotations

QUOTE = "'"
# What spreadsheets take for the beginning of a formula, some of them in full width too.
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def to_cell(text: str) -> str:
    """Text as a cell that is no formula; ``from_cell`` gives it back as it was."""
    return QUOTE + text if text.startswith((QUOTE, *FORMULA)) else text


def from_cell(cell: str) -> str:
    """The text of a cell that ``to_cell`` made."""
    return cell.removeprefix(QUOTE)
