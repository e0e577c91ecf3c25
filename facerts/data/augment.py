"""Varied and corrupted training crops, each keyed so that a resumed run draws the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.degrade import KINDS, degrade, gaussian_blur
from facerts.errors import MissingExtraError

Key = tuple[int, ...]

# Keeps the choice of corrupted images apart from the orders of the epochs, whose keys are (seed, epoch).
_CORRUPTION = 0xB1_0B1E


class Corruption:
    """Blurs a share of the training images for good: the same ones in every epoch, unlike augmentation.

    An image is chosen by the run's seed and its place in the data alone, and whoever is chosen for a share is chosen
    for every larger one.

    Args:
        images: how many there are.
        fraction: share of them to blur, 0 to 1; each is chosen with this probability.
        radius: standard deviation of the Gaussian blur in pixels.
        seed: of the run.

    Attributes:
        chosen: ``(images,) bool``.

    Source: Shang et al., "Improving Training and Inference of Face Recognition Models via Random Temperature
    Scaling", AAAI 2023, Table 1.
    """

    def __init__(self, images: int, *, fraction: float, radius: float, seed: int) -> None:
        self.chosen = np.random.default_rng((seed, _CORRUPTION)).random(images) < fraction
        self._radius = radius

    def __call__(self, image: NDArray[np.uint8], index: int) -> NDArray[np.uint8]:
        """The image of this index in the data, blurred if it is chosen."""
        return gaussian_blur(image, self._radius) if self.chosen[index] else image


class Augmentation:
    """Applies transforms to a crop with randomness that depends on the key alone.

    Args:
        transforms: albumentations' transforms, applied in order.
    """

    def __init__(self, transforms: list[Any]) -> None:
        self._transforms = transforms

    def __call__(self, image: NDArray[np.uint8], key: Key) -> NDArray[np.uint8]:
        """Vary one crop.

        Args:
            image: ``(112, 112, 3) uint8`` RGB.
            key: (seed of the run, epoch, index in the data set).
        """
        if not self._transforms:
            return image
        seeds = np.random.SeedSequence(key).generate_state(len(self._transforms))
        for transform, seed in zip(self._transforms, seeds, strict=True):
            # A seed for each: with one for all, the coin of the flip would decide the others too.
            transform.set_random_seed(int(seed))
            image = transform(image=image)["image"]
        return image


class _Either:
    """One of two transforms, by a coin whose seed is not theirs: else the coin would decide their draws too."""

    def __init__(self, usual: Any, other: Any, probability: float) -> None:
        self._usual, self._other, self._probability = usual, other, probability
        self._chosen = usual

    def set_random_seed(self, seed: int) -> None:
        coin, own = np.random.SeedSequence(seed).generate_state(2)
        other = np.random.default_rng(coin).random() < self._probability
        self._chosen = self._other if other else self._usual
        self._chosen.set_random_seed(int(own))

    def __call__(self, *, image: NDArray[np.uint8]) -> dict[str, Any]:
        result: dict[str, Any] = self._chosen(image=image)
        return result


def build_augmentation(
    *,
    flip: bool = True,
    scale: float = 0.0,
    shift: float = 0.0,
    rotation: float = 0.0,
    black_border: float = 0.0,
    ladder: float = 0.0,
    ladder_strength: float = 1.0,
) -> Augmentation:
    """The augmentation of a recipe.

    Args:
        flip: mirror half of the images.
        scale: largest relative change of scale.
        shift: largest shift, as a share of the side.
        rotation: largest rotation in degrees.
        black_border: probability that the space which these leave is black, not the picture mirrored.
        ladder: probability of one step of the quality ladder (``facerts.degrade.KINDS``), after the rest.
        ladder_strength: the hardest step, 0 to 1.

    Raises:
        MissingExtraError: albumentations is not installed.
    """
    # Looks for a newer version on the network otherwise.
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")
    try:
        import albumentations
    except ImportError as error:
        raise MissingExtraError("augmentation needs albumentations: pip install 'facerts[train]'") from error
    transforms: list[Any] = []
    if flip:
        transforms.append(albumentations.HorizontalFlip(p=0.5))
    if scale or shift or rotation:
        place = partial(
            albumentations.Affine,
            scale=(1.0 - scale, 1.0 + scale),
            translate_percent=(-shift, shift),
            rotate=(-rotation, rotation),
            keep_ratio=True,
            p=1.0,
        )
        mirrored = place(border_mode=cv2.BORDER_REFLECT_101)
        if black_border:
            transforms.append(_Either(mirrored, place(border_mode=cv2.BORDER_CONSTANT, fill=0), black_border))
        else:
            transforms.append(mirrored)
    if ladder:
        transforms.append(_quality_ladder(albumentations, ladder_strength, ladder))
    return Augmentation(transforms)


def _quality_ladder(albumentations: Any, hardest: float, probability: float) -> Any:
    """A transform that degrades by one kind at one strength, both drawn evenly."""

    class QualityLadder(albumentations.ImageOnlyTransform):  # type: ignore[misc]
        def get_params(self) -> dict[str, Any]:
            draw: Callable[[int], int] = self.random_generator.integers
            return {
                "kind": list(KINDS)[draw(len(KINDS))],
                "strength": self.random_generator.uniform(0.0, hardest),
                "seed": int(draw(2**31)),
            }

        def apply(
            self, img: NDArray[np.uint8], kind: str, strength: float, seed: int, **_: Any
        ) -> NDArray[np.uint8]:
            return degrade(img, kind, strength, seed)

    return QualityLadder(p=probability)
