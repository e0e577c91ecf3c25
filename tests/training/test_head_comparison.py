"""A head beside the shipped quality, on people that no training step has seen."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face
from facerts.embedding import FaceOutputs, load_embedder
from facerts.embedding.embed import embed_source
from facerts.embedding.onnx_embedder import OnnxQuality
from facerts.embedding.output_cache import OutputCache
from facerts.images import encode_png
from facerts.training import posthoc
from facerts.training.head_comparison import HeadComparison, MeasuredArea, measure_head
from facerts.training.posthoc_features import features_of
from tests.command import printed_json
from tests.foreign import write_description, write_embedder
from tests.shipped import write_model

PEOPLE, IMAGES = 48, 3
Floats = NDArray[np.float64]


@pytest.fixture(scope="module")
def faces(tmp_path_factory):
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


def edges(x):
    inner = x[..., 1:-1, 1:-1, :]
    sides = x[..., :-2, 1:-1, :], x[..., 2:, 1:-1, :], x[..., 1:-1, :-2, :], x[..., 1:-1, 2:, :]
    return np.abs(4 * inner - sum(sides)).mean(axis=(1, 2, 3))


def colors(x):
    return x.reshape(len(x), 7, 16, 7, 16, 3).mean(axis=(2, 4)).reshape(len(x), 147)


class SharpEmbedder:
    """Projects colors pooled to 7 x 7, provided that edges have the usual strength.

    Embeddings of blurred and noisy images move away, each in its own direction and all in a common one.
    """

    name, method, sha256, identity = "sharp", "unknown", "0" * 64, "sharp"
    usual = np.stack([draw_face(identity, 0, seed=77) for identity in range(64)]) / 127.5 - 1
    matrix = np.random.default_rng(0).normal(size=(147, 16)) / 4

    def __call__(self, crops):
        x = crops / 127.5 - 1
        r = edges(x) / edges(self.usual).mean()
        gate = 8 * (r / (r * r + 1))[:, None] ** 3
        seen = (colors(x) - colors(self.usual).mean(axis=0)) @ self.matrix
        vector = gate * seen + (1 - gate) * (np.sin(50 * seen) + np.sqrt(2) * np.eye(16)[0])
        norm = np.linalg.norm(vector, axis=1)
        unit = vector / norm[:, None]
        return FaceOutputs(unit.astype(np.float32), norm.astype(np.float32), None, None)


def measured(quality_of, faces, tmp_path, people=PEOPLE):
    source, model = open_source(faces), SharpEmbedder()
    assert source.labels is not None
    features = features_of(embed_source(model, source, flip=False))
    reference = OnnxQuality(write_model(tmp_path / "shipped.onnx"))
    return measure_head(
        quality_of,
        features,
        source,
        source.labels < people,
        model,
        reference,
        OutputCache(tmp_path / "cache"),
        has_norm=True,
        seed=3,
    )


def test_a_head_that_knows_the_blur_is_better_and_what_was_computed_is_cached(faces, tmp_path, monkeypatch):
    person = np.repeat(np.arange(PEOPLE, dtype=np.float32), IMAGES)
    blur = person * (np.arange(PEOPLE * IMAGES) % IMAGES == IMAGES - 1)
    clean, degraded = measured(lambda _: -blur, faces, tmp_path)
    assert (clean.people, clean.images, clean.fmr, clean.reference) == (48, 144, 0.001, "shipped")
    assert (degraded.people, degraded.images, degraded.fmr) == (48, 144, 0.001)
    assert degraded.fnmr > clean.fnmr
    assert set(clean.areas) == set(degraded.areas) == {"head", "shipped", "norm"}
    assert clean.difference is not None
    difference = clean.areas["head"].value - clean.areas["shipped"].value
    assert clean.difference.value == pytest.approx(difference, abs=1e-9)
    assert clean.better == "yes"

    def refuse(*_):
        raise AssertionError("images were degraded")

    monkeypatch.setattr("facerts.datasets.changed.apply_change", refuse)
    poor, _ = measured(lambda _: person, faces, tmp_path)
    assert poor.better == "no"
    assert {**poor.areas, "head": 0} == {**clean.areas, "head": 0}
    with pytest.raises(AssertionError, match="degraded"):
        measured(lambda features: features.norm, faces, tmp_path, people=30)


@pytest.mark.parametrize(
    ("interval", "better"),
    [((-0.3, -0.1), "yes"), ((-0.3, 0.1), "unclear"), ((0.1, 0.3), "no"), (None, "not measured")],
)
def test_the_verdict_follows_the_interval_of_the_paired_difference(interval, better):
    difference = None if interval is None else MeasuredArea(sum(interval) / 2, interval)
    areas = {"head": MeasuredArea(0.5, (0.4, 0.6)), "shipped": MeasuredArea(0.7, None)}
    compared = HeadComparison("clean", 40, 120, 0.01, 0.1, 9, "shipped", areas, difference)
    assert compared.better == better
    if difference is None:
        assert compared.verdict == "not measured: only 9 genuine pairs are below the threshold"
    else:
        low, high = interval
        words = f"shipped 0.70; difference {difference.value:+.2f} [{low:+.2f}, {high:+.2f}]; at FMR 0.01"
        assert compared.verdict == f"{better} (area 0.50 [0.40, 0.60], {words})"


@pytest.mark.slow
def test_the_command_writes_the_file_and_says_which_is_better(faces, tmp_path, monkeypatch, capsys):
    shipped = write_model(tmp_path / "facerts-quality.onnx")
    embedder = write_description(write_embedder(tmp_path / "theirs.onnx"), terms="ask")
    # An image of a stranger in each folder, which no recognizer can match.
    faces = Path(shutil.copytree(faces, tmp_path / "faces"))
    for person in range(PEOPLE):
        (faces / f"{person:02d}" / "2.png").write_bytes(encode_png(draw_face(100 + person, 0)))
    monkeypatch.setattr(posthoc, "find_shipped", lambda name: shipped)
    out, cache = tmp_path / "scored.onnx", tmp_path / "cache"
    files = ("--model", embedder, "--data", faces, "--set", f"output_cache={cache}", "--out", out)
    settings = ("kl_weight=3", "train.epochs=1", "train.batch_size=16", "train.holdout=0.85")
    summary = printed_json(capsys, "posthoc", "rts", *settings, *files, "--terms", "drawn")
    assert [summary["file"], summary["features"]] == [str(out), str(cache)]
    assert len(summary["loss"]) == len(summary["heldout_loss"]) == 1
    assert load_embedder(out).description.terms == "ask; drawn"
    assert [comparison["crops"] for comparison in summary["comparisons"]] == ["clean", "degraded"]
    for comparison in summary["comparisons"]:
        assert comparison["people"] == 20
        assert set(comparison["areas"]) == {"head", "facerts-quality", "norm"}
        assert comparison["verdict"].startswith(comparison["better"])
    clearly = all(comparison["better"] == "yes" for comparison in summary["comparisons"])
    assert clearly == (summary["advice"] == "")


def test_advice_names_graft_unless_the_head_is_better_everywhere():
    def advice(*answers):
        comparisons = [SimpleNamespace(better=answer) for answer in answers]
        return posthoc.GraftResult(None, None, None, Path(), comparisons).advice

    assert advice("yes", "yes") == ""
    assert "could not be compared with facerts-quality: that takes 40 held-out people" in advice()
    for answers in (("yes", "no"), ("unclear", "yes"), ("yes", "not measured")):
        assert "facerts posthoc graft --quality facerts-quality" in advice(*answers)
