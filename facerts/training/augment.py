"""Augmentation and corruption of training crops, keyed so that a resumed run draws the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.changes import CHANGES, EYE_DISTANCE, apply_change, gaussian_blur, small_face
from facerts.images.transforms import read_pipeline
from facerts.training.recipe import Augmentation

Key = tuple[int, ...]

# Separates the random numbers of the corruption from those of the epochs' orders, whose keys are (seed, epoch).
_CORRUPTION_KEY = 0xB1_0B1E
# In place of a run's seed, on which kept views do not depend.
_KEPT_SEED = 1
# Separates whether a kept view is mirrored from how it was augmented.
_MIRROR_KEY = 0x3B_0B1E

LANDMARKS_CENTER = TEMPLATE.mean(axis=0)
CROP_CENTER = np.full(2, (CROP_SIZE - 1) / 2)
MAX_SMALL_SIDE = 56
# A change of this severity or more covers what it covers.
COVERING = 0.5
# The order in which changes come in the world: what is worn, how it is lit and taken, how it is stored, cut and framed.
FAMILIES = "occlusion", "photometric", "quality", "geometric", "framing"


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

    def covers(self, key: Key) -> bool | None:
        """Whether the changes of that key cover a part of the face; None where it is not clear."""
        for transform, random in self._keyed(key):
            if isinstance(transform, Changes):
                kinds = [(CHANGES[kind], severity) for kind, severity, _ in transform.drawn(random)]
                if any(kind.covers and severity >= COVERING for kind, severity in kinds):
                    return True
                return None if any(kind.family == "occlusion" for kind, _ in kinds) else False
        return False

    def _keyed(self, key: Key) -> Iterator[tuple[Transform, np.random.Generator]]:
        """The transforms, each with its random numbers: with a common seed, these would be correlated."""
        seeds = np.random.SeedSequence(key).generate_state(len(self._transforms))
        return zip(self._transforms, (np.random.default_rng(int(seed)) for seed in seeds), strict=True)

    def __call__(self, image: NDArray[np.uint8], key: Key, *, zoom: bool = True) -> NDArray[np.uint8]:
        """Augment one crop.

        Args:
            image: ``(112, 112, 3) uint8`` RGB.
            key: (seed of the run, epoch, index in the data set), and the number of the view if it is not the first.
            zoom: if false, a crop that would be zoomed is not; everything else changes in the same way.
        """
        if not self._transforms:
            return image
        for transform, random in self._keyed(key):
            image = transform(image, random, zoom=zoom)
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

    def covers(self, number: int, index: int) -> bool | None:
        """Whether a view covers a part of its face; None where it is not clear."""
        return self._augment.covers((_KEPT_SEED, number, index)) if number else False

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


class _SmallFaces(_Sometimes):
    """Degrades faces as if they had been small in their photos."""

    def __init__(self, probability: float, side: int) -> None:
        super().__init__(probability)
        self._side = side

    def change(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        return small_face(image, int(random.integers(self._side, MAX_SMALL_SIDE, endpoint=True)), random)


class Changes:
    """Changes images by kinds of ``facerts.images.changes``, of severities drawn uniformly.

    Args:
        settings: of which ``change``, ``more_changes``, ``kinds`` and ``max_severity`` are read.
    """

    def __init__(self, settings: Augmentation) -> None:
        self._settings = settings
        self._kinds = settings.kinds or [name for name, kind in CHANGES.items() if not kind.held_out]

    def drawn(self, random: np.random.Generator) -> list[tuple[str, float, int]]:
        """Kind, severity and seed of each change, in the order of ``FAMILIES``."""
        settings, count = self._settings, 0
        while count < len(self._kinds) and random.random() < (
            settings.more_changes if count else settings.change
        ):
            count += 1
        kinds = [self._kinds[row] for row in random.permutation(len(self._kinds))[:count]]
        kinds.sort(key=lambda kind: FAMILIES.index(CHANGES[kind].family))
        return [
            (kind, random.uniform(0.0, settings.max_severity), int(random.integers(2**31))) for kind in kinds
        ]

    def __call__(
        self, image: NDArray[np.uint8], random: np.random.Generator, *, zoom: bool
    ) -> NDArray[np.uint8]:
        for kind, severity, seed in self.drawn(random):
            image = apply_change(image, kind, severity, seed)
        return image


class _Pipeline:
    """Runs the albumentations pipeline of a file."""

    def __init__(self, path: str) -> None:
        self._run = read_pipeline(path)

    def __call__(
        self, image: NDArray[np.uint8], random: np.random.Generator, *, zoom: bool
    ) -> NDArray[np.uint8]:
        return self._run(image, int(random.integers(2**31)))


def build_augmentation(settings: Augmentation) -> Augmenter:
    """The augmentation of a recipe: mirroring, geometry, small faces, changes, a pipeline, in this order."""
    moves = (settings.scale, settings.shift, settings.rotation, settings.points_jitter, settings.zoom)
    transforms: list[Transform] = []
    if settings.flip:
        transforms.append(_Mirror(0.5))
    if any(moves):
        transforms.append(Geometry(settings))
    if settings.small:
        transforms.append(_SmallFaces(settings.small, settings.small_side))
    if settings.change:
        transforms.append(Changes(settings))
    if settings.albumentations is not None:
        transforms.append(_Pipeline(settings.albumentations))
    return Augmenter(transforms)
