"""eval/reasons.py and degraded_faces.py: what they draw and compare with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.images import encode_png
from facerts.images.align import TEMPLATE
from facerts.scoring.reasons import REASONS
from tests.detectors import Finds
from tests.scripts import load_script

kinds, script = map(load_script, ("degraded_faces", "reasons"))
EVERY_KIND = {**kinds.CHOSEN_ON, **kinds.CONFIRMED_ON}


def test_degradations_are_the_same_for_a_seed_and_stronger_with_severity():
    face = draw_face(2, 1)
    for name, (reason, degradation) in EVERY_KIND.items():
        assert reason in {*REASONS, kinds.OCCLUDED, kinds.COMPRESSED}
        mild, strong, again = (degradation(face, severity, np.random.default_rng(4)) for severity in (0.3, 1.0, 1.0))
        assert mild.dtype == np.uint8
        assert mild.shape == face.shape
        assert np.array_equal(strong, again), name
        errors = [np.mean((changed.astype(float) - face) ** 2) for changed in (mild, strong)]
        assert 0 < errors[0] < errors[1], name


def test_the_formula_names_its_lowest_component():
    box, points = np.array([20.0, 20, 120, 120]), TEMPLATE + 20
    photo = np.zeros((140, 140, 3), dtype=np.uint8)
    photo[::2] = 255  # sharp, and neither dark nor bright

    def lowest(image: NDArray[np.uint8] = photo, **changes: Any) -> str:
        face = Detection(**({"box": box, "points": points, "score": 0.9} | changes))
        return str(script.lowest_component(image, Finds(face)))

    assert lowest(score=0.2) == "not_a_face"
    assert lowest(photo // 10) == "under_exposed"
    assert lowest(255 - photo // 10) == "over_exposed"
    assert lowest(np.full_like(photo, 120)) == "blurred"
    assert lowest(box=np.array([20.0, 20, 40, 40])) == "too_small"
    turned = points + np.array([[0, 0], [0, 0], [30, 0], [0, 0], [0, 0]])
    assert lowest(points=turned) == "turned"
    assert script.lowest_component(photo, Finds()) == "not_a_face"


def turned_if_bright(photo: NDArray[np.uint8]) -> list[Detection]:
    """A face whose nose is the further to the right, the brighter the photo; none in a black one."""
    nose = np.array([[0, 0], [0, 0], [photo.mean() / 10, 0], [0, 0], [0, 0]])
    return [Detection(np.zeros(4), TEMPLATE + nose, 0.9)] * bool(photo.any())


def test_profiles_are_separated_from_frontal_faces_where_a_face_is_found(tmp_path):
    places = "1/frontal", "1/profile", "2/frontal", "2/profile", "3/profile"
    for place, level in zip(places, (10, 200, 90, 70, 0), strict=True):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "01.png").write_bytes(encode_png(np.full((112, 112, 3), level, np.uint8)))
    frontal, profile, area = script.cfp_rows(turned_if_bright, str(tmp_path))
    assert [row[1].split()[0] for row in (frontal, profile, area)] == ["100.0", "66.7", "75.00"]
    assert [row[2].split()[0] for row in (frontal, profile)] == ["0.0", "50.0"]


def test_the_roll_is_compared_with_the_rotation(crops):
    """A detector that sees no rotation errs by all of it."""
    errors = [float(row[-1].split("°")[0]) for row in script.pose_rows(turned_if_bright, crops[:2])]
    assert errors == pytest.approx([60, 30, 0, -30, -60], abs=1)


def test_a_photo_is_cut_and_shrunk_as_it_says():
    photo = script.photo_of(draw_face(0, 0))
    assert np.array_equal(photo[112:224, 112:224], draw_face(0, 0))
    random = np.random.default_rng(0)
    for _ in range(10):
        cut = script.cut_photo(photo, random)
        lost = 336 - min(cut.shape[:2])
        assert 112 + 0.19 * 112 < lost < 112 + 0.61 * 112
        assert max(cut.shape[:2]) == 336
        eyes = 35.24 * script.small_photo(photo, random).shape[0] / 336
        assert 3.9 < eyes < 16.1
