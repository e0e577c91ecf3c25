"""``facerts train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.output import print_raw, print_sentence
from facerts.io.progress import parse_duration


def _seconds(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def train(
    recipe: str,
    overrides: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...")] = None,
    *,
    out: Path | None = None,
    resume: bool = False,
    budget: Annotated[float | None, typer.Option(parser=_seconds, metavar="DURATION")] = None,
    show: Annotated[bool, typer.Option("--show")] = False,
) -> None:
    """Train a model with a recipe.

    A recipe is a YAML file and may be based on another one ("base: casia"). method=NAME adds the settings specific to a
    method. Later settings override earlier ones: the base, the method's file, the recipe's own fields, KEY=VALUE. The
    run stores the complete recipe.

    Example: facerts train my_faces data.train=people/
    Example: facerts train faces_small data.train=people/ method=arcface --budget 20m

    Args:
        recipe: A recipe file, or the name of a bundled recipe: my_faces, faces_small, casia, deepglint … (see recipes/
            for all of them).
        overrides: Recipe fields to override, by their dotted names: method=pfe optim.lr=0.05
        out: Folder of the run; by default runs/NAME.
        resume: Continue from the last checkpoint in the folder.
        budget: Time for the whole run, such as 20m or 1h30m. The schedule is shortened to fit the measured speed.
        show: Print the complete recipe, with ??? for missing values, and do not train.
    """
    from facerts.training.loop import train as run
    from facerts.training.recipe import load_recipe
    from facerts.training.validation import require_sets

    fields = list(overrides or ())
    loaded = load_recipe(recipe, fields)
    if show:
        print_raw(loaded.to_yaml().rstrip("\n"))
        return
    require_sets(loaded.validation, {field.partition("=")[0] for field in fields})
    print_sentence(run(loaded, out or Path("runs") / loaded.name, resume=resume, budget_s=budget))
