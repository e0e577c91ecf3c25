"""Corruption blurs a fixed share of the training images, independently of everything else."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.cli import main
from facerts.datasets import open_source
from facerts.errors import Error
from facerts.images.corruptions import gaussian_blur
from facerts.training.augment import build_augmentation
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from facerts.training.recipe import Recipe

MakeRecipe = Callable[..., Recipe]
PLAIN = "data.augmentation={flip: false}"
IMAGES, EPOCH = 64, 4


def images_of(recipe: Recipe, epoch: int) -> dict[int, NDArray[np.uint8]]:
    """Every training image of an epoch, by index."""
    found = {}
    for crops, _, samples in TrainingData(recipe).batches(EPOCH * epoch, EPOCH * (epoch + 1)):
        found.update(zip(samples.tolist(), crops.numpy(), strict=True))
    assert sorted(found) == list(range(IMAGES))
    return found


def blurred(recipe: Recipe, epoch: int, clean: dict[int, NDArray[np.uint8]], radius: float) -> set[int]:
    """The indices of blurred images; all others must be unchanged."""
    worse = set()
    for index, crop in images_of(recipe, epoch).items():
        if np.array_equal(crop, gaussian_blur(clean[index], radius)):
            worse.add(index)
        else:
            assert np.array_equal(crop, clean[index])
    return worse


@pytest.mark.slow
def test_the_same_images_are_blurred_in_every_epoch_and_by_any_number_of_workers(
    make_recipe: MakeRecipe, drawn_faces: Path
) -> None:
    source = open_source(drawn_faces)
    clean = {index: source.crop(index) for index in range(IMAGES)}
    first = blurred(make_recipe(PLAIN, "data.corrupt_fraction=0.4"), 0, clean, 3.0)
    assert 13 <= len(first) <= 38  # 0.4 of 64, three standard deviations either way
    assert blurred(make_recipe(PLAIN, "data.corrupt_fraction=0.4"), 3, clean, 3.0) == first
    more = ("data.workers=2", "data.corrupt_radius=5")
    assert blurred(make_recipe(PLAIN, "data.corrupt_fraction=0.4", *more), 1, clean, 5.0) == first
    assert blurred(make_recipe(PLAIN, "data.corrupt_fraction=0.4", "seed=6"), 0, clean, 3.0) != first
    assert blurred(make_recipe(PLAIN, "data.corrupt_fraction=1"), 0, clean, 3.0) == set(range(IMAGES))
    assert blurred(make_recipe(PLAIN, "data.corrupt_radius=5"), 0, clean, 5.0) == set()
    # A run resumed at step 6 gets the same images as the uninterrupted run.
    data = TrainingData(make_recipe("data.corrupt_fraction=0.4"))
    for whole, resumed in zip(list(data.batches(0, 8))[6:], data.batches(6, 8), strict=True):
        assert np.array_equal(whole[0], resumed[0])


def test_images_are_blurred_before_they_are_augmented(make_recipe: MakeRecipe, drawn_faces: Path) -> None:
    """Blur does not change the augmentation of an image."""
    source, augment = open_source(drawn_faces), build_augmentation(flip=True, rotation=15)
    augmentation = "data.augmentation={flip: true, rotation: 15}"
    for index, crop in images_of(make_recipe(augmentation, "data.corrupt_fraction=1"), 2).items():
        assert np.array_equal(crop, augment(gaussian_blur(source.crop(index), 3.0), (5, 2, index)))
    for index, crop in images_of(make_recipe(augmentation), 2).items():
        assert np.array_equal(crop, augment(source.crop(index), (5, 2, index)))


def test_heldout_people_are_validated_without_corruption(make_recipe: MakeRecipe, drawn_faces: Path) -> None:
    options = ("data.holdout_identities=4", "optim.batch_size=8")
    heldout = TrainingData(make_recipe("data.corrupt_fraction=1", *options)).heldout
    same = TrainingData(make_recipe(*options)).heldout
    assert heldout is not None
    assert same is not None
    for index in range(len(heldout)):
        assert np.array_equal(heldout.crop(index), same.crop(index))


@pytest.mark.parametrize("change", ["data.corrupt_fraction=0.3", "data.corrupt_radius=2"])
def test_a_run_does_not_resume_with_other_corruption(
    make_recipe: MakeRecipe, tmp_path: Path, change: str
) -> None:
    short = ("optim.epochs=0.25", "optim.milestones=[]", "data.corrupt_fraction=0.2")
    train(make_recipe(*short), tmp_path / "run")
    field = change.partition("=")[0].replace(".", r"\.")
    with pytest.raises(Error, match=rf"{field} changed"):
        train(make_recipe(*short, change), tmp_path / "run", resume=True)


def test_the_command_line_has_a_short_way(make_recipe: MakeRecipe, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(make_recipe("optim.epochs=0.25", "optim.milestones=[]").to_yaml())
    sys.argv = ["facerts", "train", str(recipe), "--corrupt-fraction", "0.2", "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert "corrupt_fraction: 0.2" in (tmp_path / "run" / "recipe.yaml").read_text()
    sys.argv[4] = "1.5"
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
