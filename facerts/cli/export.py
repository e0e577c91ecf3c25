"""``facerts export``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import Json
from facerts.cli.output import fields_table, print_json


class Precision(str, Enum):
    """What a file stores and computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a training run, or a checkpoint file.")],
    out: Annotated[Path, typer.Option(help="The .onnx file to write.")],
    precision: Annotated[
        Precision,
        typer.Option(
            help="fp16: weights stored in half the size, computed in float32; int8: convolutions in 8 bits, with "
            "ranges found on the faces of --data."
        ),
    ] = Precision.FP32,
    embedding_only: Annotated[
        bool, typer.Option("--embedding-only", help="One output, for other packages' ArcFace loaders.")
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Aligned faces to check the export on, and for int8 to find ranges on; by default the run's own."
        ),
    ] = None,
    licence: Annotated[str, typer.Option(help="Licence of the weights, written into the file.")] = "",
    json: Json = False,
) -> None:
    """Write a trained network as an ONNX file that describes itself, after comparing it with PyTorch.

    Example: facerts export runs/faces_small_rts --out rts.onnx
    """
    from facerts.export import export_run

    parity = export_run(
        run,
        out,
        precision=precision.value,
        embedding_only=embedding_only,
        data=data or (),
        licence=licence,
    )
    result = {
        "file": str(out),
        "precision": precision.value,
        "bytes": out.stat().st_size,
        "checked_crops": parity.crops,
        "smallest_cosine": parity.cosine,
        "largest_quality_error": parity.quality_error,
        "quality_spread": parity.quality_spread,
    }
    print_json(result) if json else fields_table(result)
