"""Augmentation and corruption of training crops, keyed so that a resumed run draws the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.corruptions import KINDS, degrade, gaussian_blur, small_face
from facerts.training.recipe import Augmentation

Key = tuple[int, ...]

# Separates the random numbers of the corruption from those of the epochs' orders, whose keys are (seed, epoch).
_CORRUPTION_KEY = 0xB1_0B1E
# In place of a run's seed, on which kept views do not depend.
_KEPT_SEED = 1
# Separates whether a kept view is mirrored from how it was augmented.
_MIRROR_KEY = 0x3B_0B1E

EYE_DISTANCE = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
LANDMARKS_CENTER = TEMPLATE.mean(axis=0)
CROP_CENTER = np.full(2, (CROP_SIZE - 1) / 2)
MAX_SMALL_SIDE = 56
MAX_LOOSE, MAX_TIGHT = 1.5, 3.0
# A mask's corners in the crop, from the bridge of the nose around the chin, and how far each and all move, in pixels.
MASK_OUTLINE = np.array(
    [[56, 62], [78, 70], [97, 66], [93, 92], [76, 112], [56, 118], [36, 112], [19, 92], [15, 66], [34, 70]]
)
MASK_NOISE, MASK_RISE = 2.0, 8.0


class Transform(Protocol):
    """Changes an image; ``zoom`` matters to the geometry only."""

    def __call__(
        self, image: NDArray[np.uint8], random: np.random.Generator, *, zoom: bool
    ) -> NDArray[np.uint8]: ...


class Corruption:
    """Blurs a fixed share of the training images: unlike augmentation, the same images in every epoch.

    Whether an image is blurred depends only on the run's seed and the image's index. The images of a smaller share are
    a subset of those of a larger one. ``radius`` is the standard deviation of the Gaussian blur in pixels.

    Source: Shang et al., "Improving Training and Inference of Face Recognition Models via Random Temperature
    Scaling", AAAI 2023, Table 1.
    """

    def __init__(self, images: int, *, fraction: float, radius: float, seed: int) -> None:
        self.corrupted = np.random.default_rng((seed, _CORRUPTION_KEY)).random(images) < fraction
        self._radius = radius

    def __call__(self, image: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        """The image, blurred if the image of this index is to be corrupted."""
        return gaussian_blur(image, self._radius) if self.corrupted[index] else image


class Augmenter:
    """Applies transforms of an image and its random numbers to a crop; the randomness depends only on a key."""

    def __init__(self, transforms: list[Transform]) -> None:
        self._transforms = transforms

    def __call__(self, image: NDArray[np.uint8], key: Key, *, zoom: bool = True) -> NDArray[np.uint8]:
        """Augment one crop.

        Args:
            image: ``(112, 112, 3) uint8`` RGB.
            key: (seed of the run, epoch, index in the data set), and the number of the view if it is not the first.
            zoom: if false, a crop that would be zoomed is not; everything else changes in the same way.
        """
        if not self._transforms:
            return image
        seeds = np.random.SeedSequence(key).generate_state(len(self._transforms))
        for transform, seed in zip(self._transforms, seeds, strict=True):
            # With a common seed, the random numbers of the transforms would be correlated.
            image = transform(image, np.random.default_rng(int(seed)), zoom=zoom)
        return image


class KeptViews:
    """The views of each image that come again in turn, of which teachers need to be asked only once.

    The first is the image itself, the others are augmented, in the same way whatever the run's seed, so that runs with
    several seeds share the teachers' answers. Only whether a view is mirrored is drawn anew each time it is shown, as a
    mirrored face is as good as before.
    """

    def __init__(self, settings: Augmentation, seed: int) -> None:
        assert settings.views is not None
        self.count = settings.views
        self._seed, self._flip = seed, settings.flip
        self._augment = build_augmentation(settings.model_copy(update={"flip": False}))

    def number_of(self, epoch: int, index: int, view: int = 0) -> int:
        """Which of the views an epoch shows of an image, for a method with several of each as its given one.

        All numbers are mixed in an epoch, because BatchNorm needs similar batches.
        """
        return (epoch + index + view) % self.count

    def view(
        self, image: NDArray[np.uint8], number: int, index: int, *, zoom: bool = True
    ) -> NDArray[np.uint8]:
        """A view of the image of that index, as ``Augmenter`` makes it, not mirrored."""
        return self._augment(image, (_KEPT_SEED, number, index), zoom=zoom) if number else image

    def shown(self, image: NDArray[np.uint8], epoch: int, index: int, view: int = 0) -> NDArray[np.uint8]:
        """The view that ``number_of`` says of the image of that index."""
        shown = self.view(image, self.number_of(epoch, index, view), index)
        random = np.random.default_rng((self._seed, epoch, index, view, _MIRROR_KEY))
        return shown[:, ::-1] if self._flip and random.random() < 0.5 else shown


class Geometry:
    """Simulates the crops of other detectors and aligners, with a single interpolation.

    The crop is aligned by noisy landmarks, then zoomed, then scaled, rotated and shifted about its center. All random
    numbers are drawn in the same order whether they are used or not, so that enabling one option does not change the
    draws of the others.

    Args:
        settings: of which flip, small faces and corruption are not read.
    """

    def __init__(self, settings: Augmentation) -> None:
        self._settings = settings

    def matrix(self, random: np.random.Generator, *, zoom: bool = True) -> NDArray[np.float64]:
        """Draw the ``(2, 3)`` similarity transform from the crop's pixels to those of the new crop."""
        settings = self._settings
        noise = random.standard_normal(TEMPLATE.shape)
        is_zoomed = random.random() < settings.zoom
        log_factor, scale, angle, *shift = random.uniform(-1.0, 1.0, 5)
        lift = random.random()

        matrix = np.eye(2, 3)
        if settings.points_jitter:
            matrix = similarity_transform(TEMPLATE + settings.points_jitter * EYE_DISTANCE * noise, TEMPLATE)
        if is_zoomed and zoom:
            # ArcFace's template has the landmarks below the crop's center; a detector's box has them closer to it.
            center = LANDMARKS_CENTER + lift * (CROP_CENTER - LANDMARKS_CENTER) * [0, 1]
            factor = settings.zoom_factor**log_factor
            matrix = _compose(factor, 0.0, LANDMARKS_CENTER, center, matrix)
        return _compose(
            1.0 + scale * settings.scale,
            angle * np.deg2rad(settings.rotation),
            CROP_CENTER,
            CROP_CENTER + settings.shift * CROP_SIZE * np.array(shift),
            matrix,
        )

    def __call__(
        self, image: NDArray[np.uint8], random: np.random.Generator, *, zoom: bool
    ) -> NDArray[np.uint8]:
        matrix = self.matrix(random, zoom=zoom)
        is_black = random.random() < self._settings.black_border
        border = cv2.BORDER_CONSTANT if is_black else cv2.BORDER_REFLECT_101
        size = image.shape[1], image.shape[0]
        warped = cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR, borderMode=border)
        return warped.astype(np.uint8, copy=False)


def _compose(
    scale: float,
    angle: float,
    pivot: NDArray[np.float64],
    target: NDArray[np.float64],
    first: NDArray[np.float64],
) -> NDArray[np.float64]:
    """A ``(2, 3)`` transform, followed by scaling and rotation (radians) about a pivot that moves to the target."""
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    rotation = np.array([[cosine, -sine], [sine, cosine]])
    matrix = rotation @ first
    matrix[:, 2] += target - rotation @ pivot
    return matrix


class _Sometimes(ABC):
    """Changes some of the images, each with the same probability."""

    def __init__(self, probability: float) -> None:
        self._probability = probability

    def __call__(
        self, image: NDArray[np.uint8], random: np.random.Generator, *, zoom: bool
    ) -> NDArray[np.uint8]:
        return self.change(image, random) if random.random() < self._probability else image

    @abstractmethod
    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        """The image, changed."""


class _Mirror(_Sometimes):
    """Mirrors images."""

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        return cv2.flip(image, 1).astype(np.uint8, copy=False)


class _NoFace(_Sometimes):
    """Cuts crops out of their image anywhere, at any angle and of any size."""

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        scale = np.exp(random.uniform(-np.log(MAX_LOOSE), np.log(MAX_TIGHT)))
        angle = random.uniform(-np.pi, np.pi)
        pivot = random.uniform(0, CROP_SIZE, 2)
        matrix = _compose(scale, angle, pivot, CROP_CENTER, np.eye(2, 3))
        cut = cv2.warpAffine(image, matrix, (CROP_SIZE, CROP_SIZE), borderMode=cv2.BORDER_REFLECT_101)
        return cut.astype(np.uint8, copy=False)


class _Masks(_Sometimes):
    """Draws a face mask, of one color with shaded folds."""

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        outline = MASK_OUTLINE + random.normal(scale=MASK_NOISE, size=MASK_OUTLINE.shape)
        outline[:, 1] += random.uniform(-MASK_RISE, MASK_RISE)
        cover = np.zeros(image.shape[:2], np.uint8)
        cv2.fillPoly(cover, [outline.round().astype(np.int32)], 255, lineType=cv2.LINE_AA)
        share = cv2.GaussianBlur(cover, (0, 0), 0.7)[:, :, None] / np.float32(255)
        folds = np.sin(np.arange(CROP_SIZE) * random.uniform(0.1, 0.8) + random.uniform(0, 6))
        across = np.cos((np.arange(CROP_SIZE) - CROP_CENTER[0]) / random.uniform(30, 60))
        shade = random.uniform(0, 0.12) * folds[:, None] + across
        color = random.integers(0, 256, 3) if random.random() < 0.5 else np.array([225, 235, 240])
        drawn = np.clip(color * shade[:, :, None], 0, 255)
        masked: NDArray[np.uint8] = np.rint(image * (1 - share) + drawn * share).astype(np.uint8)
        return masked


class _SmallFaces(_Sometimes):
    """Degrades faces as if they had been small in their photos."""

    def __init__(self, probability: float, side: int) -> None:
        super().__init__(probability)
        self._side = side

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        return small_face(image, int(random.integers(self._side, MAX_SMALL_SIDE, endpoint=True)), random)


class _Corruptions(_Sometimes):
    """Corrupts images, in a random kind and severity, both drawn uniformly."""

    def __init__(self, probability: float, max_severity: float) -> None:
        super().__init__(probability)
        self._max_severity = max_severity

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        kind = list(KINDS)[random.integers(len(KINDS))]
        severity = random.uniform(0.0, self._max_severity)
        return degrade(image, kind, severity, int(random.integers(2**31)))


def build_augmentation(settings: Augmentation) -> Augmenter:
    """The augmentation of a recipe: mirroring, masks, geometry, no face, small faces, corruptions, in this order."""
    moves = (settings.scale, settings.shift, settings.rotation, settings.points_jitter, settings.zoom)
    transforms: list[tuple[bool | float, Transform]] = [
        (settings.flip, _Mirror(0.5)),
        (settings.mask, _Masks(settings.mask)),
        (any(moves), Geometry(settings)),
        (settings.no_face, _NoFace(settings.no_face)),
        (settings.small, _SmallFaces(settings.small, settings.small_side)),
        (settings.corruption, _Corruptions(settings.corruption, settings.max_severity)),
    ]
    return Augmenter([transform for wanted, transform in transforms if wanted])
