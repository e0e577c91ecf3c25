"""``facerts report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.output import print_sentence
from facerts.cli.shared_options import NewFile


def report(
    folders: list[Path],
    *,
    out: NewFile,
    images: Annotated[bool, typer.Option("--images/--no-images")] = True,
) -> None:
    """Write results and training curves as one self-contained HTML page that begins with a verdict.

    Example: facerts report results runs/faces_small_rts --out report.html

    Args:
        folders: Result folders, training runs, or both; several are shown side by side.
        out: The .html file to write.
        images: Include images of the data. Without them, the page also has no file names, commands or paths.
    """
    from facerts.report import write_report

    write_report(folders, out, images=images)
    print_sentence(out)
