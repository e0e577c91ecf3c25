import numpy as np
import pytest

from facerts.datasets.synthetic import draw_face
from facerts.images.changes import apply_change
from facerts.scoring.reasons import FACE_REGION, measure_crop


def gray(level):
    return np.full((112, 112, 3), level, dtype=np.uint8)


def test_luminance_is_the_75th_percentile_of_the_face_region():
    assert measure_crop(gray(120)).luminance == 120
    crop = gray(255)  # around the face, where nothing is measured
    left, top, right, bottom = FACE_REGION
    crop[top:bottom, left:right] = 40
    crop[top : top + (bottom - top) // 5, left:right] = 200  # a fifth of the region
    assert measure_crop(crop).luminance == 40
    crop[top : top + 2 * (bottom - top) // 5, left:right] = 200
    assert measure_crop(crop).luminance == 200


def test_color_counts_as_the_eye_sees_it():
    green, blue = gray(0), gray(0)
    green[..., 1] = blue[..., 2] = 200
    assert measure_crop(green).luminance == pytest.approx(0.587 * 200, abs=1)
    assert measure_crop(blue).luminance == pytest.approx(0.114 * 200, abs=1)


def smooth(image, sigma, radius):
    """A Gaussian, one direction after the other; the image is mirrored at its border."""
    taps = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    taps /= taps.sum()
    for _ in range(2):
        padded = np.pad(image, ((radius, radius), (0, 0)), mode="reflect")
        image = sum(tap * padded[at : at + len(image)] for at, tap in enumerate(taps)).T
    return image


@pytest.mark.parametrize("noise", [0.0, 0.3])
def test_sharpness_and_noise_compare_the_variances_of_details(noise):
    crop = apply_change(draw_face(5, 1), "noise", noise)
    gray_levels = np.rint(crop[24:108, 16:96] @ [0.299, 0.587, 0.114])
    at_1 = smooth(gray_levels, 0.7, 1)
    at_2 = smooth(at_1, 2, 8)
    at_4 = smooth(at_2[::2, ::2], 2, 8)
    details = gray_levels - at_1, at_1 - at_2, at_4 - smooth(at_4, 4, 16)
    finest, fine, coarse = (np.log(np.var(detail) + 0.05) for detail in details)
    measures = measure_crop(crop)
    assert measures.noise == pytest.approx(finest - fine, abs=0.01)
    assert measures.sharpness == pytest.approx((finest + fine) / 2 - coarse, abs=0.01)
