"""``python -m facerts``."""

from facerts.cli import main

main()
