"""Crops that show no face."""

from __future__ import annotations

import numpy as np

from tests.scripts import EVAL, load_script

non_faces = load_script("non_faces", EVAL / "quality_alone")


def test_free_windows_show_nothing_of_a_box_nor_of_what_lies_beyond_the_edge():
    random = np.random.default_rng(0)
    image = random.integers(0, 120, (150, 200, 3)).astype(np.uint8)
    image[40:90, 60:120] = 255
    boxes = np.array([[60.0, 40.0, 120.0, 90.0]])
    found = [non_faces.free_window(image, boxes, random) for _ in range(200)]
    windows = [window for window in found if window is not None]
    assert len(windows) > 50
    assert all(window.shape == (112, 112, 3) and window.max() < 130 for window in windows)
    # Without boxes, the same windows may show it.
    seen = [non_faces.free_window(image, np.empty((0, 4)), random) for _ in range(20)]
    assert any(window.max() > 200 for window in seen)
    assert non_faces.free_window(image, np.array([[0.0, 0.0, 200.0, 150.0]]), random) is None


def test_a_window_is_turned_and_scaled_around_its_center():
    image = np.zeros((100, 100, 3), dtype=np.uint8)
    image[20:40, 50:70] = 200
    upright = non_faces.window(image, (50, 30), 40, 0)
    assert upright[56, 80].min() == 200
    assert upright[56, 30].max() == 0
    turned = non_faces.window(image, (50, 30), 40, 90)
    assert turned[30, 56].min() == 200
    assert turned[80, 56].max() == 0
