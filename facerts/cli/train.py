"""``facerts train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.io.progress import parse_duration


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def train(
    recipe: Annotated[
        str,
        typer.Argument(
            help="A recipe file, or the name of a recipe that ships: casia, deepglint and faces_small with "
            "method=NAME, or casia_rts, deepglint_rts, facerts_small, demo … (see recipes/ for all of them)."
        ),
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            help="Recipe fields to override, by their dotted names: method=pfe optim.lr=0.05 data.workers=4",
            metavar="[KEY=VALUE]...",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run; by default runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option(help="Continue from the last checkpoint in the folder.")] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            parser=_seconds,
            metavar="DURATION",
            help="Time for the whole run, such as 20m or 1h30m. The schedule is shortened as the measured speed "
            "demands, so that the run ends with it in time.",
        ),
    ] = None,
    corrupt_fraction: Annotated[
        float | None,
        typer.Option(help="Share of the training images to blur; short for data.corrupt_fraction=…"),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the complete recipe, and do not train.")
    ] = False,
) -> None:
    """Train a model with a recipe.

    A recipe is a YAML file and may be based on another one ("base: casia").
    method=NAME adds the settings specific to a method. Later settings cover
    earlier ones: the base, the method's file, the recipe's own fields,
    KEY=VALUE. The run stores the complete recipe.

    Example: facerts train faces_small method=rts optim.lr=0.02 --out runs/first
    Example: facerts train faces_small method=rts --budget 20m --out runs/short
    """
    from facerts.training.loop import train as run
    from facerts.training.recipe import load_recipe
    from facerts.training.validation import require_sets

    fields = list(overrides or ())
    if corrupt_fraction is not None:
        fields.append(f"data.corrupt_fraction={corrupt_fraction}")
    loaded = load_recipe(recipe, fields)
    if show:
        typer.echo(loaded.to_yaml(), nl=False)
        return
    require_sets(loaded.validation, {field.partition("=")[0] for field in fields})
    typer.echo(run(loaded, out or Path("runs") / loaded.name, resume=resume, budget_s=budget))
