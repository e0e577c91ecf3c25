"""Several models on the same data: their numbers side by side, and which differences are more than chance.

The first result is the reference; every other one is compared with it on the same pairs and pictures.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from facerts.errors import DataError
from facerts.evaluate.baselines import BASELINES
from facerts.evaluate.result import Arrays, load_result
from facerts.evaluate.verification import FARS
from facerts.files import atomic_write
from facerts.metrics.paired import Difference, compare_pairs, compare_separations
from facerts.metrics.resample import pair_subjects

SCHEMA = "facerts.comparison/1"

Loaded = tuple[str, dict[str, Any], Arrays]


def compare(folders: Sequence[str | Path]) -> dict[str, Any]:
    """Paired differences of every result from the first.

    Benchmarks that were measured on other data (by their hash) are not compared; a note says so.

    Args:
        folders: result folders, two or more.

    Returns:
        ``{"schema", "reference", "models", "verification": {NAME: [{model, accuracy, auroc, tar_at_far}]}, "ood":
        [...], "notes"}``; a difference is ``{value, ci95, p_value, unit}``, other model minus reference.

    Raises:
        DataError: fewer than two folders, no result in one, or nothing in common with the first.
    """
    if len(folders) < 2:
        raise DataError("a comparison needs at least two result folders")
    loaded: list[Loaded] = []
    for folder in folders:
        content, arrays = load_result(folder)
        loaded.append((str(folder), content, arrays))
    notes: list[str] = []
    first, *others = loaded
    verification: dict[str, list[dict[str, Any]]] = {}
    for name, section in first[1].get("verification", {}).items():
        rows = [_pairs(name, section, first, other, notes) for other in others]
        verification[name] = [row for row in rows if row is not None]
    ood = [row for row in (_ood(first, other, notes) for other in others) if row is not None]
    if not any(verification.values()) and not ood:
        raise DataError(
            f"{first[0]} has nothing in common with {', '.join(folder for folder, *_ in others)}: "
            + " ".join(["evaluate them on the same benchmarks.", *notes])
        )
    return {
        "schema": SCHEMA,
        "reference": _model(first),
        "models": [_model(other) for other in others],
        "verification": {name: rows for name, rows in verification.items() if rows},
        "ood": ood,
        "notes": notes,
    }


def write_comparison(comparison: dict[str, Any], folder: str | Path) -> None:
    """Write ``comparison.json`` into a folder."""
    with atomic_write(Path(folder) / "comparison.json", "w") as file:
        json.dump(comparison, file, indent=1, ensure_ascii=False, allow_nan=False)


def _pairs(
    name: str, section: dict[str, Any], first: Loaded, other: Loaded, notes: list[str]
) -> dict[str, Any] | None:
    """One benchmark's differences, or None where the other has it not, or on other pictures."""
    theirs = other[1].get("verification", {}).get(name)
    prefix = f"verification/{name}/"
    if theirs is None:
        return None
    if not all(prefix + "folds" in arrays for _, _, arrays in (first, other)):
        notes.append(f"{name}: pairs of templates are not compared; their results stand side by side.")
        return None
    same_data = theirs["data_sha256"] == section["data_sha256"] and np.array_equal(
        first[2][prefix + "pairs"], other[2][prefix + "pairs"]
    )
    if not same_data:
        notes.append(
            f"{name}: {other[0]} was measured on other pictures or pairs than {first[0]}, so it is left out."
        )
        return None
    # The lowest rate that both could show is the one that tells most.
    far = min((float(key) for key in section["tar_at_far"]), default=max(FARS))
    mine, own = other[2], first[2]
    differences = compare_pairs(
        mine[prefix + "scores"],
        own[prefix + "scores"],
        own[prefix + "same"],
        own[prefix + "folds"],
        far=far,
        subjects=pair_subjects(own.get(prefix + "subjects"), own[prefix + "pairs"]),
    )
    return {"model": _model(other), "far": far, **{key: _told(value) for key, value in differences.items()}}


def _ood(first: Loaded, other: Loaded, notes: list[str]) -> dict[str, Any] | None:
    ours, theirs = first[1].get("ood"), other[1].get("ood")
    if ours is None or theirs is None:
        return None
    if any(ours[key] != theirs[key] for key in ("data_sha256", "in", "out")):
        notes.append(f"ood: {other[0]} was measured on other pictures than {first[0]}, so it is left out.")
        return None
    by = {}
    for score in ours["by"]:
        if score in theirs["by"]:
            sides = [
                np.concatenate([result[2][f"ood/{source}/{score}"] for source in ours[side]])
                for result in (other, first)
                for side in ("in", "out")
            ]
            if score in BASELINES and all(np.array_equal(sides[at], sides[at + 2]) for at in (0, 1)):
                continue  # a score of the pictures alone is the same for every model
            differences = compare_separations(*sides)
            by[score] = {key: {**_told(value), "unit": "pictures"} for key, value in differences.items()}
    return {"model": _model(other), "by": by} if by else None


def _model(result: Loaded) -> dict[str, str]:
    return {"folder": result[0], "name": result[1]["model"]["name"], "sha256": result[1]["model"]["sha256"]}


def _told(difference: Difference) -> dict[str, Any]:
    return {
        "value": difference.value,
        "ci95": list(difference.ci95),
        "p_value": difference.p_value,
        "unit": difference.unit,
    }
