"""The one list of changes of a face's image: training, the corruption benchmark and tests take them from here.

A change takes an image, ``(H, W, 3) uint8`` RGB, and a severity from 0 (unchanged) to 1, and returns a new image of the
same size. Its docstring says what severity 1 is, in an image of 112 pixels. At severity 1 people still see a face.

A third of the kinds is held out: no model that ships is trained on them, so that the benchmark also shows what a
quality makes of changes that it has never seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import decode, encode_jpeg
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.transforms import albumentations

ImageArray = NDArray[np.uint8]
Apply = Callable[[ImageArray, float, np.random.Generator], ImageArray]
Family = Literal["photometric", "quality", "geometric", "occlusion", "framing"]

MAX_BLUR = 5.0
MAX_NOISE = 60.0
MAX_REDUCTION = 8.0
BEST_JPEG, WORST_JPEG = 95, 3
MAX_OCCLUSION = 0.75
DARKEST, BRIGHTEST = 0.08, 4.0
SMALL_JPEG = 30, 95
DOWNSCALING = cv2.INTER_AREA, cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST
UPSCALING = cv2.INTER_LINEAR, cv2.INTER_CUBIC, cv2.INTER_NEAREST
# Side of the crop that lengths in pixels are given for.
SIDE = 112
BLACK_BORDER = 0.3
SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]], dtype=np.float32)
# A mask's corners in the crop, from the bridge of the nose around the chin, and how far each and all move, in pixels.
MASK_OUTLINE = np.array(
    [[56, 62], [78, 70], [97, 66], [93, 92], [76, 112], [56, 118], [36, 112], [19, 92], [15, 66], [34, 70]]
)
MASK_NOISE, MASK_RISE = 2.0, 8.0
EYE_DISTANCE = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))


@dataclass(frozen=True)
class Change:
    """A kind of change.

    Attributes:
        held_out: whether models that ship are not trained on it.
        covers: whether it covers a part of the face, as the reason ``covered`` means it.
    """

    family: Family
    apply: Apply
    held_out: bool = False
    covers: bool = False


CHANGES: dict[str, Change] = {}

# What degrades any face: the kinds of "half degraded" sets and synthetic faces. A list of its own, so that kinds that
# are added to ``CHANGES`` do not change earlier results.
DEGRADATIONS = "blur", "low_resolution", "jpeg", "noise", "occlusion", "dark", "bright"


def apply_change(image: ImageArray, kind: str, severity: float, seed: int | tuple[int, ...] = 0) -> ImageArray:
    """Change an image ``(H, W, 3) uint8`` RGB, by a severity of 0 to 1; the result is the same for the same seed."""
    if not 0.0 <= severity <= 1.0:
        raise ValueError(f"severity {severity} is not between 0 and 1")
    if not severity:
        return image.copy()
    return CHANGES[kind].apply(image, severity, np.random.default_rng(seed))


def _listed(family: Family, *, held_out: bool = False, covers: bool = False) -> Callable[[Apply], Apply]:
    def enlist(apply: Apply) -> Apply:
        CHANGES[apply.__name__] = Change(family, apply, held_out, covers)
        return apply

    return enlist


def _uint8(values: NDArray[np.generic]) -> ImageArray:
    if values.dtype == np.uint8:
        return np.ascontiguousarray(values, dtype=np.uint8)
    rounded: ImageArray = np.clip(np.rint(values), 0, 255).astype(np.uint8)
    return rounded


def _mixed(image: ImageArray, other: NDArray[np.generic], share: float) -> ImageArray:
    return _uint8(image * np.float32(1 - share) + other.astype(np.float32) * np.float32(share))


def _gray(image: ImageArray) -> ImageArray:
    return _uint8(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))


def _either(random: np.random.Generator) -> int:
    return 1 if random.random() < 0.5 else -1


# Photometric


@_listed("photometric")
def gray(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """No colors."""
    return _mixed(image, _gray(image), severity)


@_listed("photometric", held_out=True)
def sepia(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """The brown of old prints."""
    return _mixed(image, albumentations().pixel.linear_transformation_rgb(image, SEPIA), severity)


@_listed("photometric")
def tint(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Light of a random color: its channels at 0.3 to 1.2 of what they were."""
    color = random.uniform(0.3, 1.2, 3).astype(np.float32)
    return _mixed(image, image * color, severity)


@_listed("photometric")
def swapped_channels(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Red and blue swapped."""
    return _mixed(image, image[:, :, ::-1], severity)


@_listed("photometric", held_out=True)
def hue(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Hues turned by 60 degrees."""
    return _uint8(albumentations().pixel.shift_hsv(image, 30 * severity * _either(random), 0, 0))


@_listed("photometric")
def saturated(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Differences from gray three times as large."""
    return _mixed(image, _gray(image), -2 * severity)


@_listed("photometric")
def gamma(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A gamma of 2.5 or 1 / 2.5."""
    return _uint8(albumentations().pixel.gamma_transform(image, 2.5 ** (severity * _either(random))))


@_listed("photometric")
def dark(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """8% of the light."""
    return _uint8(image * np.float32(DARKEST**severity))


@_listed("photometric")
def bright(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Four times the light, clipped at white."""
    return _uint8(image * np.float32(BRIGHTEST**severity))


@_listed("photometric")
def low_contrast(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A tenth of the contrast, around the mean."""
    return _mixed(image, image.mean(axis=(0, 1), keepdims=True), 0.9 * severity)


@_listed("photometric", held_out=True)
def equalized(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """All gray levels equally frequent."""
    return _mixed(image, albumentations().pixel.equalize(image, by_channels=False), severity)


@_listed("photometric")
def infrared(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Gray from red above all, bright, tinted as a camera without an infrared filter is: green to purple, or not."""
    near = image @ np.array([0.7, 0.3, 0.0], dtype=np.float32)
    brighter = 255 * (near / 255) ** np.float32(random.uniform(0.5, 1.0))
    color = np.array([[1, 1, 1], [0.75, 1, 0.75], [1, 0.8, 1]])[random.integers(3)].astype(np.float32)
    return _mixed(image, brighter[:, :, None] * color, severity)


@_listed("photometric")
def side_light(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Light that falls from 100% to 5% across the image, in any direction."""
    height, width = image.shape[:2]
    angle = random.uniform(0, 2 * np.pi)
    across = np.linspace(-1, 1, width)[None] * np.cos(angle) + np.linspace(-1, 1, height)[:, None] * np.sin(angle)
    light = 1 - 0.95 * severity * np.clip((across + 1) / 2, 0, 1)
    return _uint8(image * light[:, :, None].astype(np.float32))


@_listed("photometric", held_out=True)
def shadow(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A shadow with an edge across the face, in which 15% of the light is left."""
    height, width = image.shape[:2]
    angle, offset = random.uniform(0, 2 * np.pi), random.uniform(-0.4, 0.4)
    across = np.linspace(-1, 1, width)[None] * np.cos(angle) + np.linspace(-1, 1, height)[:, None] * np.sin(angle)
    shade = np.clip((across - offset) * 10 + 0.5, 0, 1)[:, :, None].astype(np.float32)
    return _uint8(image * (1 - np.float32(0.85 * severity) * shade))


# Quality


@_listed("quality")
def jpeg(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """JPEG compression with quality 3; 95 at a severity near 0."""
    quality = round(BEST_JPEG + (WORST_JPEG - BEST_JPEG) * severity)
    return decode(encode_jpeg(image, quality), where="a compressed image")


@_listed("quality", held_out=True)
def webp(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """WebP compression with quality 1."""
    quality = round(BEST_JPEG + (1 - BEST_JPEG) * severity)
    return _uint8(albumentations().pixel.image_compression(image, quality, ".webp"))


@_listed("quality")
def low_resolution(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Downscaling by a factor of 8 (112 to 14 pixels) and upscaling again."""
    height, width = image.shape[:2]
    factor = 1.0 + (MAX_REDUCTION - 1.0) * severity
    small = (max(1, round(width / factor)), max(1, round(height / factor)))
    reduced = cv2.resize(image, small, interpolation=cv2.INTER_AREA)
    return _uint8(cv2.resize(reduced, (width, height), interpolation=cv2.INTER_LINEAR))


@_listed("quality")
def small_face(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A face that was 14 pixels wide in its photo, compressed as JPEG there half of the time, and enlarged.

    Unlike ``low_resolution``, which averages areas and interpolates linearly, this draws both interpolations
    (``DOWNSCALING``, ``UPSCALING``) and the JPEG quality (``SMALL_JPEG``).
    """
    height, width = image.shape[:2]
    factor = (1 / MAX_REDUCTION) ** severity
    size = max(1, round(width * factor)), max(1, round(height * factor))
    downscaling = DOWNSCALING[random.integers(len(DOWNSCALING))]
    upscaling = UPSCALING[random.integers(len(UPSCALING))]
    reduced = _uint8(cv2.resize(image, size, interpolation=downscaling))
    if random.random() < 0.5:
        quality = int(random.integers(*SMALL_JPEG, endpoint=True))
        reduced = decode(encode_jpeg(reduced, quality), where="a compressed image")
    return _uint8(cv2.resize(reduced, (width, height), interpolation=upscaling))


@_listed("quality")
def blur(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Gaussian blur; standard deviation 5 pixels."""
    return gaussian_blur(image, MAX_BLUR * severity * image.shape[0] / SIDE)


@_listed("quality", held_out=True)
def defocus(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Out of focus: a disc of radius 8 pixels."""
    radius = max(1, round(8 * severity * image.shape[0] / SIDE))
    return _uint8(albumentations().blur.defocus(image, radius, 0.1))


@_listed("quality")
def motion_blur(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Motion by 21 pixels, in any direction."""
    size = 2 * round(10 * severity * image.shape[0] / SIDE) + 1
    if size < 3:
        return image.copy()
    kernel = np.zeros((size, size), dtype=np.float32)
    kernel[size // 2] = 1
    turn = cv2.getRotationMatrix2D((size // 2, size // 2), random.uniform(0, 180), 1.0)
    kernel = cv2.warpAffine(kernel, turn, (size, size)).astype(np.float32)
    return _uint8(cv2.filter2D(image, -1, kernel / kernel.sum(), borderType=cv2.BORDER_REFLECT_101))


@_listed("quality")
def noise(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Gaussian noise on every channel; standard deviation 60 of 255."""
    values = random.standard_normal(image.shape, dtype=np.float32) * np.float32(MAX_NOISE * severity)
    return _uint8(image + values)


@_listed("quality", held_out=True)
def iso_noise(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A camera's noise in the dark, in color and brightness, of intensity 1."""
    return _uint8(albumentations().pixel.iso_noise(image, 0.1 * severity, severity, random))


@_listed("quality")
def specks(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A fifth of the pixels black or white, as on scratched film and old prints."""
    drawn = random.random(image.shape[:2])
    speckled = image.copy()
    speckled[drawn < 0.1 * severity] = 0
    speckled[drawn > 1 - 0.1 * severity] = 255
    return speckled


@_listed("quality")
def halftone(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Printed: each channel, or the gray image, in dots of a raster at an angle, four pixels apart."""
    height, width = image.shape[:2]
    printed = image if random.random() < 0.5 else _gray(image)
    angle, pitch = random.uniform(0, np.pi), random.uniform(3, 5) * height / SIDE
    rows, columns = np.mgrid[:height, :width].astype(np.float32) * np.float32(2 * np.pi / pitch)
    raster = np.cos(columns * np.cos(angle) + rows * np.sin(angle)) * np.cos(
        rows * np.cos(angle) - columns * np.sin(angle)
    )
    dots = 255 / (1 + np.exp(-(printed.astype(np.float32) - 127.5 - 110 * raster[:, :, None]) / 12))
    return _mixed(image, dots, severity)


@_listed("quality", held_out=True)
def posterized(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Four levels of each channel."""
    levels = 2 ** (8 - 6 * severity)
    steps = np.floor(image / np.float32(256) * levels) / (levels - 1)
    return _uint8(255 * steps)


@_listed("quality")
def sharpened(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Details up to two pixels five times as strong."""
    smooth = cv2.GaussianBlur(image, (0, 0), 2 * image.shape[0] / SIDE)
    return _mixed(image, smooth, -4 * severity)


@_listed("quality", held_out=True)
def smoothed(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A median of 11 x 11 pixels, as strong denoising leaves skin."""
    size = 2 * round(5 * severity * image.shape[0] / SIDE) + 1
    return _uint8(albumentations().blur.median_blur(image, size)) if size > 1 else image.copy()


# Geometric: crops of imperfect detectors and aligners


def _warped(
    image: ImageArray,
    matrix: NDArray[np.floating],
    random: np.random.Generator,
    border: int = cv2.BORDER_REFLECT_101,
) -> ImageArray:
    border = cv2.BORDER_CONSTANT if random.random() < BLACK_BORDER else border
    size = image.shape[1], image.shape[0]
    return _uint8(cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR, borderMode=border))


def _about_center(image: ImageArray, linear: NDArray[np.floating] | list[list[float]]) -> NDArray[np.float64]:
    """``(2, 3)`` matrix of a linear map about the middle of the face, which is below that of the image."""
    center = TEMPLATE.mean(axis=0) * image.shape[0] / SIDE
    linear = np.asarray(linear, dtype=np.float64)
    return np.column_stack([linear, center - linear @ center])


@_listed("geometric")
def rotation(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Turned in the plane by 45 degrees."""
    angle = np.deg2rad(45 * severity) * _either(random)
    turn = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return _warped(image, _about_center(image, turn), random)


@_listed("geometric")
def zoom_in(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Cropped twice as close."""
    return _warped(image, _about_center(image, 2**severity * np.eye(2)), random)


@_listed("geometric")
def zoom_out(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Cropped half as close."""
    return _warped(image, _about_center(image, 0.5**severity * np.eye(2)), random, cv2.BORDER_REPLICATE)


@_listed("geometric")
def shift(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Shifted by 28 pixels, in any direction."""
    angle = random.uniform(0, 2 * np.pi)
    offset = 28 * severity * image.shape[0] / SIDE * np.array([np.cos(angle), np.sin(angle)])
    return _warped(image, np.column_stack([np.eye(2), offset]), random)


@_listed("geometric")
def stretched(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """1.6 times as wide or as high as it should be."""
    factor = 1.6 ** (severity * _either(random))
    return _warped(image, _about_center(image, np.diag([factor**0.5, factor**-0.5])), random)


@_listed("geometric")
def landmark_noise(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Aligned by landmarks with normal noise of 20% of the distance of the eyes."""
    noisy = TEMPLATE + 0.2 * severity * EYE_DISTANCE * random.standard_normal(TEMPLATE.shape)
    matrix = similarity_transform(noisy, TEMPLATE)
    matrix[:, 2] *= image.shape[0] / SIDE
    return _warped(image, matrix, random)


@_listed("geometric", held_out=True)
def shear(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Sheared by half of its height."""
    return _warped(image, _about_center(image, [[1, 0.5 * severity * _either(random)], [0, 1]]), random)


@_listed("geometric", held_out=True)
def perspective(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Seen at a slant: one side of the image half as long as the other."""
    turns = int(random.integers(4))
    turned = np.rot90(image, turns)
    height, width = turned.shape[:2]
    inset = 0.25 * severity * width
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=np.float32)
    narrowed = np.array([[inset, 0], [width - inset, 0], [width, height], [0, height]], dtype=np.float32)
    matrix = cv2.getPerspectiveTransform(corners, narrowed)
    slanted = cv2.warpPerspective(
        np.ascontiguousarray(turned), matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101
    )
    return _uint8(np.rot90(slanted, -turns))


# Occlusion


def _covered(image: ImageArray, outline: NDArray[np.floating], color: NDArray[np.generic]) -> ImageArray:
    """The image with a polygon, in pixels of a crop of 112, painted over in a color ``(3,)`` or an image."""
    scale = image.shape[0] / SIDE
    cover = np.zeros(image.shape[:2], np.uint8)
    cv2.fillPoly(cover, [np.rint(outline * scale).astype(np.int32)], 255, lineType=cv2.LINE_AA)
    share = cv2.GaussianBlur(cover, (0, 0), 0.7)[:, :, None] / np.float32(255)
    return _uint8(image * (1 - share) + color.astype(np.float32) * share)


@_listed("occlusion", covers=True)
def mask(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A face mask over nose and mouth; below 1 it hangs lower, at 0.3 under the mouth."""
    outline = MASK_OUTLINE + random.normal(scale=MASK_NOISE, size=MASK_OUTLINE.shape)
    outline[:, 1] += random.uniform(-MASK_RISE, MASK_RISE / 2) + 40 * (1 - severity)
    side = np.arange(image.shape[0]) * (SIDE / image.shape[0])
    folds = np.sin(side * random.uniform(0.1, 0.8) + random.uniform(0, 6))
    across = np.cos((side - SIDE / 2) / random.uniform(30, 60))
    shade = random.uniform(0, 0.12) * folds[:, None] + across
    color = random.integers(0, 256, 3) if random.random() < 0.5 else np.array([225, 235, 240])
    return _covered(image, outline, np.clip(color * shade[:, :, None], 0, 255))


@_listed("occlusion", covers=True)
def sunglasses(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Dark glasses; below 1 the eyes show through."""
    width, height = random.uniform(14, 19), random.uniform(9, 14)
    angles = np.linspace(0, 2 * np.pi, 24, endpoint=False)
    power = random.uniform(0.5, 1.0)
    rim = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rim = np.sign(rim) * np.abs(rim) ** power * [width, height]
    color = random.uniform(0, 60, 3)
    bridge = np.array([[40, 46], [72, 46], [72, 50], [40, 50]]) + random.normal(scale=1.0, size=2)
    worn = _covered(image, bridge, color)
    for eye in TEMPLATE[:2]:
        worn = _covered(worn, rim + eye + random.normal(scale=1.0, size=2) + [0, 2], color)
    return _mixed(image, worn, severity)


@_listed("occlusion", covers=True, held_out=True)
def hand(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Four fingers and a palm in a tone of the face's own skin, from a side over half of the face."""
    cheek = image[image.shape[0] * 6 // 10, image.shape[1] * 35 // 100 :: image.shape[1] * 3 // 10][:2].mean(axis=0)
    skin, side, top = cheek * random.uniform(0.8, 1.1), _either(random), random.uniform(25, 70)
    reach = 112 - 72 * severity
    covered = image
    for finger in range(4):
        y, tip = top + 14 * finger, reach + random.uniform(-4, 8)
        outline = np.array([[125, y - 6], [tip + 5, y - 5], [tip, y], [tip + 5, y + 5], [125, y + 6]])
        outline[:, 0] = outline[:, 0] if side > 0 else SIDE - outline[:, 0]
        covered = _covered(covered, outline, skin * (0.92 + 0.04 * finger))
    return covered


@_listed("occlusion")
def occlusion(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """A rectangle of one random color, 75% of the width by 75% of the height, at a random position."""
    height, width = image.shape[:2]
    rows, columns = (round(MAX_OCCLUSION * severity * side) for side in (height, width))
    top, left = random.integers(0, height - rows + 1), random.integers(0, width - columns + 1)
    covered = image.copy()
    covered[top : top + rows, left : left + columns] = random.integers(0, 256, 3)
    return covered


@_listed("occlusion")
def patches(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Six rectangles of one color or of six, each up to half as wide and half as high as the image."""
    covered, colors = image.copy(), random.integers(0, 256, (random.choice([1, 6]), 3))
    sides = np.array(image.shape[:2])
    for number in range(6):
        size = np.maximum(1, np.rint(severity * random.uniform(0.05, 0.5, 2) * sides)).astype(int)
        top, left = random.integers(0, sides - size + 1)
        covered[top : top + size[0], left : left + size[1]] = colors[number % len(colors)]
    return covered


@_listed("occlusion", held_out=True)
def bars(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Bars of one color, upright or lying, over half of the image, as of a fence."""
    pitch = random.uniform(14, 28) * image.shape[0] / SIDE
    along = np.arange(image.shape[1]) + random.uniform(0, pitch)
    is_bar = along % pitch < 0.5 * severity * pitch
    covered = image.copy()
    if random.random() < 0.5:
        covered[:, is_bar] = random.integers(0, 256, 3)
    else:
        covered[is_bar[: image.shape[0]]] = random.integers(0, 256, 3)
    return covered


@_listed("occlusion")
def cut_off(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """The photo ends 45% into the crop, at one side; beyond is black, gray or the last row again."""
    turns, share = int(random.integers(4)), 0.45 * severity
    turned = np.rot90(image, turns).copy()
    end = max(1, round(turned.shape[0] * (1 - share)))
    turned[end:] = (0, 128, turned[end - 1])[random.integers(3)]
    return np.ascontiguousarray(np.rot90(turned, -turns))


# Framing


def _margins(image: ImageArray, color: int, severity: float) -> ImageArray:
    """The image scaled down onto a canvas of one color."""
    matrix = _about_center(image, (1 - 0.35 * severity) * np.eye(2))
    size = image.shape[1], image.shape[0]
    return _uint8(cv2.warpAffine(image, matrix, size, flags=cv2.INTER_AREA, borderValue=(color,) * 3))


@_listed("framing")
def black_margins(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """Black margins around a crop of 65% of its size."""
    return _margins(image, 0, severity)


@_listed("framing", held_out=True)
def white_margins(image: ImageArray, severity: float, random: np.random.Generator) -> ImageArray:
    """White margins around a crop of 65% of its size."""
    return _margins(image, 255, severity)


def gaussian_blur(image: ImageArray, radius: float) -> ImageArray:
    """Gaussian blur with a standard deviation of ``radius`` pixels (the radius in Fig. 7 of the RTS paper)."""
    if radius <= 0:
        return image.copy()
    return _uint8(cv2.GaussianBlur(image, (0, 0), radius, borderType=cv2.BORDER_REFLECT_101))
