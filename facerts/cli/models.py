"""``facerts models``: shipped models, and models that can be downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from facerts.cli.option_groups import Commands
from facerts.cli.output import EXIT_UNUSABLE, fields_table, print_json, print_raw, stdout, text_cell, warn
from facerts.cli.shared_options import Json

NO_MODELS = "no model ships with this copy of facerts"

models = Commands(no_args_is_help=True, help="Shipped models, and models that can be downloaded.")


@models.command("list")
def list_models(json: Json = False) -> None:
    """List shipped models, the default one first, and models to download, with their purpose and license terms.

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
        file = locate(model)
        listed.append({**model.model_dump(), "ships": False, "path": None if file is None else str(file)})
    if json:
        print_json(listed)
        return
    if not shipped:
        warn(NO_MODELS)
    table = Table()
    for column in ("name", "size", "purpose", "terms", "where"):
        table.add_column(column, justify="right" if column == "size" else "left", overflow="fold")
    for entry in listed:
        name, size = entry["name"], f"{entry['bytes'] / 1e6:.1f} MB"
        if entry["ships"]:
            name, where = f"{name} (default)" if entry["default"] else name, "ships"
        else:
            where = entry["path"] or f"facerts models pull {name}"
        table.add_row(*map(text_cell, (name, size, entry["summary"], entry["terms"], where)))
    stdout.print(table)


@models.command()
def verify(json: Json = False) -> None:
    """Check that every shipped model exists, is unchanged, loads, and matches the manifest.

    Exits with status 2 if any does not.

    Example: facerts models verify
    """
    from facerts.embedding.shipped import verify_shipped

    problems = verify_shipped()
    if json:
        print_json([{"name": name, "ok": not found, "problems": found} for name, found in problems.items()])
    else:
        fields_table({name: "not as shipped" if found else "as shipped" for name, found in problems.items()})
    if not problems:
        warn(NO_MODELS)
    for name, found in problems.items():
        for problem in found:
            warn(f"{name}: {problem}")
    if any(problems.values()):
        raise typer.Exit(EXIT_UNUSABLE)


@models.command()
def pull(
    name: str, *, source: Annotated[Path | None, typer.Option("--from")] = None, json: Json = False
) -> None:
    """Download a model that does not ship, such as a detector, and check its SHA-256.

    Example: facerts models pull yunet

    Args:
        name: Name of the model.
        source: File to install, downloaded on another machine.
    """
    from facerts.hub.fetch import pull as fetch

    result = {"name": name, "file": str(fetch(name, source))}
    print_json(result) if json else fields_table(result)


@models.command()
def path(name: Annotated[str | None, typer.Argument()] = None) -> None:
    """Print the path of a model file, for programs that read ONNX files themselves.

    Example: facerts models path facerts-small

    Args:
        name: Name of the model; by default the default model.
    """
    from facerts.hub.fetch import downloadable_models, find_downloaded
    from facerts.hub.registry import find_shipped

    if name is not None and name in {model.name for model in downloadable_models()}:
        print_raw(find_downloaded(name))
    else:
        print_raw(find_shipped(name))
