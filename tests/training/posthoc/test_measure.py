"""A head beside the shipped quality, on people that no training step has seen."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.embedding.embed import embed_source
from facerts.embedding.onnx_quality import load_quality
from facerts.embedding.output_cache import OutputCache
from facerts.images import encode_png
from facerts.training.posthoc import posthoc_quality
from facerts.training.posthoc.features import Features, features_of
from facerts.training.posthoc.measure import HeadComparison, measure_head
from tests.command import run as run_command
from tests.shipped import write_model
from tests.training.posthoc.embedder import write_sharp_embedder

PEOPLE, IMAGES = 48, 3


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder by identity: 48 people with 3 images, which are the same but for the last one's increasing blur."""
    folder = tmp_path_factory.mktemp("measured") / "faces"
    for person in range(PEOPLE):
        (folder / f"{person:02d}").mkdir(parents=True)
        face = draw_face(person, 0, seed=5)
        for number in range(IMAGES):
            if number == IMAGES - 1:
                face = cv2.GaussianBlur(face, (0, 0), 0.2 + person / 30)
            (folder / f"{person:02d}" / f"{number}.png").write_bytes(encode_png(face))
    return folder


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_sharp_embedder(tmp_path_factory.mktemp("model") / "theirs.onnx")


def measured(
    quality_of: Any, faces: Path, embedder: Path, tmp_path: Path, people: int = PEOPLE
) -> tuple[HeadComparison, ...]:
    source, model = open_source(faces), load_embedder(embedder)
    assert source.labels is not None
    features = features_of(embed_source(model, source, flip=False))
    reference = load_quality(write_model(tmp_path / "shipped.onnx"))
    return measure_head(
        quality_of,
        features,
        source,
        source.labels,
        source.labels < people,
        model,
        reference,
        OutputCache(tmp_path / "cache"),
        has_norm=True,
        seed=3,
    )


def sharpness(features: Features) -> NDArray[np.float32]:
    """The sharp embedder's embeddings of poor images point in one direction, that of the first axis."""
    return -features.unit[:, 0]


def slow_area(unit: NDArray[Any], people: NDArray[Any], quality: NDArray[Any], fmr: float) -> float:
    """Mean FNMR over 0, 0.1, …, 30 % of genuine pairs rejected, divided by that without rejection, pair by pair."""
    genuine, ranks, impostors = [], [], []
    for i in range(len(unit)):
        for j in range(i):
            cosine = float(unit[i] @ unit[j])
            if people[i] == people[j]:
                genuine.append(cosine)
                ranks.append(min(quality[i], quality[j]))
            else:
                impostors.append(cosine)
    allowed = int(fmr * len(impostors) + 1e-9)
    threshold = sorted(impostors, reverse=True)[allowed]
    errors = [cosine <= threshold for cosine in genuine]
    # Of pairs of equal quality, each counts as their mean.
    tied = {
        rank: np.mean([error for error, r in zip(errors, ranks, strict=True) if r == rank]) for rank in ranks
    }
    wrong = np.array([tied[rank] for rank in sorted(ranks)])
    rates = [wrong[int(step / 1000 * len(wrong) + 1e-9) :].mean() for step in range(301)]
    return float((np.sum(rates) - (rates[0] + rates[-1]) / 2) / 300 / rates[0])


def test_areas_by_a_slow_loop_and_what_was_computed_is_cached(
    faces: Path, embedder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean, degraded = measured(sharpness, faces, embedder, tmp_path, people=40)
    source = open_source(faces)
    assert source.labels is not None
    rows = source.labels < 40
    outputs = embed_source(load_embedder(embedder), source, flip=False)
    crops = np.stack([source.crop(int(row)) for row in np.flatnonzero(rows)])
    reference = load_quality(tmp_path / "shipped.onnx")(crops)
    assert outputs.norm is not None
    unit = outputs.embedding[rows].astype(np.float64)
    for name, quality in (
        ("head", -unit[:, 0]),
        ("shipped", reference),
        ("norm", outputs.norm[rows]),
    ):
        expected = slow_area(unit, source.labels[rows], quality, clean.fmr)
        assert clean.areas[name].value == pytest.approx(expected, abs=2e-3), name
    assert (clean.people, clean.images, clean.fmr, clean.reference) == (40, 120, 0.01, "shipped")
    assert clean.difference is not None
    assert clean.difference.value == pytest.approx(
        clean.areas["head"].value - clean.areas["shipped"].value, abs=1e-9
    )
    assert degraded.fnmr > clean.fnmr
    assert (degraded.people, degraded.fmr) == (40, 0.01)

    def refuse(*_: object) -> None:
        raise AssertionError("images were degraded")

    monkeypatch.setattr("facerts.datasets.changed.degrade", refuse)
    assert measured(sharpness, faces, embedder, tmp_path, people=40) == (clean, degraded)
    with pytest.raises(AssertionError, match="degraded"):
        measured(sharpness, faces, embedder, tmp_path, people=30)


@pytest.mark.slow
def test_the_verdict_follows_the_paired_difference(faces: Path, embedder: Path, tmp_path: Path) -> None:
    person = np.repeat(np.arange(PEOPLE, dtype=np.float32), IMAGES)
    blurred = np.arange(PEOPLE * IMAGES) % IMAGES == IMAGES - 1
    good, _ = measured(lambda _: -person * blurred, faces, embedder, tmp_path)
    poor, _ = measured(lambda _: person, faces, embedder, tmp_path)
    assert (good.better, poor.better) == ("yes", "no")
    assert good.verdict.startswith("yes (area 0.")
    assert good.difference is not None
    assert f"difference {good.difference.value:+.2f} [" in good.verdict
    few, _ = measured(lambda features: features.norm, faces, embedder, tmp_path, people=6)
    assert few.errors < 10
    assert few.verdict == f"not measured: only {few.errors} genuine pairs are below the threshold"


@pytest.mark.slow
def test_the_command_says_which_is_better(
    faces: Path,
    embedder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = write_model(tmp_path / "facerts-small.onnx")
    monkeypatch.setattr(posthoc_quality, "find_shipped", lambda name: shipped)
    common = ("posthoc", "rts", "--model", embedder, "--data", faces, "--epochs", "1", "--train-batch", "16")
    many = ("--holdout", "0.85", "--out", tmp_path / "scored.onnx")
    assert run_command(*common, *many, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert [comparison["crops"] for comparison in summary["comparisons"]] == ["clean", "degraded"]
    for comparison in summary["comparisons"]:
        assert comparison["people"] == 20
        assert set(comparison["areas"]) == {"head", "facerts-small", "norm"}
        assert comparison["verdict"].startswith(comparison["better"])
    clearly = all(comparison["better"] == "yes" for comparison in summary["comparisons"])
    assert clearly == (summary["advice"] == "")
    assert run_command(*common, "--out", tmp_path / "few.onnx") == 0
    captured = capsys.readouterr()
    assert "could not be compared with facerts-small: that takes 40 held-out people" in captured.err
    assert "better than" not in captured.out


def test_advice_names_graft_unless_the_head_is_better_everywhere() -> None:
    def advice(*answers: str) -> str:
        comparisons: Any = tuple(SimpleNamespace(better=answer) for answer in answers)
        nothing: Any = None
        return posthoc_quality.GraftResult(nothing, nothing, Path(), comparisons).advice

    assert advice("yes", "yes") == ""
    for answers in (("yes", "no"), ("unclear", "yes"), ("yes", "not measured")):
        assert "facerts posthoc graft --quality facerts-small" in advice(*answers)
