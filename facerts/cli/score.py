"""``facerts score``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from facerts.cli.options import (
    Batch,
    Detector,
    DetectorModel,
    DetectorName,
    Json,
    ModelOrDefault,
    Pictures,
    Provider,
    Threads,
)
from facerts.cli.output import EXIT_SOME_FAILED, fields_table, print_json, warn


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(score)


def score(
    paths: Pictures,
    out: Annotated[Path, typer.Option(help="Rows: .csv, .jsonl or .parquet.")],
    model: ModelOrDefault = None,
    detector: Detector = DetectorName.NONE,
    detector_model: DetectorModel = None,
    min_quality: Annotated[float | None, typer.Option(help="Accept faces at or above this quality.")] = None,
    keep: Annotated[
        float | None, typer.Option(help="Accept as the model's own threshold for this share of faces does.")
    ] = None,
    batch_size: Batch = 64,
    threads: Threads = None,
    provider: Provider = None,
    json: Json = False,
) -> None:
    """Score pictures: a row for each face, with quality and uncertainty. Ends with 1 if any could not be read.

    Example: facerts score photos/ --model m.onnx --detector yunet --detector-model yunet.onnx --out rows.csv
    """
    from facerts.scoring import load, open_sink

    if min_quality is not None and keep is not None:
        raise typer.BadParameter("--min-quality and --keep both name a threshold; give one")
    scorer = load(
        model,
        detector=detector.value,
        detector_model=detector_model,
        providers=provider,
        threads=threads,
        batch_size=batch_size,
    )
    limit = scorer.threshold(keep) if keep is not None else min_quality
    counts = {"rows": 0, "accepted": 0, "without_a_face": 0, "failed": 0}
    with open_sink(out) as put:
        for scored in scorer.score_paths(paths, min_quality=limit, progress="scoring"):
            row = scored.row
            put(row)
            counts["rows"] += 1
            counts["accepted"] += row.accepted is True
            counts["without_a_face"] += row.reason == "no face found"
            counts["failed"] += row.error is not None
            if row.error is not None:
                warn(row.error)
    result = {**counts, "file": str(out)}
    if limit is None:
        del result["accepted"]
    print_json(result) if json else fields_table(result)
    if counts["failed"]:
        raise typer.Exit(EXIT_SOME_FAILED)
