"""Faces degraded for a known reason: some kinds to choose limits on, others to confirm them on."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE
from facerts.images.changes import CHANGES, DOWNSCALING
from facerts.scoring import reasons

Image = NDArray[np.uint8]
Mask = NDArray[np.uint8]
# An aligned crop and a severity, 0 to 1, to a crop that is poor for one reason.
Degradation = Callable[[Image, float, np.random.Generator], Image]

EYES = [(round(x), round(y)) for x, y in TEMPLATE[:2]]
DARKEST, BRIGHTEST = 0.02, 4.0
# A reason that was tried and left out.
OCCLUDED = "occluded"


# Sharpness.


def enlarged(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Downscaled to between 40 and 14 pixels, and enlarged by linear or cubic interpolation."""
    downscaling = DOWNSCALING[random.integers(len(DOWNSCALING))]
    return _resized(image, severity, downscaling, (cv2.INTER_LINEAR, cv2.INTER_CUBIC)[random.integers(2)])


def pixelated(image: Image, severity: float, random: np.random.Generator) -> Image:
    """As ``enlarged``, but without interpolation, so that pixels become squares."""
    return _resized(image, severity, cv2.INTER_AREA, cv2.INTER_NEAREST)


def _resized(image: Image, severity: float, downscaling: int, upscaling: int) -> Image:
    side = round(40 - 26 * severity)
    small = cv2.resize(image, (side, side), interpolation=downscaling)
    return np.asarray(cv2.resize(small, (CROP_SIZE, CROP_SIZE), interpolation=upscaling))


def motion_blur(image: Image, severity: float, random: np.random.Generator) -> Image:
    """A straight movement of 5 to 25 pixels in a random direction."""
    side = round(5 + 20 * severity) | 1
    kernel = np.zeros((side, side), dtype=np.float32)
    angle = random.uniform(0, np.pi)
    reach = side // 2 * np.array([np.cos(angle), np.sin(angle)])
    start, end = (np.rint(side // 2 + sign * reach).astype(int).tolist() for sign in (-1, 1))
    cv2.line(kernel, start, end, 1.0)
    return _filter(image, kernel)


def defocus(image: Image, severity: float, random: np.random.Generator) -> Image:
    """A disk with a radius of 1 to 8 pixels, as a lens out of focus draws each point."""
    radius = 1 + 7 * severity
    reach = int(np.ceil(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    return _filter(image, np.clip(radius + 0.5 - np.hypot(x, y), 0, 1).astype(np.float32))


def _filter(image: Image, kernel: NDArray[np.float32]) -> Image:
    return np.asarray(cv2.filter2D(image, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT_101))


# Exposure.


def dark(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Down to 2% of the light."""
    return _uint8(image * np.float32(DARKEST**severity))


def dark_and_noisy(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Down to 2% of the light, with the noise of a sensor: of reading, and of light."""
    light = image * DARKEST**severity
    return _uint8(light + random.standard_normal(image.shape) * np.sqrt(1 + light / 4))


def dark_midtones(image: Image, severity: float, random: np.random.Generator) -> Image:
    """A gamma of up to 6; white stays white."""
    return _uint8(255 * (image / 255) ** (1 + 5 * severity))


def bright(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Up to four times the light, clipped at white."""
    return _uint8(image * np.float32(BRIGHTEST**severity))


def veiled(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Up to 220 gray levels of stray light, clipped at white."""
    return _uint8(image + 220.0 * severity)


# Noise.


def photon_noise(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Poisson noise; white is 60 to 4 photons."""
    photons = 60 / (1 + 14 * severity) / 255
    return _uint8(random.poisson(image * photons) / photons)


def film_grain(image: Image, severity: float, random: np.random.Generator) -> Image:
    """The same normal noise on all channels; standard deviation up to 60."""
    return _uint8(image + 60 * severity * random.standard_normal(image.shape[:2])[..., None])


# Occlusion.


def sunglasses(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Dark glasses; each 20 to 40 pixels wide."""
    mask = _mask()
    for eye in EYES:
        cv2.ellipse(mask, eye, (round(10 + 10 * severity), round(6 + 10 * severity)), 0, 0, 360, 1, -1)
    cv2.line(mask, EYES[0], EYES[1], 1, 3)
    return _cover(image, mask, np.broadcast_to(random.uniform(5, 60, 3), image.shape))


def mask(image: Image, severity: float, random: np.random.Generator) -> Image:
    """A pleated mask over mouth and chin, at most up to the eyes."""
    top = round(100 - 40 * severity)
    covered = _mask()
    cv2.fillPoly(covered, [np.array([[10, top], [56, top - 8], [102, top], [96, 111], [16, 111]])], 1)
    color = random.uniform(120, 250) + random.uniform(-30, 30, 3)
    pleats = 8 * np.sin(np.arange(CROP_SIZE) * 2 * np.pi / 9)[:, None, None]
    return _cover(image, covered, np.broadcast_to(color + pleats, image.shape))


def hand(image: Image, severity: float, random: np.random.Generator) -> Image:
    """Four fingers and a palm in about the color of the skin, shaded, from below."""
    skin = np.median(image[60:85, 35:77].reshape(-1, 3), axis=0) * random.uniform(0.6, 1.2)
    center = np.array([random.uniform(35, 77), random.uniform(75, 100)])
    angle, width, length = random.uniform(-0.6, 0.6), round(8 + 6 * severity), 25 + 35 * severity
    covered, shade = _mask(), np.zeros(image.shape[:2], dtype=np.float32)
    for position in (-1.5, -0.5, 0.5, 1.5):
        finger = _mask()
        base = center + 1.05 * width * position * np.array([np.cos(angle), np.sin(angle)])
        direction = np.array([np.sin(angle + 0.08 * position), -np.cos(angle + 0.08 * position)])
        tip = base + length * (1 - 0.12 * abs(position)) * direction
        cv2.line(finger, base.astype(int).tolist(), tip.astype(int).tolist(), 1, width)
        shade = np.maximum(shade, cv2.distanceTransform(finger, cv2.DIST_L2, 3) / (width / 2))
        covered |= finger
    palm = _mask()
    middle = (center + np.array([0, 10])).astype(int).tolist()
    cv2.ellipse(palm, middle, (round(2.2 * width), 2 * width), 0, 0, 360, 1, -1)
    shade = np.where(palm, 1, np.clip(shade, 0, 1))
    return _cover(image, covered | palm, skin * (0.55 + 0.45 * shade)[..., None])


def _mask() -> Mask:
    return np.zeros((CROP_SIZE, CROP_SIZE), dtype=np.uint8)


def _cover(image: Image, mask: Mask, texture: NDArray[np.floating]) -> Image:
    """The image with a texture where the mask is 1; the edge is a little soft, as in a photo."""
    opacity = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 0.8)[..., None]
    return _uint8(image * (1 - opacity) + texture * opacity)


def _uint8(image: NDArray[np.floating]) -> Image:
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


# Limits were chosen on some kinds of change, and confirmed on all of these.
CHOSEN_ON = {"Gaussian blur", "dark", "bright", "noise", "rectangle"}
CONFIRMED_ON: dict[str, tuple[str, Degradation]] = {
    "Gaussian blur": (reasons.BLURRED, CHANGES["blur"].apply),
    "motion blur": (reasons.BLURRED, motion_blur),
    "defocus": (reasons.BLURRED, defocus),
    "enlarged": (reasons.BLURRED, enlarged),
    "pixelated": (reasons.BLURRED, pixelated),
    "dark": (reasons.UNDER_EXPOSED, dark),
    "dark and noisy": (reasons.UNDER_EXPOSED, dark_and_noisy),
    "dark midtones": (reasons.UNDER_EXPOSED, dark_midtones),
    "bright": (reasons.OVER_EXPOSED, bright),
    "veiled by light": (reasons.OVER_EXPOSED, veiled),
    "noise": (reasons.NOISY, CHANGES["noise"].apply),
    "photon noise": (reasons.NOISY, photon_noise),
    "film grain": (reasons.NOISY, film_grain),
    "rectangle": (OCCLUDED, CHANGES["occlusion"].apply),
    "sunglasses": (OCCLUDED, sunglasses),
    "mask": (OCCLUDED, mask),
    "hand": (OCCLUDED, hand),
}
