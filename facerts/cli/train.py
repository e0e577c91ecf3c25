"""``facerts train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(train)


def train(
    recipe: Annotated[str, typer.Argument(help="Path of a recipe, or name of a shipped recipe.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipe fields to override, e.g. optim.lr=0.05 data.workers=4", metavar="[KEY=VALUE]..."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint in the folder.")] = False,
    corrupt_fraction: Annotated[
        float | None,
        typer.Option(help="Share of the training images to blur; short for data.corrupt_fraction=…"),
    ] = None,
) -> None:
    """Train a model with a recipe.

    Example: facerts train faces_small_rts optim.epochs=2 --out runs/first
    """
    from facerts.training.loop import train as run
    from facerts.training.recipe import load_recipe

    fields = list(overrides or ())
    if corrupt_fraction is not None:
        fields.append(f"data.corrupt_fraction={corrupt_fraction}")
    loaded = load_recipe(recipe, fields)
    typer.echo(run(loaded, out or Path("runs") / loaded.name, resume=resume))
