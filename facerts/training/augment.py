"""Augmentation of training crops, keyed so that a resumed run draws the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.images import CROP_SIZE
from facerts.images.changes import CHANGES, apply_change
from facerts.images.transforms import read_pipeline
from facerts.training.recipe import Augmentation

Key = tuple[int, ...]
# Changes an image by random numbers.
Transform = Callable[[NDArray[np.uint8], np.random.Generator], NDArray[np.uint8]]

# In place of a run's seed, on which kept views do not depend.
_KEPT_SEED = 1
# Separates whether a kept view is mirrored from how it was augmented.
_MIRROR_KEY = 0x3B_0B1E

CROP_CENTER = np.full(2, (CROP_SIZE - 1) / 2)
# A change of this severity or more covers what it covers.
COVERING = 0.5
# The order in which changes come in the world: what is worn, how it is lit and taken, how it is stored, cut and framed.
FAMILIES = "occlusion", "photometric", "quality", "geometric", "framing"


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

    def __call__(self, image: NDArray[np.uint8], key: Key) -> NDArray[np.uint8]:
        """Augment a crop ``(112, 112, 3) uint8`` RGB; the key is seed, epoch, index and, if not the first, view."""
        if not self._transforms:
            return image
        for transform, random in self._keyed(key):
            image = transform(image, random)
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

    def view(self, image: NDArray[np.uint8], number: int, index: int) -> NDArray[np.uint8]:
        """A view of the image of that index, as ``Augmenter`` makes it, not mirrored."""
        return self._augment(image, (_KEPT_SEED, number, index)) if number else image

    def covers(self, number: int, index: int) -> bool | None:
        """Whether a view covers a part of its face; None where it is not clear."""
        return self._augment.covers((_KEPT_SEED, number, index)) if number else False

    def shown(self, image: NDArray[np.uint8], epoch: int, index: int, view: int = 0) -> NDArray[np.uint8]:
        """The view that ``number_of`` says of the image of that index."""
        shown = self.view(image, self.number_of(epoch, index, view), index)
        random = np.random.default_rng((self._seed, epoch, index, view, _MIRROR_KEY))
        return shown[:, ::-1] if self._flip and random.random() < 0.5 else shown


class Geometry:
    """Scales, rotates and shifts crops about their center, as settings say, with the mirrored image around them."""

    def __init__(self, settings: Augmentation) -> None:
        self._settings = settings

    def matrix(self, random: np.random.Generator) -> NDArray[np.float64]:
        """Draw the ``(2, 3)`` similarity transform from the crop's pixels to those of the new crop."""
        settings = self._settings
        scale, angle, *shift = random.uniform(-1.0, 1.0, 4)
        factor, radians = 1.0 + scale * settings.scale, angle * np.deg2rad(settings.rotation)
        cosine, sine = factor * np.cos(radians), factor * np.sin(radians)
        linear = np.array([[cosine, -sine], [sine, cosine]])
        target = CROP_CENTER + settings.shift * CROP_SIZE * np.array(shift)
        return np.column_stack([linear, target - linear @ CROP_CENTER])

    def __call__(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        warped = cv2.warpAffine(image, self.matrix(random), (CROP_SIZE, CROP_SIZE), borderMode=cv2.BORDER_REFLECT_101)
        return warped.astype(np.uint8, copy=False)


def kinds_of(settings: Augmentation) -> list[str]:
    """The kinds of changes of a recipe: those that it names, or all that are not held out."""
    return settings.kinds or [name for name, kind in CHANGES.items() if not kind.held_out]


class Changes:
    """Changes images by kinds of ``facerts.images.changes``, as settings say, of severities drawn uniformly."""

    def __init__(self, settings: Augmentation) -> None:
        self._settings = settings
        self._kinds = kinds_of(settings)

    def drawn(self, random: np.random.Generator) -> list[tuple[str, float, int]]:
        """Kind, severity and seed of each change, in the order of ``FAMILIES``."""
        settings, count = self._settings, 0
        while count < len(self._kinds) and random.random() < (settings.more_changes if count else settings.change):
            count += 1
        kinds = [self._kinds[row] for row in random.permutation(len(self._kinds))[:count]]
        kinds.sort(key=lambda kind: FAMILIES.index(CHANGES[kind].family))
        return [(kind, random.uniform(0.0, settings.max_severity), int(random.integers(2**31))) for kind in kinds]

    def __call__(self, image: NDArray[np.uint8], random: np.random.Generator) -> NDArray[np.uint8]:
        for kind, severity, seed in self.drawn(random):
            image = apply_change(image, kind, severity, seed)
        return image


def build_augmentation(settings: Augmentation) -> Augmenter:
    """The augmentation of a recipe: mirroring, geometry, changes, a pipeline, in this order."""
    transforms: list[Transform] = []
    if settings.flip:
        transforms.append(lambda image, random: image[:, ::-1] if random.random() < 0.5 else image)
    if settings.scale or settings.shift or settings.rotation:
        transforms.append(Geometry(settings))
    if settings.change:
        transforms.append(Changes(settings))
    if settings.albumentations is not None:
        pipeline = read_pipeline(settings.albumentations)
        transforms.append(lambda image, random: pipeline(image, int(random.integers(2**31))))
    return Augmenter(transforms)
