"""The uncertainty of held-out faces, clean and degraded, in the log of a training run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.embedding import FaceOutputs
from facerts.errors import DataError
from facerts.images.changes import apply_change
from facerts.training.loop import train
from facerts.training.validation import DegradedFaces
from tests.training.conftest import MakeRecipe

KINDS = ["blur", "low_resolution", "jpeg", "noise", "occlusion", "dark", "bright"]
SETS = ["clean", *(f"{kind}/0.8" for kind in KINDS)]
# Four steps in an epoch: validation after steps 2, 4, 6 and 8.
DEGRADED = (
    "validation.degraded=6", "validation.every_epochs=0.5", "validation.pairs=10", "data.holdout_identities=4",
    "optim.batch_size=8", "optim.lr=0.001",
)  # fmt: skip


class Seen:
    """Keeps the crops that it embeds; its uncertainty is their mean, its norm their maximum."""

    name, method, sha256 = "seen", "unknown", "0" * 64

    def __init__(self) -> None:
        self.crops: list[NDArray[np.uint8]] = []

    def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
        self.crops.append(crops)
        flat = crops.reshape(len(crops), -1).astype(np.float32)
        return FaceOutputs(np.ones((len(crops), 2), np.float32), flat.max(axis=1), None, flat.mean(axis=1))


def quality_lines(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "quality"]


def test_the_same_pixels_are_measured_every_time(drawn_faces: Path) -> None:
    source, embedder = open_source(drawn_faces), Seen()
    faces = DegradedFaces(source, 5)
    assert (len(faces), faces.name) == (5, source.name)
    first, second = (dict(faces.measure(embedder)) for _ in range(2))
    assert list(first) == SETS
    assert first == second
    for name, before, after in zip(SETS, embedder.crops[:8], embedder.crops[8:], strict=True):
        np.testing.assert_array_equal(before, after)
        for place, index in enumerate([0, 15, 31, 47, 63]):
            crop = source.crop(index)
            kind = name.partition("/")[0]
            expected = crop if name == "clean" else apply_change(crop, kind, 0.8, index)
            np.testing.assert_array_equal(before[place], expected)
        means, maxima = before.mean(axis=(1, 2, 3)), before.max(axis=(1, 2, 3))
        for percent in (5, 50, 95):
            assert first[name][f"uncertainty_p{percent}"] == pytest.approx(np.percentile(means, percent))
            assert first[name][f"norm_p{percent}"] == pytest.approx(np.percentile(maxima, percent))


def test_a_score_that_overflows_is_left_out(drawn_faces: Path) -> None:
    class Overflowing(Seen):
        def __call__(self, crops: NDArray[np.uint8]) -> FaceOutputs:
            seen = super().__call__(crops)
            assert seen.uncertainty is not None
            return replace(seen, uncertainty=np.where(seen.uncertainty > 3, np.inf, seen.uncertainty))

    for _, percentiles in DegradedFaces(open_source(drawn_faces), 64).measure(Overflowing()):
        assert list(percentiles) == ["norm_p5", "norm_p50", "norm_p95"]


def test_a_run_logs_quality_before_its_first_step_and_at_every_validation(
    make_recipe: MakeRecipe, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = make_recipe(*DEGRADED)
    train(recipe, tmp_path / "run")
    lines = quality_lines(tmp_path / "run")
    assert [(line["step"], line["corruption"]) for line in lines] == [
        (step, name) for step in (0, 2, 4, 6, 8) for name in SETS
    ]
    assert len({line["name"] for line in lines}) == 1
    assert (lines[0]["epoch"], lines[-1]["epoch"], lines[-1]["images"]) == (0, 2, 64)
    assert all(
        0 < line["uncertainty_p5"] < line["uncertainty_p50"] < line["uncertainty_p95"] for line in lines
    )
    assert {line["uncertainty_p50"] for line in lines[:8]}.isdisjoint(
        line["uncertainty_p50"] for line in lines[8:]
    )
    assert f"6 faces of {lines[0]['name']}" in capfd.readouterr().err


def test_without_held_out_faces_there_is_nothing_to_measure(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"validation\.degraded.*set validation\.heldout"):
        train(make_recipe("validation.degraded=6"), tmp_path / "run")
