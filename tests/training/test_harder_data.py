"""Few images of all or half of the identities, and wrong labels: what changes, how much, and that nothing else does."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from facerts.datasets import Source, open_source
from facerts.errors import RecipeError
from facerts.training.harder_data import kept_images, noisy_labels
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from tests.training.conftest import MakeRecipe

Labels = NDArray[np.int64]

# The synthetic faces: eight identities of eight images, in order.
IDENTITIES, IMAGES = 8, 8
SMALL = "optim.batch_size=4"


def mixed_labels(sizes: Sequence[int] = (1, 2, 3, 7, 20, 40, 100)) -> Labels:
    """Shuffled labels of identities of these sizes."""
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))


def kept(labels: Labels, images: int | None = None, imbalance: float = 1.0, seed: int = 5) -> set[int]:
    """The kept images, which must be in order and of every identity."""
    indices = kept_images(labels, images_per_identity=images, imbalance=imbalance, seed=seed)
    assert (np.diff(indices) > 0).all()
    assert set(labels[indices]) == set(labels)
    return set(indices.tolist())


def counts(labels: Labels, indices: set[int]) -> list[int]:
    found = Counter(int(labels[index]) for index in indices)
    return [found[label] for label in range(len(found))]


def keys(source: Source) -> list[str]:
    return [source.key(index) for index in range(len(source))]


@pytest.mark.parametrize("images", [1, 2, 5, 30, 1000])
def test_each_identity_keeps_at_most_the_maximum(images: int) -> None:
    sizes = [1, 2, 3, 7, 20, 40, 100]
    assert counts(mixed_labels(sizes), kept(mixed_labels(sizes), images)) == [min(n, images) for n in sizes]


@pytest.mark.parametrize(("imbalance", "left"), [(1.0, 50), (0.5, 25), (0.1, 5), (0.05, 2), (1e-9, 1)])
@pytest.mark.parametrize("identities", [2, 11])
def test_half_of_the_identities_keep_a_share(identities: int, imbalance: float, left: int) -> None:
    labels = mixed_labels([50] * identities)
    found = counts(labels, kept(labels, imbalance=imbalance))
    assert sorted(found) == sorted([left] * (identities // 2) + [50] * (identities - identities // 2))


def test_which_half_is_random_and_the_same_for_every_share() -> None:
    labels = mixed_labels([50] * 40)
    halves = [np.array(counts(labels, kept(labels, imbalance=share))) < 50 for share in (0.5, 0.05)]
    assert (halves[0] == halves[1]).all()
    assert 0 < halves[0][:20].sum() < 20
    assert (halves[0] != (np.array(counts(labels, kept(labels, imbalance=0.5, seed=6))) < 50)).any()


def test_the_share_is_of_the_images_that_few_per_identity_leave() -> None:
    left = counts(mixed_labels([3, 20, 50, 80]), kept(mixed_labels([3, 20, 50, 80]), 10, 0.5))
    assert all(
        kept in (all_, max(1, round(all_ / 2))) for kept, all_ in zip(left, (3, 10, 10, 10), strict=True)
    )
    assert sum(left) < 33


def test_fewer_images_are_a_subset_of_more() -> None:
    labels = mixed_labels()
    for imbalance in (1.0, 0.2):
        chain = [kept(labels, images, imbalance) for images in (1, 2, 6, 25, 80, None)]
        assert all(few <= more for few, more in pairwise(chain))
        assert len({len(found) for found in chain}) == len(chain)
    for images in (None, 30):
        chain = [kept(labels, images, imbalance) for imbalance in (0.005, 0.05, 0.3, 0.7, 1)]
        assert all(few <= more for few, more in pairwise(chain))
        assert len({len(found) for found in chain}) == len(chain)


@pytest.mark.parametrize("identities", [2, 3, 50])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9])
def test_the_share_of_images_gets_a_wrong_label(identities: int, share: float) -> None:
    labels = np.random.default_rng(1).integers(0, identities, 4000)
    noisy = noisy_labels(labels, identities=identities, share=share, seed=5)
    assert (noisy.min(), noisy.max()) == (0, identities - 1)
    wrong = noisy != labels
    # Four standard deviations; a draw that could be the own label would lower this by share / identities.
    assert wrong.mean() == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 4000))
    if share:
        steps = np.bincount((noisy - labels)[wrong] % identities, minlength=identities)
        expected = wrong.sum() / (identities - 1)
        assert steps[0] == 0
        assert np.abs(steps[1:] - expected).max() <= 5 * math.sqrt(expected)


def test_a_smaller_share_of_wrong_labels_is_a_subset_with_the_same_labels() -> None:
    labels = mixed_labels()
    chain = [noisy_labels(labels, identities=7, share=share, seed=5) for share in (0, 0.1, 0.4, 0.9)]
    for less, more in pairwise(chain):
        changed = less != labels
        assert (less[changed] == more[changed]).all()
        assert changed.sum() < (more != labels).sum()
    assert (chain[2] == noisy_labels(labels, identities=7, share=0.4, seed=5)).all()
    assert (chain[2] != noisy_labels(labels, identities=7, share=0.4, seed=6)).any()


@pytest.mark.parametrize("method", ["rts", "supcon"])
def test_batches_are_of_the_kept_images_with_their_noisy_labels(
    make_recipe: MakeRecipe, drawn_faces: Path, method: str
) -> None:
    """Also with workers, in a resumed run, and in batches by identity."""
    whole = open_source(drawn_faces)
    assert whole.labels is not None
    options = (
        *(f"method.name={method}", "data.images_per_identity=6", "data.imbalance=0.5"),
        *("data.label_noise=0.4", "data.augmentation={flip: false}", "optim.batch_size=8"),
    )
    data = TrainingData(make_recipe(*options))
    number = {key: index for index, key in enumerate(keys(whole))}
    indices = [number[key] for key in keys(data.source)]
    assert set(indices) == kept(whole.labels, 6, 0.5)
    noisy = noisy_labels(whole.labels, identities=IDENTITIES, share=0.4, seed=5)[indices]
    assert data.source.labels is not None
    assert data.source.labels.tolist() == noisy.tolist()
    assert data.identities == len(data.source.identities) == IDENTITIES
    assert data.left_out == 64 - len(indices) > 16
    assert (
        data.mislabeled == sum(whole.labels[i] != label for i, label in zip(indices, noisy, strict=True)) > 0
    )
    batches = list(data.batches(0, 7))
    for crops, labels, samples, *_ in batches:
        for crop, label, sample in zip(crops.numpy(), labels.tolist(), samples.tolist(), strict=True):
            assert label == noisy[sample]
            assert np.array_equal(crop, whole.crop(indices[sample]))
        if method == "supcon":
            assert all(len(set(run)) == 1 for run in labels.reshape(-1, 4).tolist())
    resumed = TrainingData(make_recipe(*options, "data.workers=2")).batches(3, 7)
    for one, other in zip(batches[3:], resumed, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(one, other, strict=True))


def test_batches_by_identity_need_two_images_of_somebody(make_recipe: MakeRecipe) -> None:
    with pytest.raises(RecipeError, match=r"supcon draws .* data\.images_per_identity must be at least 2"):
        make_recipe("method.name=supcon", "data.images_per_identity=1")
    make_recipe("data.images_per_identity=1")
    data = TrainingData(
        make_recipe("method.name=supcon", "data.imbalance=0.1", "data.images_per_identity=2", SMALL)
    )
    # Half of the identities keep both images; the others keep one and have no pair.
    assert data.source.labels is not None
    pairs = set(np.flatnonzero(np.bincount(data.source.labels) > 1).tolist())
    assert len(pairs) == IDENTITIES // 2
    assert {label for _, labels, *_ in data.batches(0, 12) for label in labels.tolist()} == pairs


def test_a_run_trains_and_says_what_it_left_out_and_mislabeled(
    make_recipe: MakeRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("data.images_per_identity=6", "data.imbalance=0.5", "data.label_noise=0.3")
    options += ("optim.epochs=1", "optim.milestones=[]", "optim.batch_size=8")
    recipe = make_recipe(*options)
    data = TrainingData(recipe)
    train(recipe, tmp_path / "run")
    counted = f"{data.left_out} left out, {data.mislabeled} with a wrong label"
    assert f"images     {len(data)} of 8 identities (drawn), {counted}\n" in capsys.readouterr().err
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all(math.isfinite(line["loss"]) for line in lines if line["kind"] == "train")
