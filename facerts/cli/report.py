"""``facerts report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Result folders, training runs, or both; several are shown side by side."),
    ],
    out: Annotated[Path, typer.Option(help="The .html file to write.")],
    title: Annotated[str, typer.Option(help="Title of the page.")] = "facerts report",
    images: Annotated[
        bool,
        typer.Option(
            "--images/--no-images",
            help="Include images of the data. Without them, the page also has no file names, commands or paths.",
        ),
    ] = True,
) -> None:
    """Write results and training curves as one self-contained HTML page that begins with a verdict.

    Example: facerts report results runs/faces_small_rts --out report.html
    """
    from facerts.report import write_report

    write_report(folders, out, title=title, images=images)
    typer.echo(out)
