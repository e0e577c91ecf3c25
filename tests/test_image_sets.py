"""Sets of changed images that decisions are made on."""

from __future__ import annotations

import numpy as np
import pytest

from facerts.datasets import Source, Subset, open_source
from facerts.images.align import TEMPLATE
from tests.scripts import load_script

image_sets = load_script("image_sets")


def crops_of(source: Source) -> list[bytes]:
    return [source.crop(index).tobytes() for index in range(len(source))]


@pytest.mark.parametrize("name", ["degraded", "misaligned"])
def test_what_becomes_of_an_image_hangs_on_its_index_and_the_seed_alone(drawn_faces, name):
    source = open_source(drawn_faces)
    images = image_sets.open_image_set(name, source, 1)
    late = images.crop(9)
    again = image_sets.open_image_set(name, source, 1)
    assert np.array_equal(again.crop(9), late)
    assert crops_of(images) == crops_of(again)
    assert not np.array_equal(image_sets.open_image_set(name, source, 2).crop(9), late)
    ten = image_sets.open_image_set(name, Subset(source, [9] * 10), 1)
    assert len({ten.crop(row).tobytes() for row in range(10)}) == 10
    assert crops_of(source) != crops_of(images)
    assert images.labels is source.labels
    assert [images.key(row) for row in range(3)] == [source.key(row) for row in range(3)]


def test_misaligned_images_are_turned_shifted_and_cut_tighter_or_looser():
    """Seen by three spots of an image, each of a color of its own."""
    spots = np.array([[40.0, 46.0], [70.0, 46.0], [55.0, 74.0]])
    image = np.zeros((112, 112, 3), dtype=np.uint8)
    y, x = np.mgrid[:112, :112]
    for channel, (column, row) in enumerate(spots):
        image[..., channel] = 255 * np.exp(-((x - column) ** 2 + (y - row) ** 2) / 18)
    widths, shifts, turns = [], [], []
    for index in range(200):
        moved = image_sets.misaligned(image, index, 0).astype(np.float64)
        found = [
            np.array([(moved[..., c] * x).sum(), (moved[..., c] * y).sum()]) / moved[..., c].sum() for c in range(3)
        ]
        across = found[1] - found[0]
        widths.append(np.linalg.norm(across) / 30)
        turns.append(np.degrees(np.arctan2(across[1], across[0])))
        shifts.append(np.mean(found, axis=0) - spots.mean(axis=0))
    # The scale of a similarity fitted to five points with noise n (pixels) has a spread of n over their size.
    spread = 0.1 * 35.24 / np.sqrt(np.sum((TEMPLATE - TEMPLATE.mean(axis=0)) ** 2))
    tight = np.array(widths) > 1
    assert 75 <= tight.sum() <= 125
    by_coin = [np.array(widths)[rows] for rows in (tight, ~tight)]
    # Noise in the points that are fitted makes the fitted scale smaller, the same for both.
    assert np.mean(by_coin[0]) / np.mean(by_coin[1]) == pytest.approx(1.15 / 0.85, rel=0.03)
    assert np.mean([np.mean(widths_of) for widths_of in by_coin]) == pytest.approx(0.975, abs=0.025)
    assert np.std(by_coin[0]) == pytest.approx(1.15 * spread, rel=0.35)
    assert np.std(turns) == pytest.approx(np.degrees(spread), rel=0.25)
    assert np.std(shifts, axis=0) == pytest.approx(0.1 * 35.24 / np.sqrt(5), rel=0.35)
