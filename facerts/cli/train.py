"""``facerts train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or the name of one that ships.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="Fields to change: optim.lr=0.05 data.workers=4", metavar="[KEY=VALUE]..."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME by default.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from the folder's last checkpoint.")] = False,
    corrupt_fraction: Annotated[
        float | None,
        typer.Option(help="Share of training images to blur; short for data.corrupt_fraction=…"),
    ] = None,
) -> None:
    """Train a network as a recipe says.

    Example: facerts train faces_small_rts optim.epochs=2 --out runs/first
    """
    from facerts.training.loop import train as run
    from facerts.training.recipe import load_recipe

    changes = list(overrides or ())
    if corrupt_fraction is not None:
        changes.append(f"data.corrupt_fraction={corrupt_fraction}")
    loaded = load_recipe(recipe, changes)
    typer.echo(run(loaded, out or Path("runs") / loaded.name, resume=resume))
