"""``facerts models``: those that ship with the package."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from facerts.cli.options import Json
from facerts.cli.output import EXIT_UNUSABLE, fields_table, print_json, stdout, warn

NONE = "no model ships with this copy of facerts"

models = typer.Typer(no_args_is_help=True, help="The models that ship with facerts.")


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(models, name="models")


@models.command("list")
def list_models(json: Json = False) -> None:
    """Name the models that ship, the default one first, with what they are for and on which terms.

    Example: facerts models list
    """
    from facerts.zoo import read_manifest

    manifest = read_manifest()
    found = sorted(manifest.models, key=lambda model: model.name != manifest.default)
    if json:
        print_json([{**model.model_dump(), "default": model.name == manifest.default} for model in found])
        return
    if not found:
        warn(NONE)
        return
    table = Table()
    for column in ("name", "size", "what for", "terms"):
        table.add_column(column, justify="right" if column == "size" else "left")
    for model in found:
        name = f"{model.name} (default)" if model.name == manifest.default else model.name
        size = f"{model.bytes / 1e6:.1f} MB"
        table.add_row(*map(escape, (name, size, model.summary, model.terms)))
    stdout.print(table)


@models.command()
def verify(json: Json = False) -> None:
    """Check that every model that ships is there, unchanged, loads and is what the manifest says; ends with 2 if not.

    Example: facerts models verify
    """
    from facerts.zoo import verify as examine

    found = examine()
    if json:
        print_json([{"name": name, "ok": not wrong, "problems": wrong} for name, wrong in found.items()])
    else:
        fields_table(
            {name: "not as it shipped" if wrong else "as it shipped" for name, wrong in found.items()}
        )
    if not found:
        warn(NONE)
    for name, wrong in found.items():
        for problem in wrong:
            warn(f"{name}: {problem}")
    if any(found.values()):
        raise typer.Exit(EXIT_UNUSABLE)


@models.command()
def path(
    name: Annotated[str | None, typer.Argument(help="Of the model; the default one if left out.")] = None,
) -> None:
    """Print where the file of a model lies, for programs that read ONNX files themselves.

    Example: facerts models path facerts-small
    """
    from facerts.zoo import find_shipped

    print(find_shipped(name))
