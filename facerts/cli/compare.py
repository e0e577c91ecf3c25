"""``facerts compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from facerts.cli.output import print_json, warn
from facerts.cli.results import show_comparison
from facerts.cli.shared_options import Json, NewFolder


def compare(
    results: Annotated[list[str], typer.Argument(metavar="[LABEL=]FOLDER...")],
    *,
    out: NewFolder,
    embedding: str | None = None,
    log: list[str] | None = None,
    score: str = "quality",
    json: Json = False,
) -> None:
    """Compare methods on the same pairs and images: tables, figures, differences with p-values, and a report.

    Example: facerts compare RTS=results/rts ArcFace=results/arcface --out comparison

    Args:
        results: Result folders, as FOLDER or LABEL=FOLDER; several of one label are training runs of one method. The
            others are tested against the first.
        out: Folder for comparison.json, tables.md, report.html and the figures.
        embedding: Label of the method whose embedding all qualities are measured on; default: the first.
        log: A training run or its log.jsonl, as LABEL=PATH; default: that of the result folder.
        score: Image score that the figures show, such as quality, uncertainty or norm.
    """
    from facerts.evaluation.comparison import compare_methods, write_comparison
    from facerts.evaluation.method_runs import methods_of, with_logs
    from facerts.evaluation.saved_result import load_labeled
    from facerts.report.comparison_report import write_comparison_report

    methods = with_logs(methods_of(load_labeled(results)), log or ())
    comparison, arrays = compare_methods(methods, embedding=embedding)
    write_comparison(comparison, arrays, out)
    write_comparison_report(methods, comparison, arrays, out, score=score)
    for note in comparison.notes:
        warn(note)
    print_json(comparison.to_json()) if json else show_comparison(comparison)
