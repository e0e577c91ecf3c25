"""Writes the tutorial of the losses as a notebook, from its page: docs/tutorials/losses.ipynb.

python tools/docs_notebook.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

PAGE = Path(__file__).parents[1] / "docs" / "tutorials" / "losses.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")


def notebook(page: str) -> str:
    """A notebook whose code cells are the Python blocks of a page, and whose text is the rest."""
    cells = []
    for number, part in enumerate(re.split(r"^```python.*\n((?:.*\n)*?)```\n", page, flags=re.MULTILINE)):
        text = re.sub(r"^(```\w+) .*", r"\1", part, flags=re.MULTILINE).strip()
        cell = {"metadata": {}, "source": text.splitlines(keepends=True)}
        code = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**cell, **(code if number % 2 else {"cell_type": "markdown"})})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
