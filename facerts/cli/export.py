"""``facerts export``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from facerts.cli.output import print_result, warn
from facerts.cli.shared_options import Json, NewFile
from facerts.errors import Error
from facerts.io.console import say

if TYPE_CHECKING:
    from facerts.onnx.contract import Description


def export(
    run: Path,
    *,
    out: NewFile,
    precision: Literal["fp32", "fp16", "int8"] = "fp32",
    embedding_only: Annotated[bool, typer.Option("--embedding-only")] = False,
    last_weights: Annotated[bool, typer.Option("--last-weights")] = False,
    data: list[str] | None = None,
    license: str = "",
    terms: str = "",
    json: Json = False,
) -> None:
    """Export a trained model as an ONNX file with a description, and check its outputs against PyTorch.

    Thresholds are chosen on the people that the run held out, as facerts calibrate chooses them.

    Example: facerts export runs/faces_small_rts --out rts.onnx

    With --embedding-only it also accepts an ONNX model: facerts export facerts-small --embedding-only --out small.onnx

    Args:
        run: Folder of a training run, path of a checkpoint, or insightface's pretrained weights (backbone.pth); with
            --embedding-only also path of an .onnx recognizer, or name of a bundled model (facerts models list).
        out: Path of the .onnx file to write.
        precision: fp16 stores weights in half the size and computes in float32; int8 computes convolutions in 8 bits,
            with ranges measured on the faces of --data.
        embedding_only: Export only the embedding output, for the ArcFace loaders of other packages.
        last_weights: Export the weights of the last step instead of their moving average (optim.average).
        data: Aligned faces to choose thresholds on, to check the export on and to measure int8 ranges on; by default
            the people that the run held out; if there are none, training images serve for the last two.
        license: License of the weights, written into the file.
        terms: License terms of the weights, written into the file; by default those of the recipe. Required for
            pretrained weights.
    """
    if (model := _model(run)) is not None:
        if not embedding_only or precision != "fp32" or last_weights or data or license or terms:
            raise Error(
                f"{run} is an ONNX model, which can only be exported with --embedding-only and no other options; use "
                "the training run that it comes from"
            )
        from facerts.embedding.embedding_only import keep_embedding

        parity = keep_embedding(model, out)
        result = {
            "file": str(out),
            "bytes": out.stat().st_size,
            "checked_crops": parity.crops,
            "smallest_cosine": parity.cosine,
        }
        print_result(result, json)
        return
    from facerts.training.export import export_run

    exported = export_run(
        run,
        out,
        precision=precision,
        embedding_only=embedding_only,
        averaged=not last_weights,
        data=data or (),
        license=license,
        terms=terms,
    )
    parity = exported.parity
    result = {
        "file": str(out),
        "precision": precision,
        "bytes": out.stat().st_size,
        "checked_crops": parity.crops,
        "smallest_cosine": parity.cosine,
        "largest_quality_error": None if parity.quality_error is None else float(f"{parity.quality_error:.2e}"),
        "quality_spread": parity.quality_spread,
        **thresholds_of(exported.description),
    }
    for note in notes_of(exported.description, exported.left_out):
        warn(note)
    print_result(result, json)
    if exported.uncalibrated:
        warn(f"no thresholds: {exported.uncalibrated}")
    print_next(out, exported.description)


def _model(run: Path) -> Path | None:
    """The .onnx file of a model; None for a run."""
    from facerts.hub.find import find_model
    from facerts.hub.registry import shipped_models

    if run.suffix.lower() == ".onnx":
        return run
    is_shipped = not run.exists() and str(run) in {model.name for model in shipped_models()}
    return find_model(run) if is_shipped else None


def thresholds_of(description: Description) -> dict[str, object]:
    """Which thresholds a model has, and whose faces they were chosen on."""
    calibration = description.calibration
    matching = None if calibration is None else calibration.matching
    rows: dict[str, object] = {
        "quality_thresholds": list(description.thresholds),
        "match_thresholds": list(matching.thresholds) if matching else [],
    }
    if calibration is not None:
        people = "" if calibration.identities is None else f" of {calibration.identities:,} people"
        rows["calibrated_on"] = f"{calibration.faces:,} faces{people} ({calibration.data})"
    return rows


def notes_of(description: Description, left_out: Sequence[str]) -> Iterator[str]:
    """The remarks of a calibration, and what could not be read for it."""
    if description.calibration is not None:
        yield from description.calibration.notes
    for problem in left_out:
        yield f"left out: {problem}"


def print_next(model: Path, description: Description) -> None:
    """Print the commands to use a model with, and first the one for the thresholds that these lack."""
    name = shlex.quote(str(model))
    matches = "embedding" in description.outputs
    has_quality, calibration = description.quality != "none", description.calibration
    missing = []
    if matches and not (calibration and calibration.matching and calibration.matching.thresholds):
        missing.append("match thresholds (for verify)")
    if has_quality and not description.thresholds:
        missing.append("quality thresholds (for --keep)")
    say("next:")
    if missing:
        say(f"  facerts calibrate --model {name} --data PEOPLE/   # it has no {' and no '.join(missing)}")
    if has_quality:
        say(f"  facerts score PHOTOS/ --model {name}" + (" --keep 0.95" if description.thresholds else ""))
    if matches:
        say(f"  facerts verify A.jpg B.jpg --model {name}")
    else:
        say(f"  facerts verify A.jpg B.jpg --quality {name}")
