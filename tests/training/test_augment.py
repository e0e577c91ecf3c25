"""Augmentation, against independent arithmetic, and the corruption of a fixed share of the images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.conftest import MakeRecipe

pytest.importorskip("torch")

import albumentations
import cv2
from numpy.typing import NDArray
from pydantic import ValidationError

from facerts.datasets import open_source
from facerts.datasets.synthetic import draw_face
from facerts.errors import DataError, Error
from facerts.images.align import TEMPLATE
from facerts.images.changes import CHANGES, DEGRADATIONS, gaussian_blur, small_face
from facerts.training import augment as module
from facerts.training.augment import Augmenter, Corruption, Geometry, build_augmentation
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from facerts.training.recipe import Augmentation, Recipe
from tests.command import run

FACE = draw_face(3, 0)
EYES = float(np.hypot(*(TEMPLATE[1] - TEMPLATE[0])))
CENTER = np.array([55.5, 55.5])


def geometry(**options: float) -> Geometry:
    return Geometry(Augmentation(**options))


def augmenter(**options: Any) -> Augmenter:
    return build_augmentation(Augmentation(**{"flip": False, **options}))


class Chosen(np.random.Generator):
    """A generator that returns given numbers, those for ``random`` one after the other."""

    def __init__(self, noise: Any, coins: list[float], uniform: list[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self._noise, self._coins, self._uniform = noise, list(coins), uniform

    def standard_normal(self, *_: Any, **__: Any) -> Any:
        return self._noise

    def random(self, *_: Any, **__: Any) -> Any:
        return self._coins.pop(0)

    def uniform(self, *_: Any, **__: Any) -> Any:
        return np.array(self._uniform)


def matrices(count: int = 3000, **options: float) -> np.ndarray:
    drawn = geometry(**options)
    return np.array([drawn.matrix(np.random.default_rng((7, n))) for n in range(count)])


def moved(matrix: np.ndarray, points: np.ndarray) -> np.ndarray:
    return points @ np.swapaxes(matrix[..., :2], -1, -2) + matrix[..., None, :, 2]


def factors(matrix: np.ndarray) -> np.ndarray:
    return np.sqrt(np.linalg.det(matrix[..., :2]))


def dot(x: float, y: float) -> np.ndarray:
    """A soft white dot on black."""
    column, row = np.arange(112), np.arange(112)[:, None]
    bright = 255 * np.exp(-((column - x) ** 2 + (row - y) ** 2) / (2 * 3.0**2))
    return np.repeat(np.rint(bright)[..., None], 3, axis=2).astype(np.uint8)


def centroid(image: np.ndarray) -> np.ndarray:
    weight = image[..., 0].astype(float)
    return (
        np.array([(weight * np.arange(112)).sum(), (weight * np.arange(112)[:, None]).sum()]) / weight.sum()
    )


def fit(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    """The similarity transform by least squares in its four parameters."""
    x, y = points.T
    one, zero = np.ones_like(x), np.zeros_like(x)
    rows = np.vstack([np.stack([x, -y, one, zero], axis=1), np.stack([y, x, zero, one], axis=1)])
    a, b, right, down = np.linalg.lstsq(rows, np.concatenate([target[:, 0], target[:, 1]]), rcond=None)[0]
    return np.array([[a, -b, right], [b, a, down]])


def test_zoom_moves_a_dot_as_computed() -> None:
    zoom = geometry(zoom=0.2, zoom_factor=1.5)
    mean = TEMPLATE.mean(axis=0)
    for share, factor in ((1.0, 1.5), (-1.0, 1 / 1.5), (0.5, 1.5**0.5)):
        for lift in (0.0, 0.5, 1.0):
            matrix = zoom.matrix(Chosen(np.zeros((5, 2)), [0.19, lift], [share, 0, 0, 0, 0]))
            place = mean + np.array([12, -9])
            expected = mean + [0, lift * (55.5 - mean[1])] + factor * np.array([12, -9])
            assert moved(matrix, place[None])[0] == pytest.approx(expected)


def test_tight_and_loose_crops_have_their_probability_and_range() -> None:
    drawn = matrices(zoom=0.3, zoom_factor=1.4)
    changed = np.abs(drawn - np.eye(2, 3)).max(axis=(1, 2)) > 1e-12
    assert changed.mean() == pytest.approx(0.3, abs=0.035)
    logs = np.log(factors(drawn[changed])) / np.log(1.4)
    assert np.abs(logs).max() <= 1
    assert np.quantile(logs, [0.1, 0.25, 0.5, 0.75, 0.9]) == pytest.approx(
        [-0.8, -0.5, 0, 0.5, 0.8], abs=0.12
    )
    heights = moved(drawn[changed], TEMPLATE.mean(axis=0)[None])[:, 0, 1]
    top, bottom = 55.5, TEMPLATE[:, 1].mean()
    assert heights.min() >= top
    assert heights.max() <= bottom
    assert heights.mean() == pytest.approx((top + bottom) / 2, abs=0.6)
    assert abs(np.corrcoef(logs, heights)[0, 1]) < 0.12


def test_all_geometry_is_one_product() -> None:
    noise = np.random.default_rng(5).standard_normal((5, 2))
    draws = [0.4, -0.6, 0.7, 0.3, -0.9]
    options = {
        "scale": 0.1,
        "shift": 0.05,
        "rotation": 10,
        "points_jitter": 0.1,
        "zoom": 0.5,
        "zoom_factor": 1.3,
    }
    drawn = geometry(**options).matrix(Chosen(noise, [0.1, 0.25], draws))

    def about(pivot: np.ndarray, scale: float, degrees: float, shift: Any) -> np.ndarray:
        turn = scale * np.exp(1j * np.deg2rad(degrees))
        middle = np.array([[turn.real, -turn.imag, 0], [turn.imag, turn.real, 0], [0, 0, 1]])
        to, back = np.eye(3), np.eye(3)
        to[:2, 2], back[:2, 2] = -pivot, pivot + shift
        return back @ middle @ to

    mean = TEMPLATE.mean(axis=0)
    jitter = np.vstack([fit(TEMPLATE + 0.1 * EYES * noise, TEMPLATE), [0, 0, 1]])
    zoom = about(mean, 1.3**0.4, 0, [0, 0.25 * (55.5 - mean[1])])
    place = about(CENTER, 1 - 0.06, 7, [0.3 * 5.6, -0.9 * 5.6])
    assert drawn == pytest.approx((place @ zoom @ jitter)[:2], abs=1e-9)


def test_the_matrix_maps_the_old_crop_to_the_new() -> None:
    drawn = geometry(scale=0.1, shift=0.05, rotation=10, points_jitter=0.1, zoom=0.5, black_border=1.0)
    for seed in range(20):
        place = np.array([62.0, 50.0])
        expected = moved(drawn.matrix(np.random.default_rng(seed)), place[None])[0]
        image = drawn(dot(*place), np.random.default_rng(seed), zoom=True)
        assert centroid(image) == pytest.approx(expected, abs=0.15)


def test_enabling_an_option_does_not_change_the_other_draws() -> None:
    for n in range(50):
        key = (3, n)
        both = geometry(shift=0.1, rotation=10, zoom=1.0).matrix(np.random.default_rng(key))
        zoom = geometry(zoom=1.0).matrix(np.random.default_rng(key))
        place = geometry(shift=0.1, rotation=10).matrix(np.random.default_rng(key))
        product = np.vstack([place, [0, 0, 1]]) @ np.vstack([zoom, [0, 0, 1]])
        assert both == pytest.approx(product[:2], abs=1e-9)


def test_scale_rotation_and_shift_are_uniform_up_to_their_maxima() -> None:
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


def test_corruptions_have_all_kinds_and_severities_up_to_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, float, int]] = []
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
    assert np.quantile(severities, [0, 0.25, 0.5, 0.75, 1]) == pytest.approx(
        [0, 0.1, 0.2, 0.3, 0.4], abs=0.03
    )
    assert len(set(seeds)) == 600


def test_geometry_without_options_changes_nothing() -> None:
    assert np.array_equal(geometry().matrix(np.random.default_rng(1)), np.eye(2, 3))
    unlucky = augmenter(zoom=1e-12, small=1e-12)
    assert all(np.array_equal(unlucky(FACE, (0, 0, n)), FACE) for n in range(20))


EVERYTHING: dict[str, Any] = {
    "scale": 0.1,
    "shift": 0.04,
    "rotation": 8,
    "points_jitter": 0.1,
    "zoom": 0.3,
    "black_border": 0.3,
    "small": 0.4,
    "change": 0.4,
}


def test_geometry_and_small_faces_depend_only_on_the_key() -> None:
    augment, again = augmenter(flip=True, **EVERYTHING), augmenter(flip=True, **EVERYTHING)
    keys = [(1, 0, n) for n in range(20)] + [(1, 1, 0), (2, 0, 0), (1, 0, 0, 1)]
    first = [augment(FACE, key) for key in keys]
    second = [again(FACE, key) for key in reversed(keys)]
    assert all(np.array_equal(a, b) for a, b in zip(first, reversed(second), strict=True))
    assert len({image.tobytes() for image in first}) == len(keys)
    assert all(image.shape == FACE.shape and image.dtype == np.uint8 for image in first)


def test_small_faces_have_all_sizes_and_interpolations_with_their_probability(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[tuple[int, int], int]] = []
    compressed: list[int] = []
    resize, encode = cv2.resize, cv2.imencode

    def spy(image: Any, size: tuple[int, int], interpolation: int) -> Any:
        calls.append((size, interpolation))
        return resize(image, size, interpolation=interpolation)

    def spy_encode(kind: str, image: Any, settings: list[int]) -> Any:
        compressed.append(image.shape[0])
        return encode(kind, image, settings)

    monkeypatch.setattr(cv2, "resize", spy)
    monkeypatch.setattr(cv2, "imencode", spy_encode)
    augment = augmenter(small=0.5, small_side=20)
    changed = sum(not np.array_equal(augment(FACE, (0, 0, n)), FACE) for n in range(1200))
    assert len(calls) == 2 * changed
    assert changed / 1200 == pytest.approx(0.5, abs=0.05)
    assert len(compressed) / changed == pytest.approx(0.5, abs=0.07)
    reduced, enlarged = calls[::2], calls[1::2]
    sides = np.array([size for size, _ in reduced])
    assert (sides[:, 0] == sides[:, 1]).all()
    assert set(sides[:, 0]) == set(range(20, 57))
    assert sides.mean() == pytest.approx(38, abs=1.7)
    assert all(size == (112, 112) for size, _ in enlarged)
    assert set(compressed) <= set(sides[:, 0])
    for kinds, ways in ((reduced, 4), (enlarged, 3)):
        shares = np.unique([interpolation for _, interpolation in kinds], return_counts=True)[1] / changed
        assert shares == pytest.approx(np.full(ways, 1 / ways), abs=0.07)


def test_a_small_face_keeps_shape_and_color_and_loses_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    resize = cv2.resize
    monkeypatch.setattr(cv2, "resize", lambda i, size, **k: sizes.append(size) or resize(i, size, **k))
    random = np.random.default_rng(0)
    tall = np.tile(np.array([200, 120, 40], np.uint8), (90, 60, 1))
    result = small_face(tall, 30, random)
    assert result.shape == tall.shape
    assert sizes == [(20, 30), (60, 90)]
    assert np.abs(result.astype(int) - tall).max() <= 4

    def detail(side: int) -> float:
        crops = [small_face(FACE, side, np.random.default_rng(n)) for n in range(60)]
        return float(np.mean([np.abs(crop.astype(float) - FACE).mean() for crop in crops]))

    assert detail(56) < detail(32) < detail(16)


def test_random_choices_are_independent() -> None:
    keys = [(6, 0, n) for n in range(800)]
    flip = augmenter(flip=True)
    flipped = np.array([not np.array_equal(flip(FACE, key), FACE) for key in keys])
    assert all(np.array_equal(flip(FACE, keys[n]), FACE[:, ::-1]) for n in np.flatnonzero(flipped))
    # The seeds of the first transforms do not depend on later ones.
    zoom = augmenter(flip=True, zoom=0.5)
    zoomed = np.array([not np.array_equal(zoom(FACE, key), flip(FACE, key)) for key in keys])
    both = augmenter(flip=True, zoom=0.5, small=0.5)
    small = np.array([not np.array_equal(both(FACE, key), zoom(FACE, key)) for key in keys])
    everything = augmenter(flip=True, zoom=0.5, small=0.5, change=0.5)
    worse = np.array([not np.array_equal(everything(FACE, key), both(FACE, key)) for key in keys])
    assert [flipped.mean(), worse.mean()] == pytest.approx([0.5, 0.5], abs=0.07)
    related = np.corrcoef([flipped, zoomed, small, worse])
    assert np.abs(related - np.eye(4)).max() < 0.12


def test_degradation_comes_after_one_interpolation_of_all_geometry(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    warp, small, apply_change = cv2.warpAffine, module.small_face, module.apply_change
    monkeypatch.setattr(cv2, "warpAffine", lambda *a, **k: order.append("warp") or warp(*a, **k))
    monkeypatch.setattr(module, "small_face", lambda *a: order.append("small") or small(*a))
    monkeypatch.setattr(module, "apply_change", lambda *a: order.append("change") or apply_change(*a))
    augmenter(flip=True, scale=0.1, points_jitter=0.1, zoom=1.0, small=1.0, change=1.0)(FACE, (0, 0, 0))
    assert order == ["warp", "small", "change"]


def test_values_out_of_range_and_unknown_names_are_rejected() -> None:
    for wrong in (
        {"points_jitter": 0.31},
        {"zoom_factor": 1.0},
        {"small_side": 57},
        {"zoom_probability": 0.1},
    ):
        with pytest.raises(ValidationError):
            Augmentation(**wrong)


@pytest.mark.parametrize("options", [{"shift": 0.1, "rotation": 20.0}, {"zoom": 1.0, "points_jitter": 0.1}])
def test_black_borders_have_their_probability_regardless_of_geometry(options: dict[str, float]) -> None:
    white = np.full_like(FACE, 255)
    some, always = augmenter(black_border=0.3, **options), augmenter(black_border=1.0, **options)
    keys = [(0, 0, n) for n in range(500)]
    area = np.array([(always(white, key) == 0).sum() for key in keys])
    black = np.array([(some(white, key) == 0).any() for key in keys])
    bordered = area > 0
    assert black[bordered].mean() == pytest.approx(0.3, abs=0.08)
    assert not black[~bordered].any()
    assert abs(np.corrcoef(black[bordered], area[bordered])[0, 1]) < 0.15
    mirrored = augmenter(**options)
    assert not any((mirrored(white, key) < 255).any() for key in keys[:50])


def test_a_view_without_zoom_has_all_other_changes() -> None:
    options = {"points_jitter": 0.05, "scale": 0.1, "shift": 0.05, "rotation": 5.0, "change": 0.5}
    augment, never = augmenter(flip=True, zoom=0.5, **options), augmenter(flip=True, **options)
    keys = [(0, 0, n) for n in range(40)]
    for key in keys:
        assert np.array_equal(augment(FACE, key, zoom=False), never(FACE, key))
    zoomed = sum(not np.array_equal(augment(FACE, key), never(FACE, key)) for key in keys)
    assert 10 < zoomed < 30


def test_changes_are_of_the_kinds_that_are_not_held_out_and_as_many_as_drawn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        module, "apply_change", lambda image, kind, severity, seed: drawn[-1].append(kind) or image
    )
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


def test_what_covers_a_face_is_known_where_it_is_clear() -> None:
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


def test_a_pipeline_of_albumentations_runs_keyed_and_keeps_the_size(tmp_path: Path) -> None:
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
def test_a_wrong_pipeline_is_refused_by_name(tmp_path: Path, content: str | None, problem: str) -> None:
    file = tmp_path / "pipeline.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        augmenter(albumentations=str(file))
    assert str(caught.value).startswith(f"{file}: ")


def chosen(fraction: float, seed: int = 1, images: int = 20_000) -> NDArray[np.bool_]:
    return Corruption(images, fraction=fraction, radius=3.0, seed=seed).corrupted


def test_the_share_of_corrupted_images_is_the_fraction_and_depends_only_on_seed_and_index() -> None:
    for fraction in (0.05, 0.2, 0.5):
        deviation = np.sqrt(fraction * (1 - fraction) / 20_000)
        shares = [chosen(fraction, seed).mean() for seed in range(20)]
        assert np.abs(np.array(shares) - fraction).max() < 4 * deviation
        assert np.std(shares) > deviation / 3
    assert not chosen(0.0).any()
    assert chosen(1.0).all()
    # Independent of the choice with another seed: each contains 0.2 of the other.
    assert (chosen(0.2) & chosen(0.2, seed=2)).mean() == pytest.approx(0.04, abs=0.006)
    # More images do not change the choice among the first, and a larger share contains every smaller one.
    assert np.array_equal(chosen(0.2, images=500), chosen(0.2)[:500])
    assert (chosen(0.2) <= chosen(0.3)).all()


def images_of(recipe: Recipe, epoch: int) -> dict[int, NDArray[np.uint8]]:
    """Every training image of an epoch of four batches, by index."""
    images: dict[int, NDArray[np.uint8]] = {}
    for crops, _, samples, *_ in TrainingData(recipe).batches(4 * epoch, 4 * (epoch + 1)):
        images.update(zip(samples.tolist(), crops.numpy(), strict=True))
    assert sorted(images) == list(range(64))
    return images


def test_the_same_images_are_blurred_in_every_epoch_and_before_they_are_augmented(
    make_recipe: MakeRecipe, drawn_faces: Path
) -> None:
    source, augment = open_source(drawn_faces), augmenter(flip=True, rotation=15)
    corrupted = Corruption(64, fraction=0.4, radius=5.0, seed=5).corrupted
    assert 13 <= corrupted.sum() <= 38  # 0.4 of 64, three standard deviations either way
    recipe = make_recipe(
        "data.augmentation={flip: true, rotation: 15}", "data.corrupt_fraction=0.4", "data.corrupt_radius=5"
    )
    for epoch in (0, 2):
        for index, crop in images_of(recipe, epoch).items():
            clean = source.crop(index)
            image = gaussian_blur(clean, 5.0) if corrupted[index] else clean
            assert np.array_equal(crop, augment(image, (5, epoch, index)))


def test_heldout_people_are_validated_without_corruption(make_recipe: MakeRecipe) -> None:
    options = ("data.holdout_identities=4", "optim.batch_size=8")
    heldout = TrainingData(make_recipe("data.corrupt_fraction=1", *options)).heldout
    same = TrainingData(make_recipe(*options)).heldout
    assert heldout is not None
    assert same is not None
    for index in range(len(heldout)):
        assert np.array_equal(heldout.crop(index), same.crop(index))


def test_the_command_line_corrupts_and_does_not_resume_with_other_corruption(
    make_recipe: MakeRecipe, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(make_recipe("optim.epochs=0.25", "optim.milestones=[]").to_yaml())
    assert run("train", recipe, "--corrupt-fraction", "0.2", "--out", tmp_path / "run") == 0
    assert "corrupt_fraction: 0.2" in (tmp_path / "run" / "recipe.yaml").read_text()
    assert run("train", recipe, "--corrupt-fraction", "1.5", "--out", tmp_path / "run") == 2
    for change in ("data.corrupt_fraction=0.3", "data.corrupt_radius=2"):
        other = make_recipe("optim.epochs=0.25", "optim.milestones=[]", "data.corrupt_fraction=0.2", change)
        field = change.partition("=")[0].replace(".", r"\.")
        with pytest.raises(Error, match=rf"{field} changed"):
            train(other, tmp_path / "run", resume=True)
