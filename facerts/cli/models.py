"""``facerts models``: those that ship with the package, and those that can be fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from facerts.cli.options import Json
from facerts.cli.output import EXIT_UNUSABLE, fields_table, print_json, stdout, warn

NONE = "no model ships with this copy of facerts"

models = typer.Typer(
    no_args_is_help=True, help="The models that ship with facerts, and those that it fetches."
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.add_typer(models, name="models")


@models.command("list")
def list_models(json: Json = False) -> None:
    """Name the models that ship, the default one first, and those to pull, with what they are for and on which terms.

    Example: facerts models list
    """
    from facerts.hub.fetch import downloadable_models, locate
    from facerts.hub.registry import read_manifest

    manifest = read_manifest()
    shipped = sorted(manifest.models, key=lambda model: model.name != manifest.default)
    listed: list[dict[str, Any]] = [
        {**model.model_dump(), "ships": True, "default": model.name == manifest.default} for model in shipped
    ]
    for model in downloadable_models():
        found = locate(model)
        listed.append({**model.model_dump(), "ships": False, "path": None if found is None else str(found)})
    if json:
        print_json(listed)
        return
    if not shipped:
        warn(NONE)
    table = Table()
    for column in ("name", "size", "what for", "terms", "where"):
        table.add_column(column, justify="right" if column == "size" else "left", overflow="fold")
    for entry in listed:
        name, size = entry["name"], f"{entry['bytes'] / 1e6:.1f} MB"
        if entry["ships"]:
            name, where = f"{name} (default)" if entry["default"] else name, "ships"
        else:
            where = entry["path"] or f"facerts models pull {name}"
        table.add_row(*map(escape, (name, size, entry["summary"], entry["terms"], where)))
    stdout.print(table)


@models.command()
def verify(json: Json = False) -> None:
    """Check that every model that ships is there, unchanged, loads and is what the manifest says; ends with 2 if not.

    Example: facerts models verify
    """
    from facerts.embedding.shipped import verify_shipped

    found = verify_shipped()
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
def pull(
    name: Annotated[str, typer.Argument(help="Of the model.")],
    source: Annotated[
        Path | None, typer.Option("--from", help="The file, carried over from a machine with a network.")
    ] = None,
    json: Json = False,
) -> None:
    """Fetch a model that does not ship, such as a detector's; it is kept only if its SHA-256 is right.

    Example: facerts models pull yunet
    """
    from facerts.hub.fetch import pull as fetch

    result = {"name": name, "file": str(fetch(name, source))}
    print_json(result) if json else fields_table(result)


@models.command()
def path(
    name: Annotated[str | None, typer.Argument(help="Of the model; the default one if left out.")] = None,
) -> None:
    """Print where the file of a model lies, for programs that read ONNX files themselves.

    Example: facerts models path facerts-small
    """
    from facerts.hub.fetch import downloadable_models, find_downloaded
    from facerts.hub.registry import find_shipped

    if name is not None and name in {model.name for model in downloadable_models()}:
        print(find_downloaded(name))
    else:
        print(find_shipped(name))
