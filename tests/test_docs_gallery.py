"""The picture at the top of the README: what it says is what the model that ships says today."""

from __future__ import annotations

import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from tests.scripts import TOOLS, load_script

script = load_script("docs_gallery", TOOLS)
PICTURE = Path(__file__).parents[1] / "docs" / "figures" / "scores.jpg"


def test_the_picture_is_what_its_command_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["docs_gallery.py", "--out", str(tmp_path / "again.jpg")])
    script.main()
    drawn, kept = (cv2.imread(str(path)).astype(float) for path in (tmp_path / "again.jpg", PICTURE))
    assert drawn.shape == kept.shape
    # Another version of matplotlib may place letters a little differently; another crop or decision changes more.
    assert np.abs(drawn - kept).mean() < 2


def test_faces_are_accepted_as_long_as_they_can_be_recognized_and_nothing_else_is() -> None:
    decisions = {name: row.accepted for name, _, row in script.scored()}
    assert [name for name, accepted in decisions.items() if accepted] == ["original", "JPEG", "noise"]
    reasons = {name: row.reasons[0] for name, _, row in script.scored() if not row.accepted}
    assert reasons == {
        "blur": "blurred",
        "overexposed": "over_exposed",
        "covered": "below_threshold",
        "cat": "not_a_face",
        "cup": "below_threshold",
    }
