"""What docs/mobile.md says of the model: its input, its thresholds, and an alignment that gives the same scores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import skimage.data

import facerts
from facerts.hub.find import find_model
from facerts.images.align import align

NAME = "facerts-quality-int8"
PAGE = (Path(__file__).parents[1] / "docs" / "mobile.md").read_text(encoding="utf-8")


def test_the_page_aligns_and_accepts_as_facerts_does():
    names: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], names)
    photo = skimage.data.astronaut()
    scorer = facerts.load(quality=NAME)
    (face,) = scorer.faces(photo)
    points = np.array(face.points)
    crop = names["aligned"](photo, points)
    assert np.abs(crop - align(photo, points)).mean() < 1
    beyond = points - [220, 0]  # half of the crop
    assert np.abs(names["aligned"](photo, beyond) - align(photo, beyond)).mean() < 1
    session = onnxruntime.InferenceSession(find_model(NAME))
    inputs = {"image": ((crop - 127.5) / 127.5).transpose(2, 0, 1)[None].astype(np.float32)}
    quality, not_a_face = session.run(["quality", "not_a_face"], inputs)
    assert quality[0] == pytest.approx(face.quality, abs=0.01)
    assert not_a_face[0] <= 0
    (minimum,) = re.findall(r"`quality` at least ([\d.]+)", PAGE)
    assert minimum == f"{scorer.quality.opened.description.thresholds['0.95'].quality:.3f}"
