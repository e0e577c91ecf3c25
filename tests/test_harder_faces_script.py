"""Harder copies of a training set: what changes, how much, and that nothing else does."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from facerts.datasets import Source, open_source
from facerts.images.changes import gaussian_blur
from tests.scripts import EVAL, load_script, run_script

SCRIPT = EVAL / "papers" / "harder_faces.py"
script = load_script("harder_faces", EVAL / "papers")


def images_in(folder: Path) -> tuple[Source, dict[int, tuple[str, int]]]:
    """The images written, each with its person and row, by its number in the original set."""
    source = open_source(folder)
    found = ((Path(source.key(row)), row) for row in range(len(source)))
    return source, {int(key.stem): (key.parent.name, row) for key, row in found}


def test_few_images_under_some_wrong_names_and_partly_blurred_are_written(tmp_path, drawn_faces):
    options = ("--images", 6, "--imbalance", 0.5, "--label-noise", 0.3, "--blur", 0.4, "--radius", 2)
    done = run_script(SCRIPT, drawn_faces, *options, "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    whole, (written, found) = open_source(drawn_faces), images_in(tmp_path)
    assert whole.labels is not None
    # Half of the eight people keep three images, the others six.
    assert sorted(Counter(int(whole.labels[index]) for index in found).values()) == [3] * 4 + [6] * 4
    names = script.noisy_labels(whole.labels, 0.3, 1)
    blurred = 0
    for index, (name, row) in found.items():
        assert name == whole.identities[names[index]]
        clean, image = whole.crop(index), written.crop(row)
        blurred += not np.array_equal(image, clean)
        assert np.array_equal(image, clean) or np.array_equal(image, gaussian_blur(clean, 2))
    wrong = sum(names[index] != whole.labels[index] for index in found)
    assert 0 < wrong < len(found)
    assert 0 < blurred < len(found)
    assert f"{len(found)} of 64 images, {wrong} under a wrong name" in done.stdout


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_wrong_names_are_uniform_over_the_others_and_milder_noise_is_a_part(share):
    labels = np.random.default_rng(1).integers(0, 5, 8000)
    noisy = script.noisy_labels(labels, share, 5)
    wrong = noisy != labels
    assert wrong.mean() == pytest.approx(share, abs=4 * (share * (1 - share) / 8000) ** 0.5)
    steps = np.bincount((noisy - labels)[wrong] % 5, minlength=5)
    assert steps[0] == 0
    assert np.abs(steps[1:] - wrong.sum() / 4).max() <= 5 * (wrong.sum() / 4) ** 0.5
    harder = script.noisy_labels(labels, 0.9, 5)
    assert (harder[wrong] == noisy[wrong]).all()


def test_fewer_images_are_a_subset_of_more():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(6), [1, 2, 3, 7, 20, 40]))
    for chain in (
        [script.kept_images(labels, images, 1.0, 5) for images in (1, 2, 6, 25, None)],
        [script.kept_images(labels, None, imbalance, 5) for imbalance in (0.05, 0.3, 0.7, 1.0)],
    ):
        kept = [set(indices.tolist()) for indices in chain]
        assert all(few < more for few, more in pairwise(kept))
        assert all({int(labels[index]) for index in indices} == set(range(6)) for indices in kept)
