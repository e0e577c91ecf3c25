"""The frame in the documentation of videos is what its command draws with the model that ships."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from facerts.scoring.annotate import ACCEPTED, REJECTED
from tests.scripts import TOOLS, load_script

script = load_script("docs_video", TOOLS)
FIGURES = Path(__file__).parents[1] / "docs" / "figures"


def test_the_figures_are_what_their_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["docs_video.py", "--out", str(tmp_path / "video_frame.jpg")])
    script.main()
    for suffix, width in (("", 1280), ("_small", 640)):
        name = f"video_frame{suffix}.jpg"
        drawn, kept = (cv2.imread(str(folder / name)).astype(int) for folder in (tmp_path, FIGURES))
        assert drawn.shape == kept.shape == (width * 9 // 16, width, 3)
        # Another version of a codec may change pixels a little; another box or decision changes more.
        assert np.abs(drawn - kept).mean() < 1


def test_three_tracks_are_good_and_one_is_not() -> None:
    pixels = script.figure(640).astype(int)
    for color, number in ((ACCEPTED, 3), (REJECTED, 1)):
        mask = (np.abs(pixels - color).sum(axis=2) < 12).astype(np.uint8)
        _, _, stats, _ = cv2.connectedComponentsWithStats(mask)
        assert (stats[1:, cv2.CC_STAT_AREA] > 500).sum() == number
