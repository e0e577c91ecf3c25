"""Adapting an embedding to people in closed form, and the recipe that does it for the model that ships."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from facerts.datasets import open_source
from facerts.datasets.synthetic import write_synthetic_faces
from facerts.embedding import load_embedder
from facerts.errors import DataError
from facerts.evaluation import embed_source
from facerts.evaluation.while_training import NetworkEmbedder
from facerts.hub.find import find_model
from facerts.metrics.all_pairs import compare_all, tar_estimates
from facerts.training.adapt import adapt_embedding, adapted_map
from facerts.training.learner import Learner
from facerts.training.loader import TrainingData
from facerts.training.validation import MIN_PEOPLE, start_verdict
from tests.command import run


def drawn_embeddings(people, images, size=6):
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(people), images)
    spread = np.linspace(0.1, 1, size)
    means = 3 + random.normal(size=(people, size))
    return means[labels] + spread * random.normal(size=(len(labels), size)), labels


def within(embedding, labels):
    """The covariance within a person, person by person."""
    parts = [embedding[labels == label] - embedding[labels == label].mean(axis=0) for label in np.unique(labels)]
    return sum(part.T @ part for part in parts) / (len(labels) - len(parts))


def test_the_map_takes_the_mean_away_and_evens_out_the_directions_within_a_person():
    embedding, labels = drawn_embeddings(people=40, images=5)
    linear, mean = adapted_map(embedding, labels, 0.999999)
    adapted = (embedding - mean) @ linear
    covariance = within(adapted, labels)
    assert covariance == pytest.approx(np.eye(6) * covariance[0, 0], abs=1e-4 * covariance[0, 0])
    means = np.stack([embedding[labels == label].mean(axis=0) for label in range(40)])
    uncertainty = means.var(axis=0, ddof=1).sum() / 40
    shrink = 1 - uncertainty / np.square(means.mean(axis=0)).sum()
    assert 0.9 < shrink < 1
    assert mean == pytest.approx(shrink * means.mean(axis=0))
    lengths = [np.linalg.norm(rows, axis=1).mean() for rows in (embedding, adapted)]
    assert lengths[0] == pytest.approx(lengths[1])
    # Without a share of the people's own covariance, all directions are treated alike.
    linear, _ = adapted_map(embedding, labels, 0.0)
    assert linear == pytest.approx(np.eye(6) * linear[0, 0])


def test_people_with_many_images_weigh_as_much_as_others():
    embedding, labels = drawn_embeddings(people=10, images=4)
    again = np.concatenate([np.arange(40), np.tile(np.arange(4), 5)])
    assert adapted_map(embedding[again], labels[again], 0.1)[1] == pytest.approx(adapted_map(embedding, labels, 0.1)[1])


@pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0]])
def test_a_map_needs_two_people_and_two_images_of_one(labels):
    with pytest.raises(ValueError, match="two people, and two images of one"):
        adapted_map(np.random.default_rng(0).normal(size=(3, 4)), np.array(labels), 0.1)


def test_the_network_computes_the_map_and_the_same_quality(make_recipe):
    recipe = make_recipe()
    learner, data = Learner(recipe, 4), TrainingData(recipe)
    norm = learner.network.embedding[1]
    for statistics in (norm.running_mean, norm.running_var, norm.bias.data):
        statistics.uniform_(0.5, 2, generator=torch.Generator().manual_seed(1))
    embedder = NetworkEmbedder(learner.network, learner.loss.score)
    before = embed_source(embedder, data.source, flip=False, progress=False)
    assert before.norm is not None
    assert data.source.labels is not None
    raw = before.embedding * before.norm[:, None].astype(np.float64)
    linear, mean = adapted_map(raw, data.source.labels, 0.1)
    assert adapt_embedding(learner.network, data.source, 0.1) is norm
    after = embed_source(embedder, data.source, flip=False, progress=False)
    expected = (raw - mean) @ linear
    # The map whitens, and amplifies the rounding of float32 with it.
    assert after.norm == pytest.approx(np.linalg.norm(expected, axis=1), abs=1e-2)
    assert after.embedding * after.norm[:, None] == pytest.approx(expected, abs=1e-2)
    np.testing.assert_array_equal(after.quality, before.quality)


def test_a_quality_of_the_embedding_stays_what_it_was(make_recipe):
    recipe = make_recipe("method=crfiqa")
    learner, data = Learner(recipe, 4), TrainingData(recipe)
    # Another direction is stretched than those that the people's images determine.
    learner.network.embedding[0].weight.data[0] *= 5
    embedder = NetworkEmbedder(learner.network, learner.loss.score)
    before = embed_source(embedder, data.source, flip=False, progress=False)
    adapt_embedding(learner.network, data.source, 0.1)
    after = embed_source(embedder, data.source, flip=False, progress=False)
    assert np.abs(after.embedding - before.embedding).max() > 0.1
    np.testing.assert_allclose(after.quality, before.quality, atol=1e-3 * np.ptp(before.quality))


def test_my_faces_adapts_the_model_that_ships_says_whether_it_is_better_and_has_thresholds(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    write_synthetic_faces(Path("people"), identities=20, images=4, seed=3)
    assert run("train", "my_faces", "data.train=people") == 0
    text = capsys.readouterr().err
    assert "  start      facerts-small, its embedding adapted to these people" in text
    assert "  length     no training steps" in text
    verdict = next(line for line in text.splitlines() if "than facerts-small: " in line)
    assert "on 6 held-out people (24 images)" in verdict
    logged = json.loads(Path("runs/my_faces/log.jsonl").read_text().splitlines()[-1])
    assert (logged["kind"], logged["text"]) == ("verdict", verdict.strip())
    # Nothing is left to train.
    assert run("train", "my_faces", "data.train=people", "--resume") == 0
    assert "this run is finished" in capsys.readouterr().err

    command = next(line for line in text.splitlines() if line.startswith("  facerts export "))
    assert run(*shlex.split(command)[1:], "--json") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["calibrated_on"] == "24 faces of 6 people (people_heldout)"
    assert result["match_thresholds"] == ["0.01"]
    assert "  facerts verify A.jpg B.jpg --model my_faces.onnx" in captured.err
    assert "calibrate" not in captured.err.partition("next:")[2]
    adapted, shipped = load_embedder(Path("my_faces.onnx")), load_embedder(find_model("facerts-small"))
    assert shipped.description.terms in adapted.description.terms
    source = open_source("people")
    ours, theirs = (embed_source(embedder, source, flip=False, progress=False) for embedder in (adapted, shipped))
    np.testing.assert_allclose(ours.quality, theirs.quality, atol=1e-3)
    assert np.abs(ours.embedding - theirs.embedding).max() > 0.01


def test_too_few_pairs_to_compare_are_said_so(tmp_path, capsys):
    write_synthetic_faces(tmp_path / "people", identities=8, images=3)
    command = ("train", "my_faces", f"data.train={tmp_path / 'people'}", "--out", tmp_path / "run")
    assert run(*command, "validation.pairs=10") == 0
    said = capsys.readouterr().err
    assert "people_heldout has too few pairs to tell whether this model is better than facerts-small" in said


@pytest.mark.parametrize(
    ("people", "ci95", "word"),
    [
        (MIN_PEOPLE, (-0.2, -0.1), "better than"),
        (MIN_PEOPLE - 1, (-0.2, -0.1), "not clearly better than"),
        (MIN_PEOPLE, (-0.2, 0.1), "not clearly better than"),
        (MIN_PEOPLE, (0.1, 0.2), "worse than"),
    ],
)
def test_the_verdict_follows_from_interval_and_people(people, ci95, word):
    verdict = start_verdict("shipped", people, 100, 0.01, 0.3, 0.2, ci95)
    assert verdict.startswith(f"{word} shipped: at FMR 0.01 it misses 0.2000")
    assert ("use shipped" in verdict) == (word != "better than")


def test_an_interval_of_no_width_means_too_few_people():
    verdict = start_verdict("shipped", 6, 30, 0.1, 0.0, 0.0, (0.0, 0.0))
    assert "(difference +0.0000), on 6 held-out people (30 images), too few to tell; hold out more" in verdict


def test_fnmr_and_its_replicates_are_of_the_genuine_pairs():
    random = np.random.default_rng(2)
    labels = np.repeat(np.arange(12), 4)
    vectors = random.normal(size=(12, 8))[labels] + 0.8 * random.normal(size=(48, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = compare_all(vectors.astype(np.float32), labels)
    estimate = tar_estimates(pairs, [0.05], replicates=1000)[0.05]
    rate, drawn = 1 - estimate.value, 1 - estimate.replicates
    scores = vectors @ vectors.T
    first, second = np.triu_indices(48, 1)
    same = labels[first] == labels[second]
    impostors = np.sort(scores[first, second][~same])[::-1]
    limit = impostors[int(0.05 * len(impostors))]
    assert rate == pytest.approx(np.mean(scores[first, second][same] <= limit), abs=0.01)
    low, high = np.quantile(drawn, [0.025, 0.975])
    assert low < rate < high


def test_people_with_one_image_each_are_named(make_recipe, tmp_path):
    recipe = make_recipe()
    write_synthetic_faces(tmp_path / "single", identities=5, images=1)
    learner = Learner(recipe, 4)
    with pytest.raises(DataError, match=r"single: adapting needs two people.*backbone\.adapt=null"):
        adapt_embedding(learner.network, open_source(tmp_path / "single"), 0.1)
