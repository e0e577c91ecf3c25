"""Arrays whose channels are in the other order than was said: when a warning comes, and when not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import facerts
from facerts.images import encode_png
from facerts.scoring import Scorer

Crops = NDArray[np.uint8]


@pytest.fixture
def scorer() -> Scorer:
    return facerts.load()


@pytest.fixture
def orange(crops: Crops) -> Crops:
    """Skin-colored images in RGB, and so blue in BGR."""
    light = np.linspace(0.7, 1.0, len(crops))[:, None, None, None] * np.ones((1, 112, 112, 1))
    return (
        np.rint(light * np.array([230, 170, 140]) + (crops.astype(float) - 128) / 10)
        .clip(0, 255)
        .astype(np.uint8)
    )


class Redness:
    """Stands for an embedder whose quality is how much redder than blue an image is."""

    def __init__(self, scorer: Scorer) -> None:
        self._embedder = scorer.recognizer.opened
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._embedder, name)

    def __call__(self, crops: Crops) -> facerts.FaceOutputs:
        self.calls += 1
        outputs = self._embedder(crops)
        quality = (crops[..., 0].astype(np.float32) - crops[..., 2]).mean(axis=(1, 2)) / 100
        return facerts.FaceOutputs(outputs.embedding, outputs.norm, quality.astype(np.float32))


@pytest.fixture
def redness(scorer: Scorer) -> Redness:
    return Redness(scorer)


@pytest.fixture
def watched(redness: Redness) -> Scorer:
    return Scorer.of(redness)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_swapped_channels_are_warned_about_once(watched: Scorer, orange: Crops) -> None:
    with pytest.warns(UserWarning, match='seem not to be RGB; give color="BGR" for images of OpenCV'):
        watched.score(orange[:1, ..., ::-1])
    watched.score(orange[..., ::-1])


def test_channels_said_to_be_bgr_are_checked_too(watched: Scorer, orange: Crops) -> None:
    with pytest.warns(UserWarning, match="seem not to be BGR"):
        list(watched.faces([*orange[:2]], color="BGR"))


def test_right_calls_do_not_hide_wrong_ones(watched: Scorer, orange: Crops) -> None:
    watched.score(orange[:6, ..., ::-1], color="BGR")
    with pytest.warns(UserWarning, match="seem not to be RGB"):
        watched.score(orange[0, ..., ::-1])


def test_right_channels_and_files_give_no_warning(
    watched: Scorer, redness: Redness, orange: Crops, tmp_path: Path
) -> None:
    watched.score(orange)
    watched.score(orange[..., ::-1], color="BGR")
    watched.verify(orange[0], orange[1])
    # A file says itself what its channels are, and so does its blue sky.
    (tmp_path / "blue.png").write_bytes(encode_png(np.ascontiguousarray(orange[0, ..., ::-1])))
    Scorer.of(redness).score([tmp_path / "blue.png", (tmp_path / "blue.png").read_bytes()])  # type: ignore[arg-type]


def test_the_order_is_taken_for_right_after_some_faces(
    watched: Scorer, redness: Redness, orange: Crops
) -> None:
    for _ in range(2):
        watched.score(orange[:8])
    calls = redness.calls
    watched.score(orange[:8])
    assert redness.calls == calls + 1
