"""``facerts embed``."""

from __future__ import annotations

from dataclasses import replace

from facerts.cli.output import print_result
from facerts.cli.settings import CommandSettings
from facerts.cli.shared_options import Images, Json, NewFile, ScorerOptions


def embed(paths: Images, *, out: NewFile, models: ScorerOptions, settings: CommandSettings, json: Json = False) -> None:
    """Embed images: write paths, faces, embeddings, quality, uncertainty and norm as arrays.

    Exits with status 1 if any image could not be read.

    Example: facerts embed crops/ --model m.onnx --out embeddings.npz

    Args:
        out: Path of the .npz file to write.
    """
    from facerts.scoring.sinks import check_embeddings_file, write_embeddings

    check_embeddings_file(out)
    # All embeddings are kept in memory until the file is written, but not the crops.
    scored = [replace(entry, crop=None) for entry in models.open(settings).score_each(paths, progress="embedding")]
    write_embeddings(out, scored)
    rows = [entry.row for entry in scored]
    embedded = sum(entry.vector is not None for entry in scored)
    failed = sum(row.error is not None for row in rows)
    print_result({"embedded": embedded, "failed": failed, "file": str(out)}, json, rows, all_in=f"{out} has")
