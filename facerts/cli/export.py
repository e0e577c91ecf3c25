"""``facerts export``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import Json
from facerts.cli.output import fields_table, print_json
from facerts.errors import Error


class Precision(str, Enum):
    """What a file stores and computes in."""

    FP32 = "fp32"
    FP16 = "fp16"
    INT8 = "int8"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    run: Annotated[
        Path,
        typer.Argument(
            help="The folder of a training run, a checkpoint file, or insightface's published weights (backbone.pth); "
            "with --embedding-only also an .onnx embedder, or a model that ships, by its name (facerts models list)."
        ),
    ],
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
    last_weights: Annotated[
        bool,
        typer.Option(
            "--last-weights",
            help="Weights of the last step instead of their moving average, in a run that kept one (optim.average).",
        ),
    ] = False,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Aligned faces to check the export on, and for int8 to find ranges on; by default the run's own."
        ),
    ] = None,
    license: Annotated[
        str, typer.Option("--license", "--licence", help="License of the weights, written into the file.")
    ] = "",
    terms: Annotated[
        str,
        typer.Option(
            help="On which the weights may be used, written into the file; by default the recipe's. Published weights "
            "need them said."
        ),
    ] = "",
    json: Json = False,
) -> None:
    """Write a trained network as an ONNX file that describes itself, after comparing it with PyTorch.

    Example: facerts export runs/faces_small_rts --out rts.onnx

    With --embedding-only it also takes a finished model: facerts export facerts-small --embedding-only --out small.onnx
    """
    if (model := _model(run)) is not None:
        if not embedding_only or precision is not Precision.FP32 or last_weights or data or license or terms:
            raise Error(
                f"{run} is a finished model, which can be exported with --embedding-only and with nothing else; give "
                "the run that it comes from"
            )
        from facerts.export.embedding_only import keep_embedding

        kept = keep_embedding(model, out)
        result = {
            "file": str(out),
            "bytes": out.stat().st_size,
            "checked_crops": kept.crops,
            "smallest_cosine": kept.cosine,
        }
        print_json(result) if json else fields_table(result)
        return
    from facerts.training.export.from_checkpoint import export_run

    parity = export_run(
        run,
        out,
        precision=precision.value,
        embedding_only=embedding_only,
        averaged=not last_weights,
        data=data or (),
        license=license,
        terms=terms,
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


def _model(run: Path) -> Path | None:
    """The .onnx file that is meant; None for a run."""
    from facerts.hub.registry import find_model, shipped_models

    if run.suffix.lower() == ".onnx":
        return run
    ships = not run.exists() and str(run) in {model.name for model in shipped_models()}
    return find_model(run) if ships else None
