"""What commands that write a model say of its thresholds, and what to do next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from facerts.io.console import say

if TYPE_CHECKING:
    from facerts.onnx.contract import Description


def thresholds_of(description: Description) -> dict[str, Any]:
    """Which thresholds a model has, and whose faces they were chosen on."""
    calibration = description.calibration
    matching = None if calibration is None else calibration.matching
    rows: dict[str, Any] = {
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
