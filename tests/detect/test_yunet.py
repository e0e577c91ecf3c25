from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import skimage.data

from facerts.detect import Detector, open_detector


@pytest.fixture(scope="module")
def yunet(reference_models: Path) -> Detector:
    detector = open_detector("yunet", reference_models / "face_detection_yunet_2023mar.onnx")
    assert detector is not None
    return detector


def test_the_astronauts_face_is_found_where_it_is(yunet: Detector) -> None:
    (face,) = yunet(np.ascontiguousarray(skimage.data.astronaut()))
    left, top, right, bottom = face.box
    np.testing.assert_allclose([left, top, right, bottom], [178, 63, 268, 176], atol=10)
    assert face.score > 0.8
    eyes, mouth = face.points[:2], face.points[3:]
    assert eyes[0, 0] < eyes[1, 0]
    assert mouth[0, 0] < mouth[1, 0]
    assert eyes[:, 1].max() < face.points[2, 1] < mouth[:, 1].min()


def test_large_photos_give_boxes_in_their_own_pixels(yunet: Detector) -> None:
    photo = np.ascontiguousarray(skimage.data.astronaut())
    (small,) = yunet(photo)
    (large,) = yunet(np.repeat(np.repeat(photo, 4, axis=0), 4, axis=1))
    np.testing.assert_allclose(large.box / 4, small.box, atol=8)
    np.testing.assert_allclose(large.points / 4, small.points, atol=6)


def test_no_face_is_an_empty_list(yunet: Detector) -> None:
    assert yunet(np.full((200, 300, 3), 128, dtype=np.uint8)) == []
    assert yunet(np.zeros((1, 1, 3), dtype=np.uint8)) == []
