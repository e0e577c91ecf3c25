"""``facerts export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import Json
from facerts.cli.output import fields_table, print_json


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a training run, or a checkpoint file.")],
    out: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    embedding_only: Annotated[
        bool, typer.Option("--embedding-only", help="One output, for other packages' ArcFace loaders.")
    ] = False,
    data: Annotated[
        list[str] | None, typer.Option(help="Pictures to check the export on; by default the run's own.")
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights, written into the file.")] = "",
    json: Json = False,
) -> None:
    """Write a trained network as an ONNX file that describes itself, after comparing it with PyTorch.

    Example: facerts export runs/faces_small_rts --out rts.onnx
    """
    from facerts.export import export_run

    parity = export_run(run, out, embedding_only=embedding_only, data=data or (), licence=licence)
    result = {
        "file": str(out),
        "checked_crops": parity.crops,
        "smallest_cosine": parity.cosine,
        "largest_quality_error": parity.quality_error,
    }
    print_json(result) if json else fields_table(result)
