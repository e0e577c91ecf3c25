import cv2
import numpy as np
import pytest

from facerts.detection.detector import MODEL, head_pose, nms
from facerts.images.align import TEMPLATE
from tests.detectors import iou

# A head in millimeters, facing the camera: x to the right, y down, z towards the camera.
HEAD = 63 * MODEL


def project(axis, degrees):
    """Landmarks of the head turned about an axis, in pixels."""
    turn, _ = cv2.Rodrigues(np.radians(degrees) * np.array(axis))
    return np.asarray((HEAD @ turn.T)[:, :2] * 1.7 + np.array([300, 200]))


@pytest.mark.parametrize("degrees", [-70, -45, -20, 0, 20, 45, 70])
def test_yaw_and_pitch_of_a_turned_head(degrees):
    assert head_pose(project((0, 1, 0), degrees)) == pytest.approx((degrees, 0, 0), abs=1e-6)
    assert head_pose(project((1, 0, 0), -degrees)) == pytest.approx((0, degrees, 0), abs=1e-6)


def test_yaw_is_positive_to_the_right_and_pitch_downwards():
    right = TEMPLATE + np.array([[0, 0], [0, 0], [8, 0], [0, 0], [0, 0]])
    down = TEMPLATE + np.array([[0, 0], [0, 0], [0, 8], [0, 0], [0, 0]])
    assert head_pose(right)[0] > 10
    assert head_pose(down)[1] > 10
    mirrored = (right * [-1, 1])[[1, 0, 2, 4, 3]]
    assert head_pose(mirrored)[0] == pytest.approx(-head_pose(right)[0])


def test_a_head_that_only_rolls_is_not_turned():
    for degrees in (-170, -40, 40, 120):
        assert head_pose(project((0, 0, 1), degrees)) == pytest.approx((0, 0, degrees), abs=1e-6)
    assert head_pose(TEMPLATE)[::2] == pytest.approx((0, 0), abs=2)
    assert head_pose(np.ones((5, 2))) == (0, 0, 0)  # points at one position have no pose


@pytest.mark.parametrize("seed", range(5))
def test_nms_matches_a_slow_reference(seed):
    rng = np.random.default_rng(seed)
    corners = rng.integers(0, 40, (120, 2)).astype(np.float64)
    boxes = np.hstack([corners, corners + rng.integers(0, 20, (120, 2))])
    scores = rng.integers(0, 20, 120) / 20
    kept = []
    for row in sorted(range(120), key=lambda number: (-scores[number], number)):
        if all(iou(boxes[row], boxes[better]) <= 0.4 for better in kept):
            kept.append(row)
    assert nms(boxes, scores, 0.4) == kept
    assert 10 < len(kept) < 110
    assert nms(boxes[:0], scores[:0], 0.4) == []
