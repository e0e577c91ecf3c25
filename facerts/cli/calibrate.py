"""``facerts calibrate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from facerts.cli.options import Align, Batch, Json, Model, Provider, Threads
from facerts.cli.output import EXIT_SOME_FAILED, fields_table, print_json, rows_table, warn

if TYPE_CHECKING:
    from facerts.onnx.contract import Calibration, Description, KeptPairs, MatchThreshold


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(calibrate)


def calibrate(
    model: Model,
    faces: Annotated[
        list[str],
        typer.Option(
            help="Faces of your own: a folder by identity or a flat one, records, shards; may be repeated."
        ),
    ],
    pairs: Annotated[
        str | None,
        typer.Option(
            help="A benchmark of pairs to choose match thresholds on, in place of all pairs of the faces."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The .onnx file to write; the model itself by default.")
    ] = None,
    keep: Annotated[
        list[float] | None,
        typer.Option(help="Share of the faces to keep; may be repeated. 0.99, 0.95, 0.9 and 0.8 by default."),
    ] = None,
    fmr: Annotated[
        list[float] | None,
        typer.Option(
            help="False match rate; may be repeated. 0.01, 0.001 and 0.0001 by default, as the pairs allow."
        ),
    ] = None,
    flip: Annotated[
        bool, typer.Option(help="Match embeddings to which the crop's mirror was added; embed adds none.")
    ] = False,
    align: Align = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Choose thresholds of quality and of similarity on your own faces, and write them into the model.

    Ends with 1 if any picture could not be read.

    Example: facerts calibrate --model m.onnx --faces faces/
    """
    from facerts.calibration.quality_thresholds import calibrate as run
    from facerts.detection import open_any_detector

    done = run(
        model,
        faces,
        pairs=pairs,
        out=out,
        keep=keep or None,
        fmr=fmr or None,
        flip=flip,
        align=None if align is None else open_any_detector(align, providers=provider, threads=threads),
        providers=provider,
        threads=threads,
        batch_size=batch_size,
    )
    found = done.description.calibration
    assert found is not None
    for sentence in (*found.notes, *(f"left out: {problem}" for problem in done.left_out)):
        warn(sentence)
    if json:
        told = done.description.model_dump(mode="json", include={"thresholds", "calibration"})
        print_json({"file": str(done.file), **told, "left_out": list(done.left_out)})
    else:
        _show(done.description, found)
        fields_table({"file": str(done.file), "left_out": len(done.left_out)})
    if done.left_out:
        raise typer.Exit(EXIT_SOME_FAILED)


def _show(description: Description, found: Calibration) -> None:
    matches = found.matching.thresholds if found.matching else {}
    if found.matching is not None:
        kind = "all pairs of" if found.matching.pairs == "all" else "the listed pairs of"
        made = "the crop and its mirror" if found.matching.flip else "the crop alone"
        rows_table(
            f"Match thresholds on {kind} {found.matching.images:,} pictures, embeddings of {made}",
            ["FMR", "same person from", "achieved", "impostor pairs", "genuine pairs", "FNMR (95 %)"],
            [
                [
                    rate,
                    f"{of.similarity:.4f}",
                    f"{of.achieved_fmr:.3g}",
                    f"{of.impostors:,}",
                    f"{of.genuine:,}",
                    _fnmr(of),
                ]
                for rate, of in matches.items()
            ],
        )
    if description.thresholds:
        rows_table(
            f"Thresholds of quality on {found.faces:,} faces, and FNMR of the pairs whose two faces pass",
            ["keep", "accepted from", "faces kept", "pairs kept", *(f"at FMR {rate}" for rate in matches)],
            [
                [
                    share,
                    f"{of.quality:.4f}",
                    f"{of.kept:.4f}",
                    next((f"{match.kept[share].genuine:,}" for match in matches.values()), "–"),
                    *(_fnmr(match.kept[share]) for match in matches.values()),
                ]
                for share, of in description.thresholds.items()
            ],
        )


def _fnmr(told: MatchThreshold | KeptPairs) -> str:
    if told.fnmr is None or told.ci95 is None:
        return "–"
    return f"{told.fnmr:.4f} [{told.ci95[0]:.4f}, {told.ci95[1]:.4f}]"
