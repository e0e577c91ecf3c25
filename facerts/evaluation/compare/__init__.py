"""Several methods on the same data: their numbers side by side, and which differences are more than chance.

Results of one label are training runs of one method: tables give their mean and range. The first result is the
reference of the paired differences; every other one is compared with it on the same pairs and images.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from facerts.errors import DataError
from facerts.evaluation.compare.differences import ood_difference, verification_difference
from facerts.evaluation.compare.method_runs import MethodRuns, methods_of
from facerts.evaluation.compare.ood_tables import ood_tables
from facerts.evaluation.compare.reject_tables import (
    chosen,
    fiqa_tables,
    on_one_embedding,
    reject_tables,
    shared_leagues,
)
from facerts.evaluation.compare.verification_tables import verification_tables
from facerts.evaluation.labeled import SavedResult, load_labeled
from facerts.evaluation.result_folder import naming_folders
from facerts.evaluation.results.comparison_result import SCHEMA, ComparedMethod, ComparedModel, Comparison
from facerts.io.files import atomic_write

__all__ = ["SCHEMA", "MethodRuns", "compare", "compare_methods", "methods_of", "write_comparison"]


def compare(folders: Sequence[str | Path], *, embedding: str | None = None) -> Comparison:
    """Compare result folders, given as ``FOLDER`` or ``LABEL=FOLDER``; see ``compare_methods``."""
    return compare_methods(methods_of(load_labeled(folders)), embedding=embedding)


def compare_methods(methods: Sequence[MethodRuns], *, embedding: str | None = None) -> Comparison:
    """Tables of all methods, and paired differences of every result from the first: the other minus the reference.

    Benchmarks that were measured on other data (by their hash) are not tested; a note says so. All qualities are
    measured on the embedding of the method that ``embedding`` names, by default of the first.
    """
    with naming_folders([run.folder for method in methods for run in method.runs]):
        return _compared(methods, embedding)


def _compared(methods: Sequence[MethodRuns], embedding: str | None) -> Comparison:
    named = [(method.shown(run), run) for method in methods for run in method.runs]
    if len(named) < 2:
        raise DataError("a comparison needs at least two result folders")
    embedder = chosen(methods, embedding)
    notes: list[str] = []
    (label, first), *others = named
    verification = {}
    for name in first.content.verification:
        rows = [verification_difference(name, first, one[1], _model(*one), notes) for one in others]
        verification[name] = [row for row in rows if row is not None]
    ood = [row for one in others if (row := ood_difference(first, one[1], _model(*one), notes)) is not None]
    if not any(verification.values()) and not ood and not shared_leagues(methods):
        raise DataError(
            f"{first.folder} has nothing in common with {', '.join(str(run.folder) for _, run in others)}: "
            + " ".join(["evaluate them on the same benchmarks.", *notes])
        )
    tables, curves = on_one_embedding(methods, embedder, notes)
    tables = [
        *verification_tables(methods),
        *ood_tables(methods),
        *reject_tables(methods),
        *tables,
        *fiqa_tables(methods),
    ]
    return Comparison(
        schema_=SCHEMA,
        methods=[
            ComparedMethod(label=method.label, runs=[_model(method.shown(run), run) for run in method.runs])
            for method in methods
        ],
        reference=_model(label, first),
        models=[_model(*other) for other in others],
        verification={name: rows for name, rows in verification.items() if rows},
        ood=ood,
        tables=tables,
        embedding=embedder.label,
        curves=curves,
        notes=list(dict.fromkeys(notes)),
    )


def write_comparison(comparison: Comparison, folder: str | Path) -> None:
    """Write ``comparison.json`` into a folder."""
    with atomic_write(Path(folder) / "comparison.json", "w") as file:
        json.dump(comparison.to_json(), file, indent=1, ensure_ascii=False, allow_nan=False)


def _model(label: str, run: SavedResult) -> ComparedModel:
    model = run.content.model
    return ComparedModel(label=label, folder=run.place, name=model.name, sha256=model.sha256)
