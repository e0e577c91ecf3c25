"""``facerts compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import Json
from facerts.cli.output import print_json, warn
from facerts.cli.results import show_comparison


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(compare)


def compare(
    folders: Annotated[
        list[Path], typer.Argument(help="Result folders; the first is what the others are compared with.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for comparison.json and report.html.")],
    title: Annotated[str, typer.Option(help="Title of the page.")] = "facerts comparison",
    json: Json = False,
) -> None:
    """Compare models on the same pairs and pictures: differences with intervals and p-values, and one page.

    Example: facerts compare results/rts results/arcface --out comparison
    """
    from facerts.evaluate.compare import compare as compared
    from facerts.evaluate.compare import write_comparison
    from facerts.report import write_report

    comparison = compared(folders)
    write_comparison(comparison, out)
    write_report(folders, out / "report.html", title=title, comparison=comparison)
    for note in comparison["notes"]:
        warn(note)
    print_json(comparison) if json else show_comparison(comparison)
