"""Text for spreadsheet cells: file names may look like formulas and must not be evaluated.

OWASP, "CSV Injection": a cell that begins with one of certain characters gets a leading quote.
"""

from __future__ import annotations

QUOTE = "'"
# Characters that start a formula in spreadsheets, some also in full width.
FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


def to_cell(text: str) -> str:
    """Text as a cell that is not a formula; ``from_cell`` reverses it."""
    return QUOTE + text if text.startswith((QUOTE, *FORMULA_PREFIXES)) else text


def from_cell(cell: str) -> str:
    """The text of a cell written by ``to_cell``."""
    return cell.removeprefix(QUOTE)
