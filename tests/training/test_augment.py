from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("albumentations")

from facerts.datasets.synthetic import draw_face
from facerts.images.corruptions import degrade
from facerts.training.augment import Corruption, build_augmentation

FACE = draw_face(3, 0)


def test_augmentation_depends_only_on_the_key() -> None:
    augment = build_augmentation(flip=True, scale=0.1, shift=0.05, rotation=10, corruption=0.5)
    again = build_augmentation(flip=True, scale=0.1, shift=0.05, rotation=10, corruption=0.5)
    keys = [(1, 0, 5), (1, 0, 6), (1, 1, 5), (2, 0, 5)]
    first = [augment(FACE, key) for key in keys]
    second = [again(FACE, key) for key in reversed(keys)]
    for image, same in zip(first, reversed(second), strict=True):
        assert np.array_equal(image, same)
    assert len({image.tobytes() for image in first}) == 4
    assert all(image.shape == FACE.shape and image.dtype == np.uint8 for image in first)


def test_half_of_the_images_are_mirrored() -> None:
    augment = build_augmentation(flip=True)
    mirrored = sum(np.array_equal(augment(FACE, (0, 0, n)), FACE[:, ::-1]) for n in range(400))
    same = sum(np.array_equal(augment(FACE, (0, 0, n)), FACE) for n in range(400))
    assert mirrored + same == 400
    assert 150 < mirrored < 250


def test_without_options_nothing_changes() -> None:
    assert np.array_equal(build_augmentation(flip=False)(FACE, (0, 0, 0)), FACE)


def test_corruptions_have_their_probability() -> None:
    augment = build_augmentation(flip=False, corruption=0.3)
    changed = sum(not np.array_equal(augment(FACE, (0, 0, n)), FACE) for n in range(400))
    assert 85 < changed < 155


def test_flip_and_geometry_are_independent() -> None:
    # With a common seed, all mirrored images would be shifted in the same direction.
    augment = build_augmentation(flip=True, rotation=20)
    flat = build_augmentation(flip=True)
    mirrored = [not np.array_equal(flat(FACE, (0, 0, n)), FACE) for n in range(300)]
    # The seed of the first transform does not depend on later ones.
    lean = []
    for n in range(300):
        image = augment(FACE, (0, 0, n))
        lean.append(float(image[:30].mean()) - float(image[-30:].mean()))
    assert abs(np.corrcoef(mirrored, lean)[0, 1]) < 0.35


def test_black_borders_have_their_probability_regardless_of_geometry() -> None:
    white = np.full_like(FACE, 255)
    options = {"flip": False, "shift": 0.1, "rotation": 20.0}
    augment = build_augmentation(black_border=0.3, **options)
    black = np.array([(augment(white, (0, 0, n)) == 0).any() for n in range(400)])
    assert 85 < black.sum() < 155
    assert not any((build_augmentation(**options)(white, (0, 0, n)) == 0).any() for n in range(50))
    # All of them have a border, whose position does not depend on its color.
    always = build_augmentation(black_border=1.0, **options)
    above = np.array([(always(white, (0, 0, n))[:20] == 0).sum() for n in range(400)])
    assert abs(np.corrcoef(black, above)[0, 1]) < 0.15


def test_a_view_without_zoom_has_all_other_changes() -> None:
    options = {"points_jitter": 0.05, "scale": 0.1, "shift": 0.05, "rotation": 5.0, "corruption": 0.5}
    augment, never = build_augmentation(zoom=0.5, **options), build_augmentation(**options)
    keys = [(0, 0, n) for n in range(40)]
    for key in keys:
        assert np.array_equal(augment(FACE, key, zoom=False), never(FACE, key))
    zoomed = sum(not np.array_equal(augment(FACE, key), never(FACE, key)) for key in keys)
    assert 10 < zoomed < 30


def chosen(fraction: float, seed: int = 1, images: int = 20_000) -> np.ndarray:
    return Corruption(images, fraction=fraction, radius=3.0, seed=seed).corrupted


def test_the_share_of_corrupted_images_is_the_fraction() -> None:
    for fraction in (0.05, 0.2, 0.5):
        deviation = np.sqrt(fraction * (1 - fraction) / 20_000)
        shares = [chosen(fraction, seed).mean() for seed in range(20)]
        assert np.abs(np.array(shares) - fraction).max() < 4 * deviation
        assert np.std(shares) > deviation / 3
    assert not chosen(0.0).any()
    assert chosen(1.0).all()


def test_corruption_depends_only_on_seed_and_index() -> None:
    assert np.array_equal(chosen(0.2), chosen(0.2))
    # Independent of the choice with another seed: each contains 0.2 of the other.
    assert (chosen(0.2) & chosen(0.2, seed=2)).mean() == pytest.approx(0.04, abs=0.006)
    # More images do not change the choice among the first, and a larger share contains every smaller one.
    assert np.array_equal(chosen(0.2, images=500), chosen(0.2)[:500])
    assert (chosen(0.2) <= chosen(0.3)).all()


def test_corrupted_images_are_blurred_and_others_unchanged() -> None:
    corrupt = Corruption(200, fraction=0.3, radius=3.0, seed=4)
    blurred = degrade(FACE, "blur", 0.6)
    for index, is_corrupted in enumerate(corrupt.corrupted):
        assert np.array_equal(corrupt(FACE, index), blurred if is_corrupted else FACE)
