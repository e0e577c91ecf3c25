"""The command line as a shell would call it, in this process."""

from __future__ import annotations

import sys
from pathlib import Path

from facerts.cli import main


def run(*arguments: str | Path) -> int:
    """The command's exit code."""
    sys.argv = ["facerts", *map(str, arguments)]
    try:
        main()
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0
