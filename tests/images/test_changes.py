import numpy as np
import pytest

from facerts.datasets.synthetic import draw_face
from facerts.images.changes import CHANGES, apply_change, gaussian_blur


@pytest.mark.parametrize("kind", CHANGES)
def test_severity_zero_changes_nothing_and_higher_severity_changes_more(kind):
    faces = [draw_face(identity, 0) for identity in range(6)]

    def change(severity):
        degraded = [apply_change(face, kind, severity, seed) for seed, face in enumerate(faces)]
        return float(np.mean([np.abs(d.astype(float) - f).mean() for d, f in zip(degraded, faces, strict=True)]))

    changes = [change(severity) for severity in (0.0, 0.25, 0.5, 1.0)]
    assert changes[0] == 0
    assert changes == sorted(changes)
    assert changes[-1] > 3


@pytest.mark.parametrize("kind", CHANGES)
def test_the_same_seed_gives_the_same_image_and_the_input_is_unchanged(kind):
    face = draw_face(2, 1)
    before = face.copy()
    first, second = apply_change(face, kind, 0.7, (3, 4)), apply_change(face, kind, 0.7, (3, 4))
    assert np.array_equal(first, second)
    assert first.shape == face.shape
    assert first.dtype == np.uint8
    assert np.array_equal(face, before)


def test_a_severity_out_of_range_is_refused():
    with pytest.raises(ValueError, match="not between 0 and 1"):
        apply_change(draw_face(0, 0), "blur", 1.2)


def test_blur_spreads_a_point_by_its_radius():
    point = np.zeros((111, 111, 3), dtype=np.uint8)
    point[45:66, 45:66] = 255
    blurred = gaussian_blur(point, 4.0)[55, :, 0].astype(float)
    gradient = np.abs(np.diff(blurred))[:55]
    positions = np.arange(55) + 0.5
    mean = (gradient * positions).sum() / gradient.sum()
    spread = np.sqrt((gradient * (positions - mean) ** 2).sum() / gradient.sum())
    assert spread == pytest.approx(4.0, rel=0.08)
