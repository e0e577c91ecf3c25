import numpy as np
import pytest

from facerts.errors import ImageError
from facerts.images.align import TEMPLATE, align, similarity_transform


@pytest.mark.parametrize("seed", range(5))
def test_the_transform_is_the_least_squares_similarity(seed):
    random = np.random.default_rng(seed)
    points = TEMPLATE * random.uniform(0.3, 4) + random.normal(0, 6, (5, 2)) + random.uniform(-50, 200, 2)
    # x' = a x − b y + c, y' = b x + a y + d: linear in a, b, c, d.
    (x, y), one, zero = points.T, np.ones(5), np.zeros(5)
    equations = np.concatenate([np.stack([x, -y, one, zero], axis=1), np.stack([y, x, zero, one], axis=1)])
    (a, b, c, d), *_ = np.linalg.lstsq(equations, TEMPLATE.T.reshape(-1), rcond=None)
    np.testing.assert_allclose(similarity_transform(points, TEMPLATE), [[a, -b, c], [b, a, d]], atol=1e-9)


@pytest.mark.parametrize("points", [np.zeros((5, 2)), np.full((5, 2), np.nan)])
def test_points_without_extent_are_refused(points):
    with pytest.raises(ImageError, match="same position"):
        similarity_transform(points, TEMPLATE)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.5, 8.0])
def test_landmarks_land_on_the_template_whatever_the_size_of_the_face(scale):
    points = TEMPLATE * scale + np.array([30.0, 55.0])
    size = round(112 * scale) + 120
    rows, columns = np.indices((size, size))
    for landmark, goal in zip(points, TEMPLATE, strict=True):
        spot = np.exp(-((columns - landmark[0]) ** 2 + (rows - landmark[1]) ** 2) / (2 * (2.5 * scale) ** 2))
        image = np.repeat((255 * spot)[..., None], 3, axis=2).astype(np.uint8)
        crop = align(image, points)[..., 0].astype(float)
        center = np.array([(crop * axis).sum() for axis in np.indices(crop.shape)[::-1]]) / crop.sum()
        np.testing.assert_allclose(center, goal, atol=0.15)


def test_the_crop_is_black_beyond_the_image():
    crop = align(np.full((60, 60, 3), 200, dtype=np.uint8), TEMPLATE)
    assert (crop[:50, :50] == 200).all()
    assert (crop[70:] == 0).all()


def test_a_large_face_is_not_aliased():
    # Stripes finer than a pixel of the crop must become gray, not coarser stripes.
    stripes = np.zeros((112 * 9, 112 * 9, 3), dtype=np.uint8)
    stripes[:, ::2] = 255
    assert align(stripes, TEMPLATE * 9).std() < 10
