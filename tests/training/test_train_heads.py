"""The training of quality heads on given features."""

import numpy as np
import pytest
import torch

from facerts.errors import DataError, Error
from facerts.losses import LOSSES
from facerts.losses.leave_one_out_means import LeaveOneOutMeans
from facerts.training.posthoc_features import Features
from facerts.training.train_heads import (
    HeadSettings,
    QualityHeads,
    _Images,
    held_out,
    measured_half,
    train_heads,
)


def build(name, **settings):
    torch.manual_seed(0)
    return LOSSES[name](embedding_size=8, **settings)


def features_of(vectors):
    norm = np.linalg.norm(vectors, axis=1).astype(np.float32)
    return Features((vectors / norm[:, None]).astype(np.float32), norm, np.empty((len(norm), 0), np.float32))


def people(identities, images):
    """Identities in 8 dimensions; the last image of each is noise with a smaller norm."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(identities), images)
    vectors = random.normal(size=(identities, 8))[labels] + 0.2 * random.normal(size=(len(labels), 8))
    poor = np.tile(np.arange(images) == images - 1, identities)
    vectors[poor] = random.normal(size=(poor.sum(), 8)) + 3.0 * np.eye(8)[0]
    return features_of(vectors), labels


def test_every_view_of_an_image_is_compared_with_the_mean_of_the_others_by_a_slow_loop():
    random = np.random.default_rng(0)
    labels = np.array([0, 0, 0, 1, 1, 2, 2, 3])
    vectors = random.normal(size=(3, 8, 5))
    unit = vectors / np.linalg.norm(vectors, axis=2, keepdims=True)
    everybody = np.ones(8, dtype=bool)
    images = _Images(features_of(vectors.reshape(24, 5)), labels, everybody, everybody, torch.device("cpu"))
    # Of the last person there is no other image.
    assert images.numbers.tolist() == [0, 1, 2, 3, 4, 5, 6]
    rows = torch.arange(21)
    own = torch.from_numpy(images.labels)[rows % 7]
    centers = images.centers.without(images.unit[rows % 7], own)
    assert isinstance(centers, LeaveOneOutMeans)
    expected = np.empty((21, 4))
    for row in range(21):
        for identity in range(4):
            others = [unit[0, j] for j in range(8) if labels[j] == identity and j != row % 7]
            mean = np.sum(others, axis=0)
            expected[row, identity] = unit[row // 7, row % 7] @ mean / np.linalg.norm(mean)
    embedding = images.embedding
    np.testing.assert_allclose(embedding, vectors[:, :7].reshape(21, 5), rtol=1e-6)
    np.testing.assert_allclose(centers.cosines(embedding), expected, atol=1e-6)
    to_own, nearest = centers.own_and_nearest(embedding, own)
    is_own = np.arange(4) == own.numpy()[:, None]
    np.testing.assert_allclose(to_own, expected[is_own], atol=1e-6)
    np.testing.assert_allclose(nearest, np.where(is_own, -np.inf, expected).max(axis=1), atol=1e-6)
    scale = torch.linspace(1, 9, 21)
    logits = (expected - 0.25 * is_own) * scale.numpy()[:, None]
    slow = np.log(np.exp(logits).sum(axis=1)) - logits[is_own]
    np.testing.assert_allclose(centers(embedding, own, lambda c: c - 0.25, scale), slow, atol=1e-5)
    assert not centers.weight.requires_grad
    # The means themselves have not changed.
    first = images.centers.cosines(embedding)[0, 0].item()
    total = unit[0, :3].sum(axis=0)
    assert first == pytest.approx(unit[0, 0] @ total / np.linalg.norm(total), abs=1e-6)


@pytest.mark.parametrize(("name", "cached"), [("rts", 1), ("rts", 4), ("tau", 4), ("pfe", 4), ("tempnet", 2)])
def test_batches_are_as_the_method_declares_them(name, cached):
    labels, built = np.repeat(np.arange(20), 5), build(name)
    everybody = np.ones(100, dtype=bool)
    vectors = np.random.default_rng(0).normal(size=(cached * 100, 8))
    source = _Images(features_of(vectors), labels, everybody, everybody, torch.device("cpu"))
    settings = HeadSettings(batch_size=12)
    epoch, again, later = (source.batches(built, settings, number) for number in (3, 3, 4))
    assert len(epoch) == 100 // 12
    for rows in epoch:
        views, images = np.divmod(rows.numpy().reshape(built.views, 12), 100)
        assert (images == images[0]).all()
        assert views.max() < cached
        assert all(len(set(drawn)) == built.views for drawn in views.T)
        if built.sampler == "identities":
            assert (labels[images[0]].reshape(3, 4) == labels[images[0]].reshape(3, 4)[:, :1]).all()
    assert all(torch.equal(a, b) for a, b in zip(epoch, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(epoch, later, strict=True))


def test_heads_use_the_logarithm_of_the_norm():
    vectors = torch.randn(50, 6, generator=torch.Generator().manual_seed(0))
    vectors *= torch.linspace(0.5, 4, 50).unsqueeze(1)
    heads = QualityHeads(vectors, torch.empty(50, 0), build("rts").heads(), 4, norm=True).eval()
    lengths = np.log(np.linalg.norm(vectors.numpy(), axis=1))
    assert heads.mean[-1].item() == pytest.approx(lengths.mean(), abs=1e-5)
    assert heads.deviation[-1].item() == pytest.approx(lengths.std(ddof=1), abs=1e-5)
    with torch.no_grad():
        short, long = heads(vectors), heads(3 * vectors)
    assert not torch.allclose(short["log_scale"], long["log_scale"])
    assert torch.isfinite(heads(torch.zeros(1, 6))["log_scale"]).all()


@pytest.mark.parametrize("name", ["rts", "relaxed_softmax", "godin", "crfiqa", "pfe"])
def test_unidentifiable_images_get_less_quality(name):
    features, labels = people(60, 6)
    method = build(name, **({} if name == "pfe" else {"logit_scale": 16.0, "margin": 0.2}))
    settings = HeadSettings(hidden=32, epochs=12, batch_size=64, lr=1e-2, device="cpu")
    trained = train_heads(method, features, labels, settings)
    with torch.no_grad():
        quality = method.score(trained.heads(torch.from_numpy(features.embedding)))["quality"].numpy()
    quality = quality.reshape(60, 6)
    assert (quality[:, 5] < np.median(quality[:, :5])).mean() > 0.8


def test_training_ends_when_the_heldout_loss_rises_and_keeps_the_best():
    features, labels = people(12, 4)
    settings = HeadSettings(hidden=64, epochs=200, batch_size=16, lr=3e-2, holdout=0.3)
    long = train_heads(build("rts", logit_scale=16.0, kl_weight=0.1), features, labels, settings)
    best = int(np.argmin(long.heldout_loss))
    assert best < len(long.heldout_loss) - 1 < 199
    settings = settings.model_copy(update={"epochs": best + 1})
    short = train_heads(build("rts", logit_scale=16.0, kl_weight=0.1), features, labels, settings)
    torch.testing.assert_close(long.heads.state_dict(), short.heads.state_dict(), rtol=0, atol=0)


def test_heldout_identities_are_complete_and_have_several_images():
    labels = np.array([0, 0, 1, 2, 2, 3, 3, 4, 4, 4, 5])
    held = held_out(labels, 0.5, 1)
    assert 0 < held.sum() < len(labels)
    for identity in range(6):
        assert len(set(held[labels == identity])) == 1
    assert not held[[2, 10]].any()
    assert not held_out(labels, 0.0, 1).any()
    for too_few, share in ((labels, 0.9), (np.arange(5), 0.0)):
        with pytest.raises(DataError, match="at least two must remain"):
            held_out(too_few, share, 1)


def test_too_few_held_out_people_to_contrast_are_refused():
    features, labels = people(40, 4)
    views = Features(*(np.concatenate([values, values]) for values in features))
    with pytest.raises(Error, match=r"held-out images: tempnet: .*, or change train.holdout"):
        train_heads(build("tempnet", rho=4.5), views, labels, HeadSettings(epochs=1, batch_size=128, holdout=0.1))


def test_half_of_the_held_out_people_are_measured_if_they_are_enough_and_have_no_part_in_training():
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(100), 3)
    vectors = random.normal(size=(100, 8))[labels] + 0.3 * random.normal(size=(300, 8))
    settings = HeadSettings(hidden=8, epochs=2, batch_size=32, holdout=0.4, seed=2)
    held = held_out(labels, 0.4, 2)
    half = measured_half(labels, held, 2)
    assert len(np.unique(labels[half])) == 20
    assert not (half & ~held).any()
    assert np.array_equal(half, np.isin(labels, labels[half]))
    assert not measured_half(labels, held_out(labels, 0.39, 1), 1).any()
    losses = []
    for shift in (0, 5):
        trained = train_heads(build("rts"), features_of(vectors + shift * half[:, None]), labels, settings)
        assert np.array_equal(trained.measured, half)
        losses.append((trained.loss, trained.heldout_loss))
    assert losses[0] == losses[1]
