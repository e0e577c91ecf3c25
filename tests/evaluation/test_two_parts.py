"""A recognizer is evaluated with the quality of another file, and each model runs as often as it must."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import open_source
from facerts.embedding import load_quality
from facerts.embedding.embed import score_source
from facerts.evaluation.result_folder import load_result
from tests.command import run
from tests.foreign import quality_description, write_description, write_embedder, write_quality

IMAGES = {"verification": 120, "reject": 120, "identification": 64, "ood": 64 + 24, "corruptions": 62}
SLOW_KINDS = ("verification", "identification", "corruptions")


@pytest.fixture(scope="module")
def recognizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Somebody's model "theirs", which has a quality of its own."""
    path = write_embedder(tmp_path_factory.mktemp("models") / "theirs.onnx", quality=True)
    write_description(path, quality="output:bright", name="theirs")
    return path


@pytest.fixture(scope="module")
def quality(recognizer: Path) -> Path:
    """A model "alone" that has a quality and nothing else."""
    path = write_quality(recognizer.with_name("alone.onnx"))
    path.with_suffix(".json").write_text(json.dumps(quality_description(name="alone")))
    return path


@pytest.mark.parametrize(
    "kind", ["reject", "ood", *(pytest.param(k, marks=pytest.mark.slow) for k in SLOW_KINDS)]
)
@pytest.mark.usefixtures("few_replicates")
def test_each_part_runs_once_for_each_crop(
    kind: str,
    recognizer: Path,
    quality: Path,
    drawn_faces: Path,
    named: Path,
    non_faces: Path,
    tmp_path: Path,
    passed: Counter[str],
) -> None:
    data: list[str | Path] = {
        "verification": ["--data", named, "--no-flip"],
        "reject": ["--data", named, "--fmr", "0.01", "--no-flip"],
        "identification": ["--data", drawn_faces],
        "ood": ["--in", drawn_faces, "--out-of", non_faces],
        "corruptions": ["--data", drawn_faces, "--images", "2"],
    }[kind]

    def passes(name: str, *options: str | Path) -> Counter[str]:
        passed.clear()
        assert run("evaluate", kind, "--model", recognizer, *data, "--out", tmp_path / name, *options) == 0
        return Counter(passed)

    alone = passes("alone")
    assert passes("same file", "--quality", recognizer) == alone
    # Verification also swaps channels of some; the mirror images of identification need no quality.
    again = alone["theirs"] - IMAGES[kind] if kind == "verification" else 0
    assert passes("two", "--quality", quality) == {**alone, "alone": IMAGES[kind] + again}
    assert passes("two", "--quality", quality) == {}, "the cache has the outputs of both"


def test_the_quality_is_that_of_the_other_file(
    recognizer: Path,
    quality: Path,
    drawn_faces: Path,
    non_faces: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ("evaluate", "ood", "--model", recognizer, "--in", drawn_faces, "--out-of", non_faces)
    assert run(*command, "--out", tmp_path / "own", "--quality", "own") == 0
    assert run(*command, "--out", tmp_path / "two", "--quality", quality) == 0
    (own, of_own), (two, of_two) = (load_result(tmp_path / name) for name in ("own", "two"))
    source = open_source(drawn_faces)
    expected = score_source(source, {"quality": load_quality(quality)})["quality"]
    np.testing.assert_allclose(of_two["ood/faces/quality"], expected, atol=1e-5)
    assert not np.allclose(of_own["ood/faces/quality"], expected)
    assert two.model.name == "theirs with alone"
    assert two.model.sha256 != own.model.sha256
    assert run(*command, "--out", tmp_path / "own", "--quality", quality) == 2
    assert "holds results of theirs" in " ".join(capsys.readouterr().err.split())
