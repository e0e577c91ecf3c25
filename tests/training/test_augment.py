"""Augmentation, against independent arithmetic, and the corruption of a fixed share of the images."""

import re

import numpy as np
import pytest

pytest.importorskip("torch")

import albumentations
import cv2

from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError
from facerts.images.align import TEMPLATE
from facerts.images.changes import CHANGES, DEGRADATIONS
from facerts.training import augment as module
from facerts.training.augment import Geometry, build_augmentation
from facerts.training.recipe import Augmentation

FACE = draw_face(3, 0)
CENTER = np.array([55.5, 55.5])


def geometry(**options):
    return Geometry(Augmentation(**options))


def augmenter(**options):
    return build_augmentation(Augmentation(**{"flip": False, **options}))


def matrices(count=3000, **options):
    drawn = geometry(**options)
    return np.array([drawn.matrix(np.random.default_rng((7, n))) for n in range(count)])


def moved(matrix, points):
    return points @ np.swapaxes(matrix[..., :2], -1, -2) + matrix[..., None, :, 2]


def factors(matrix):
    return np.sqrt(np.linalg.det(matrix[..., :2]))


def dot(x, y):
    """A soft white dot on black."""
    column, row = np.arange(112), np.arange(112)[:, None]
    bright = 255 * np.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * 3.0**2))
    return np.repeat(np.rint(bright)[..., None], 3, axis=2).astype(np.uint8)


def centroid(image):
    weight = image[..., 0].astype(float)
    return np.array([(weight * np.arange(112)).sum(), (weight * np.arange(112)[:, None]).sum()]) / weight.sum()


def test_the_matrix_maps_the_old_crop_to_the_new():
    drawn = geometry(scale=0.1, shift=0.05, rotation=10)
    for seed in range(20):
        place = np.array([62.0, 50.0])
        expected = moved(drawn.matrix(np.random.default_rng(seed)), place[None])[0]
        image = drawn(dot(*place), np.random.default_rng(seed))
        assert centroid(image) == pytest.approx(expected, abs=0.15)


def test_scale_rotation_and_shift_are_uniform_up_to_their_maxima():
    drawn = matrices(scale=0.15, shift=0.04, rotation=8.0)
    scales = (factors(drawn) - 1) / 0.15
    angles = np.rad2deg(np.arctan2(drawn[:, 1, 0], drawn[:, 0, 0])) / 8.0
    right, down = ((moved(drawn, CENTER[None])[:, 0] - CENTER) / (0.04 * 112)).T
    for values in (scales, angles, right, down):
        assert np.abs(values).max() <= 1 + 1e-9
        quantiles = np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])
        assert quantiles == pytest.approx([-0.8, -0.5, 0, 0.5, 0.8], abs=0.07)
    related = np.corrcoef([scales, angles, right, down])
    assert np.abs(related - np.eye(4)).max() < 0.06


def test_corruptions_have_all_kinds_and_severities_up_to_the_maximum(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        module,
        "apply_change",
        lambda image, kind, severity, seed: drawn.append((kind, severity, seed)) or image,
    )
    corrupt = augmenter(change=1.0, kinds=list(DEGRADATIONS), max_severity=0.4)
    for n in range(600):
        corrupt(FACE, (2, 0, n))
    kinds, severities, seeds = zip(*drawn, strict=True)
    shares = np.unique(kinds, return_counts=True)
    assert set(shares[0]) == set(DEGRADATIONS)
    assert shares[1] / 600 == pytest.approx(np.full(len(DEGRADATIONS), 1 / len(DEGRADATIONS)), abs=0.05)
    assert np.quantile(severities, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx([0, 0.1, 0.2, 0.3, 0.4], abs=0.03)
    assert len(set(seeds)) == 600


def test_geometry_without_options_changes_nothing():
    assert np.array_equal(geometry().matrix(np.random.default_rng(1)), np.eye(2, 3))
    unlucky = augmenter(change=1e-12)
    assert all(np.array_equal(unlucky(FACE, (0, 0, n)), FACE) for n in range(20))


EVERYTHING = {"scale": 0.1, "shift": 0.04, "rotation": 8, "change": 0.6, "more_changes": 0.3}


def test_everything_depends_only_on_the_key():
    augment, again = augmenter(flip=True, **EVERYTHING), augmenter(flip=True, **EVERYTHING)
    keys = [(1, 0, n) for n in range(20)] + [(1, 1, 0), (2, 0, 0), (1, 0, 0, 1)]
    first = [augment(FACE, key) for key in keys]
    second = [again(FACE, key) for key in reversed(keys)]
    assert all(np.array_equal(a, b) for a, b in zip(first, reversed(second), strict=True))
    assert len({image.tobytes() for image in first}) == len(keys)
    assert all(image.shape == FACE.shape and image.dtype == np.uint8 for image in first)


def test_random_choices_are_independent():
    keys = [(6, 0, n) for n in range(800)]
    flip = augmenter(flip=True)
    flipped = np.array([not np.array_equal(flip(FACE, key), FACE) for key in keys])
    assert all(np.array_equal(flip(FACE, keys[n]), FACE[:, ::-1]) for n in np.flatnonzero(flipped))
    # The seeds of the first transforms do not depend on later ones.
    both = augmenter(flip=True, change=0.5)
    changed = np.array([not np.array_equal(both(FACE, key), flip(FACE, key)) for key in keys])
    assert [flipped.mean(), changed.mean()] == pytest.approx([0.5, 0.5], abs=0.07)
    assert abs(np.corrcoef(flipped, changed)[0, 1]) < 0.12


def test_changes_come_after_the_geometry(monkeypatch):
    order = []
    warp = cv2.warpAffine
    monkeypatch.setattr(cv2, "warpAffine", lambda *a, **k: order.append("warp") or warp(*a, **k))
    monkeypatch.setattr(module, "apply_change", lambda image, *_: order.append("change") or image)
    augmenter(flip=True, scale=0.1, change=1.0, more_changes=0.99)(FACE, (0, 0, 0))
    assert order[0] == "warp"
    assert set(order[1:]) == {"change"}


def test_changes_are_of_the_kinds_that_are_not_held_out_and_as_many_as_drawn(monkeypatch):
    drawn = []
    monkeypatch.setattr(module, "apply_change", lambda image, kind, severity, seed: drawn[-1].append(kind) or image)
    change = augmenter(change=0.8, more_changes=0.5)
    for n in range(1000):
        drawn.append([])
        change(FACE, (2, 0, n))
    counts = np.bincount([len(kinds) for kinds in drawn], minlength=4) / len(drawn)
    assert counts[:4] == pytest.approx([0.2, 0.4, 0.2, 0.1], abs=0.04)
    seen = {kind for kinds in drawn for kind in kinds}
    assert seen == {name for name, kind in CHANGES.items() if not kind.held_out}
    for kinds in drawn:
        assert len(set(kinds)) == len(kinds)
        places = [module.FAMILIES.index(CHANGES[kind].family) for kind in kinds]
        assert places == sorted(places)


def test_what_covers_a_face_is_known_where_it_is_clear():
    """A mask covers the mouth, a tint does not count, and a rectangle may lie anywhere."""
    masks = augmenter(change=0.5, kinds=["mask"])
    mouth = TEMPLATE[3:].round().astype(int)
    for n in range(60):
        changed = (masks(FACE, (0, 0, n)) != FACE).any(axis=2)
        covers = masks.covers((0, 0, n))
        assert (covers is False) == (not changed.any())
        if covers:
            assert changed[mouth[:, 1], mouth[:, 0]].all()
    assert {masks.covers((0, 0, n)) for n in range(60)} == {True, False, None}
    assert not any(augmenter(change=1.0, kinds=["tint"]).covers((0, 0, n)) for n in range(20))
    assert all(augmenter(change=1.0, kinds=["occlusion"]).covers((0, 0, n)) is None for n in range(20))


def test_a_pipeline_of_albumentations_runs_keyed_and_keeps_the_size(tmp_path):
    file = tmp_path / "pipeline.yaml"
    albumentations.save(
        albumentations.Compose([albumentations.ToGray(p=0.5), albumentations.Rotate(limit=20, p=1.0)]),
        file,
        data_format="yaml",
    )
    augment, again = augmenter(albumentations=str(file)), augmenter(albumentations=str(file))
    made = [augment(FACE, (1, 0, n)) for n in range(30)]
    assert all(np.array_equal(image, again(FACE, (1, 0, n))) for n, image in reversed(list(enumerate(made))))
    gray = [np.ptp(image.astype(int), axis=2).max() == 0 for image in made]
    assert 5 < sum(gray) < 25
    assert len({image.tobytes() for image in made}) == 30


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("transform: {__class_fullname__: Sharpness, p: 1}", "has no transform 'Sharpness'"),
        ("- 3", "not a pipeline written by albumentations"),
        ("{: ", "not a pipeline written by albumentations"),
        (None, "cannot be read (No such file"),
        (
            "transform: {__class_fullname__: Resize, height: 50, width: 50, p: 1.0}",
            "leave out what changes the size",
        ),
    ],
)
def test_a_wrong_pipeline_is_refused_by_name(tmp_path, content, problem):
    file = tmp_path / "pipeline.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        augmenter(albumentations=str(file))
    assert str(caught.value).startswith(f"{file}: ")
