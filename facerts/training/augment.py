"""Varied and corrupted training crops, each keyed so that a resumed run draws the same."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.errors import MissingExtraError
from facerts.images import CROP_SIZE
from facerts.images.align import TEMPLATE, similarity_transform
from facerts.images.corruptions import KINDS, degrade, gaussian_blur, small_face

Key = tuple[int, ...]

# Keeps the choice of corrupted images apart from the orders of the epochs, whose keys are (seed, epoch).
_CORRUPTION = 0xB1_0B1E

EYE_DISTANCE = float(np.linalg.norm(TEMPLATE[1] - TEMPLATE[0]))
POINTS_CENTER = TEMPLATE.mean(axis=0)
CROP_CENTER = np.full(2, (CROP_SIZE - 1) / 2)
LARGEST_SMALL_SIDE = 56


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
        transforms: albumentations' or others with ``set_random_seed`` and ``(image=...)``, applied in order.
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


class Geometry:
    """Cuts crops as other detectors and aligners do: everything that moves the face, in one interpolation.

    The crop is aligned by noisy points, then zoomed, then scaled, turned and shifted about its center. Whatever is
    drawn is drawn in the same order whether it is used or not, so that switching one option on leaves the others' draws
    as they are.

    Args:
        scale, shift, rotation, black_border: see ``build_augmentation``.
        points_jitter, zoom, zoom_factor: see ``build_augmentation``.
    """

    def __init__(
        self,
        *,
        scale: float = 0.0,
        shift: float = 0.0,
        rotation: float = 0.0,
        points_jitter: float = 0.0,
        zoom: float = 0.0,
        zoom_factor: float = 1.3,
        black_border: float = 0.0,
    ) -> None:
        self._scale, self._shift, self._rotation = scale, shift * CROP_SIZE, np.deg2rad(rotation)
        self._jitter = points_jitter * EYE_DISTANCE
        self._zoom, self._largest_zoom = zoom, np.log(zoom_factor)
        self._black_border = black_border
        self._random = np.random.default_rng(0)

    def matrix(self, random: np.random.Generator) -> NDArray[np.float64]:
        """Draw the ``(2, 3)`` similarity transform from the crop's pixels to those of the new crop."""
        noise = random.standard_normal(TEMPLATE.shape)
        is_zoomed = random.random() < self._zoom
        log_factor, scale, angle, *shift = random.uniform(-1.0, 1.0, 5)
        lift = random.random()

        matrix = np.eye(2, 3)
        if self._jitter:
            matrix = similarity_transform(TEMPLATE + self._jitter * noise, TEMPLATE)
        if is_zoomed:
            # ArcFace's template has the points below the crop's center; a detector's box has them nearer to its own.
            center = POINTS_CENTER + lift * (CROP_CENTER - POINTS_CENTER) * [0, 1]
            matrix = _compose(np.exp(log_factor * self._largest_zoom), 0.0, POINTS_CENTER, center, matrix)
        return _compose(
            1.0 + scale * self._scale,
            angle * self._rotation,
            CROP_CENTER,
            CROP_CENTER + self._shift * np.array(shift),
            matrix,
        )

    def set_random_seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, *, image: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
        matrix = self.matrix(self._random)
        is_black = self._random.random() < self._black_border
        border = cv2.BORDER_CONSTANT if is_black else cv2.BORDER_REFLECT_101
        size = image.shape[1], image.shape[0]
        warped = cv2.warpAffine(image, matrix, size, flags=cv2.INTER_LINEAR, borderMode=border)
        return {"image": warped.astype(np.uint8, copy=False)}


def _compose(
    scale: float,
    angle: float,
    pivot: NDArray[np.float64],
    target: NDArray[np.float64],
    first: NDArray[np.float64],
) -> NDArray[np.float64]:
    """A ``(2, 3)`` transform followed by a scaling and rotation (radians) about a pivot, which goes to the target."""
    cosine, sine = scale * np.cos(angle), scale * np.sin(angle)
    turn = np.array([[cosine, -sine], [sine, cosine]])
    matrix = turn @ first
    matrix[:, 2] += target - turn @ pivot
    return matrix


class _SmallFaces:
    """Some of the faces as if they had been small in their photos."""

    def __init__(self, probability: float, side: int) -> None:
        self._probability, self._side = probability, side
        self._random = np.random.default_rng(0)

    def set_random_seed(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, *, image: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
        if self._random.random() < self._probability:
            side = int(self._random.integers(self._side, LARGEST_SMALL_SIDE, endpoint=True))
            image = small_face(image, side, self._random)
        return {"image": image}


def build_augmentation(
    *,
    flip: bool = True,
    scale: float = 0.0,
    shift: float = 0.0,
    rotation: float = 0.0,
    points_jitter: float = 0.0,
    zoom: float = 0.0,
    zoom_factor: float = 1.3,
    black_border: float = 0.0,
    small: float = 0.0,
    small_side: int = 16,
    ladder: float = 0.0,
    ladder_strength: float = 1.0,
) -> Augmentation:
    """The augmentation of a recipe: mirroring, geometry, small faces, the quality ladder, in this order.

    Args:
        flip: mirror half of the images.
        scale: largest relative change of scale.
        shift: largest shift, as a share of the side.
        rotation: largest rotation in degrees.
        points_jitter: standard deviation of the noise on each template point, as a share of the distance between the
            eyes; the crop is aligned by the noisy points, as another detector's crop would be.
        zoom: probability of a crop that is cut tighter or looser. The mean of the points, which the template has below
            the crop's center, is then moved up to a height drawn evenly between the two.
        zoom_factor: maximum factor; its logarithm is drawn evenly from -log to +log of this.
        black_border: probability that the space which these leave is black, not the picture mirrored.
        small: probability of a face that was small, see ``facerts.images.corruptions.small_face``.
        small_side: minimum side of the small face in pixels; drawn evenly from it to 56.
        ladder: probability of one step of the quality ladder (``facerts.images.corruptions.KINDS``), after the rest.
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
    if points_jitter or zoom:
        transforms.append(
            Geometry(
                scale=scale,
                shift=shift,
                rotation=rotation,
                points_jitter=points_jitter,
                zoom=zoom,
                zoom_factor=zoom_factor,
                black_border=black_border,
            )
        )
    elif scale or shift or rotation:
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
    if small:
        transforms.append(_SmallFaces(small, small_side))
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
