"""Writes tutorials as notebooks beside their pages in docs/tutorials.

python tools/docs_notebook.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

TUTORIALS = Path(__file__).parents[1] / "docs" / "tutorials"
PAGES = [TUTORIALS / "first-hour.md", TUTORIALS / "losses.md"]


def notebook(page: str) -> str:
    """A notebook whose code cells are the Python blocks of a page, and whose text is the rest."""
    cells = []
    # What shows a figure on the page, which a notebook does by itself.
    page = re.sub(r'^```python.* html="1"(?:.*\n)*?```\n+', "", page, flags=re.MULTILINE)
    for number, part in enumerate(re.split(r"^```python.*\n((?:.*\n)*?)```\n", page, flags=re.MULTILINE)):
        text = re.sub(r"^(```\w+) .*", r"\1", part, flags=re.MULTILINE).strip()
        if not text:
            continue
        cell = {"metadata": {}, "source": text.splitlines(keepends=True)}
        code = {"cell_type": "code", "execution_count": None, "outputs": []}
        cells.append({**cell, **(code if number % 2 else {"cell_type": "markdown"})})
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}, indent=1) + "\n"


if __name__ == "__main__":
    for path in PAGES:
        path.with_suffix(".ipynb").write_text(notebook(path.read_text(encoding="utf-8")), encoding="utf-8")
