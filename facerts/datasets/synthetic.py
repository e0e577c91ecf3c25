"""Synthetic faces, drawn by code: identities for demos and tests that show no real person.

An identity is a set of proportions and colors; each of its images varies in pose, expression, lighting, background and
sharpness. They are cartoons: a network's results on them say nothing about real faces.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.images import CROP_SIZE, encode_jpeg
from facerts.images.changes import DEGRADATIONS, apply_change

ImageArray = NDArray[np.uint8]
Color = tuple[float, float, float]

# What images without a face show; ``draw_non_face`` goes through them in turn.
NON_FACES = "shapes", "stripes", "checks", "clouds"

# Separates the random numbers of degradations from those of the faces.
_DEGRADATION_KEY = 0xDE_64AD

# Faces are drawn at twice the size and downscaled, so that edges are smooth.
CANVAS = 2 * CROP_SIZE

SKINS: tuple[Color, ...] = (
    (247, 214, 188),
    (232, 190, 160),
    (208, 160, 125),
    (172, 122, 88),
    (128, 86, 60),
    (86, 58, 42),
)
HAIRS: tuple[Color, ...] = (
    (30, 24, 22),
    (70, 46, 30),
    (120, 78, 44),
    (190, 146, 84),
    (150, 60, 34),
    (150, 150, 150),
)
IRISES: tuple[Color, ...] = ((70, 44, 26), (110, 78, 40), (70, 110, 60), (60, 110, 160), (110, 120, 130))


@dataclass(frozen=True)
class _Person:
    """A synthetic person; proportions are fractions of the canvas."""

    skin: NDArray[np.float64]
    hair: NDArray[np.float64]
    iris: Color
    face: tuple[float, float]
    jaw: float
    eyes_apart: float
    eye_size: tuple[float, float]
    eye_height: float
    brow: tuple[float, float, float]
    nose: tuple[float, float]
    mouth: tuple[float, float]
    mouth_height: float
    lip: NDArray[np.float64]
    fringe: float
    long_hair: float
    beard: bool
    glasses: bool
    mole: tuple[float, float] | None


def _person(identity: int, seed: int) -> _Person:
    random = np.random.default_rng((seed, identity, 0))
    uniform = random.uniform
    skin = np.array(SKINS[random.integers(len(SKINS))]) * uniform(0.92, 1.06)
    return _Person(
        skin=np.clip(skin + random.normal(0, 5, 3), 0, 255),
        hair=np.clip(np.array(HAIRS[random.integers(len(HAIRS))]) * uniform(0.8, 1.2), 0, 255),
        iris=IRISES[random.integers(len(IRISES))],
        face=(uniform(0.30, 0.40), uniform(0.40, 0.48)),
        jaw=uniform(0.55, 1.0),
        eyes_apart=uniform(0.14, 0.20),
        eye_size=(uniform(0.050, 0.080), uniform(0.022, 0.042)),
        eye_height=uniform(0.44, 0.50),
        brow=(uniform(0.012, 0.034), uniform(-0.03, 0.03), uniform(0.055, 0.085)),
        nose=(uniform(0.035, 0.075), uniform(0.12, 0.19)),
        mouth=(uniform(0.08, 0.15), uniform(0.012, 0.032)),
        mouth_height=uniform(0.74, 0.80),
        lip=np.clip(skin * 0.6 + np.array([90, 10, 20]) * uniform(0.5, 1.3), 0, 255),
        fringe=uniform(0.10, 0.30),
        long_hair=uniform(0.0, 1.0),
        beard=bool(random.random() < 0.25),
        glasses=bool(random.random() < 0.25),
        mole=(uniform(0.35, 0.65), uniform(0.56, 0.70)) if random.random() < 0.3 else None,
    )


def draw_face(identity: int, number: int, *, seed: int = 0) -> ImageArray:
    """Draw an image ``(112, 112, 3) uint8`` RGB of a synthetic person, the same for the same arguments.

    Eyes and mouth are roughly where the ArcFace template has them.
    """
    person = _person(identity, seed)
    random = np.random.default_rng((seed, identity, 1 + number))
    canvas = _background(random)
    turn = random.uniform(-0.035, 0.035)  # features slide over the face as the head turns
    _draw_hair_behind(canvas, person)
    _draw_head(canvas, person)
    _draw_features(canvas, person, turn, random)
    _draw_fringe(canvas, person)
    return _photograph(canvas, random)


def draw_non_face(number: int, *, seed: int = 0) -> ImageArray:
    """Draw a ``(112, 112, 3) uint8`` RGB image of no face: shapes, stripes, checks or clouds in the colors of faces."""
    random = np.random.default_rng((seed, 10**6 + number))
    canvas = _background(random)
    kind = NON_FACES[number % len(NON_FACES)]
    if kind == "shapes":
        for _ in range(random.integers(4, 12)):
            _shape(canvas, random)
    elif kind == "stripes":
        width = int(random.integers(6, 40))
        for start in range(0, CANVAS, 2 * width):
            canvas[:, start : start + width] = _any_color(random)
        canvas = _rotate(canvas, random.uniform(0, 180), 1.4)
    elif kind == "checks":
        side = int(random.integers(10, 56))
        rows, columns = np.indices((CANVAS, CANVAS)) // side
        canvas[(rows + columns) % 2 == 0] = _any_color(random)
    else:
        clouds = random.uniform(0, 255, (int(random.integers(3, 12)), int(random.integers(3, 12)), 3))
        canvas = cv2.resize(clouds, (CANVAS, CANVAS), interpolation=cv2.INTER_CUBIC).astype(np.float64)
    return _photograph(np.clip(canvas, 0, 255), random)


def write_synthetic_faces(
    folder: str | Path,
    *,
    identities: int,
    images: int,
    seed: int = 0,
    first_identity: int = 0,
    degraded: float = 0.0,
) -> None:
    """Write synthetic faces as a folder by identity: ``person_0000/0000.jpg``.

    An image is degraded with probability ``degraded``, by a corruption of random kind and severity.
    """
    for identity in range(first_identity, first_identity + identities):
        person = Path(folder) / f"person_{identity:04d}"
        person.mkdir(parents=True, exist_ok=True)
        for number in range(images):
            image = draw_face(identity, number, seed=seed)
            random = np.random.default_rng((seed, identity, number, _DEGRADATION_KEY))
            if random.random() < degraded:
                kind = random.choice(list(DEGRADATIONS))
                image = apply_change(image, kind, random.uniform(), int(random.integers(2**31)))
            (person / f"{number:04d}.jpg").write_bytes(encode_jpeg(image, 90))


def write_non_faces(folder: str | Path, *, images: int, seed: int = 0, kinds: Collection[str] = NON_FACES) -> None:
    """Write images of ``kinds`` of ``NON_FACES`` as a flat folder: ``thing_0000.jpg``."""
    if not kinds or not set(kinds) <= set(NON_FACES):
        raise ValueError(f"kinds {tuple(kinds)} are not of {', '.join(NON_FACES)}")
    Path(folder).mkdir(parents=True, exist_ok=True)
    shown = (number for number in count() if NON_FACES[number % len(NON_FACES)] in kinds)
    for number in islice(shown, images):
        data = encode_jpeg(draw_non_face(number, seed=seed), 90)
        (Path(folder) / f"thing_{number:04d}.jpg").write_bytes(data)


class SyntheticSource(Source):
    """Synthetic faces; each image is drawn when it is first read, and cached.

    Identity ``i`` looks like ``i mod people``, so drawing a set of millions takes no longer than a thousand people.
    """

    def __init__(self, identities: int, images: int, *, people: int = 1000, seed: int = 0) -> None:
        self.name = "synthetic"
        self.identities = [f"{identity:07d}" for identity in range(identities)]
        self.labels = np.repeat(np.arange(identities), images)
        self._images, self._people, self._seed = images, people, seed
        self._cache: dict[tuple[int, int], bytes] = {}

    def __len__(self) -> int:
        return len(self.identities) * self._images

    def key(self, index: int) -> str:
        identity, number = divmod(index, self._images)
        return f"{self.identities[identity]}/{number:04d}.jpg"

    def read(self, index: int) -> bytes:
        identity, number = divmod(index, self._images)
        face = identity % self._people, number
        if face not in self._cache:
            self._cache[face] = encode_jpeg(draw_face(*face, seed=self._seed), 90)
        return self._cache[face]


def _at(x: float, y: float) -> tuple[int, int]:
    return round(x * CANVAS), round(y * CANVAS)


def _ellipse(
    canvas: NDArray[np.float64], center: tuple[float, float], axes: tuple[float, float], color: object
) -> None:
    size = max(1, round(axes[0] * CANVAS)), max(1, round(axes[1] * CANVAS))
    cv2.ellipse(canvas, _at(*center), size, 0, 0, 360, _color(color), -1, cv2.LINE_8)


def _color(color: object) -> Color:
    red, green, blue = np.asarray(color, dtype=np.float64).tolist()
    return red, green, blue


def _any_color(random: np.random.Generator) -> Color:
    palette = (*SKINS, *HAIRS, *IRISES)
    return _color(np.clip(np.array(palette[random.integers(len(palette))]) + random.normal(0, 20, 3), 0, 255))


def _background(random: np.random.Generator) -> NDArray[np.float64]:
    corners = random.uniform(40, 220, (2, 2, 3))
    return cv2.resize(corners, (CANVAS, CANVAS), interpolation=cv2.INTER_LINEAR).astype(np.float64)


def _draw_hair_behind(canvas: NDArray[np.float64], person: _Person) -> None:
    width, height = person.face
    _ellipse(canvas, (0.5, 0.46), (width * 1.14, height * 1.08), person.hair)
    if person.long_hair > 0.5:
        top, bottom = _at(0.5 - width * 1.12, 0.46), _at(0.5 + width * 1.12, 0.6 + 0.4 * person.long_hair)
        cv2.rectangle(canvas, top, bottom, _color(person.hair), -1)


def _draw_head(canvas: NDArray[np.float64], person: _Person) -> None:
    width, height = person.face
    neck = person.skin * 0.85
    cv2.rectangle(canvas, _at(0.5 - width * 0.45, 0.85), _at(0.5 + width * 0.45, 1.0), _color(neck), -1)
    _ellipse(canvas, (0.5, 0.48), (width, height * 0.92), person.skin)
    jaw = [(0.5 - width, 0.52), (0.5 + width, 0.52), (0.5 + width * person.jaw * 0.6, 0.52 + height)]
    jaw.append((0.5 - width * person.jaw * 0.6, 0.52 + height))
    cv2.fillPoly(canvas, [np.array([_at(*point) for point in jaw])], _color(person.skin), cv2.LINE_8)
    if person.beard:
        beard = 0.65 * person.hair + 0.35 * person.skin
        chin = [(0.5 - width * 0.9, 0.66), (0.5 + width * 0.9, 0.66), *jaw[2:]]
        cv2.fillPoly(canvas, [np.array([_at(*point) for point in chin])], _color(beard), cv2.LINE_8)


def _draw_features(canvas: NDArray[np.float64], person: _Person, turn: float, random: np.random.Generator) -> None:
    middle = 0.5 + turn
    gaze = random.uniform(-0.3, 0.3)
    open_eyes = random.uniform(0.7, 1.15)
    width, height = person.eye_size
    for side in (-1, 1):
        eye = (middle + side * person.eyes_apart, person.eye_height)
        _ellipse(canvas, eye, (width, height * open_eyes), (240, 238, 235))
        pupil = (eye[0] + gaze * width * 0.6, eye[1])
        _ellipse(canvas, pupil, (height * 0.85, height * 0.85 * open_eyes), person.iris)
        _ellipse(canvas, pupil, (height * 0.4, height * 0.4), (10, 10, 10))
        thick, tilt, above = person.brow
        raised = above + random.uniform(-0.008, 0.008)
        inner = _at(eye[0] - side * width * 1.1, eye[1] - raised + tilt)
        outer = _at(eye[0] + side * width * 1.3, eye[1] - raised - tilt)
        cv2.line(canvas, inner, outer, _color(person.hair * 0.8), max(1, round(thick * CANVAS)))
        if person.glasses:
            cv2.circle(canvas, _at(*eye), round(0.105 * CANVAS), (25, 25, 30), 4)
    wide, long = person.nose
    tip = (middle + turn * 0.6, person.eye_height + long)
    bridge = [(middle, person.eye_height), (tip[0] - wide, tip[1]), (tip[0] + wide, tip[1])]
    cv2.fillPoly(canvas, [np.array([_at(*point) for point in bridge])], _color(person.skin * 0.88), cv2.LINE_8)
    across, thick = person.mouth
    smile, opened = random.uniform(-0.02, 0.03), max(0.0, random.uniform(-0.02, 0.025))
    mouth = (middle + turn * 0.3, person.mouth_height)
    _ellipse(canvas, mouth, (across, thick + opened), person.lip)
    if opened > 0.004:
        _ellipse(canvas, mouth, (across * 0.7, opened), (60, 15, 20))
    for side in (-1, 1):
        corner = _at(mouth[0] + side * across, mouth[1] - smile)
        cv2.line(canvas, _at(mouth[0] + side * across * 0.7, mouth[1]), corner, _color(person.lip), 4)
    if person.mole:
        _ellipse(canvas, (person.mole[0] + turn, person.mole[1]), (0.012, 0.012), person.skin * 0.4)


def _draw_fringe(canvas: NDArray[np.float64], person: _Person) -> None:
    width, height = person.face
    axes = round(width * 1.05 * CANVAS), round(height * 0.95 * CANVAS)
    mask = np.zeros((CANVAS, CANVAS), dtype=np.uint8)
    cv2.ellipse(mask, _at(0.5, 0.47), axes, 0, 0, 360, 255, -1)
    mask[round((0.47 - height + person.fringe) * CANVAS) :] = 0
    canvas[mask > 0] = person.hair


def _shape(canvas: NDArray[np.float64], random: np.random.Generator) -> None:
    points = random.uniform(0, 1, (random.integers(3, 6), 2))
    color = _any_color(random)
    if random.random() < 0.5:
        _ellipse(canvas, tuple(points[0]), tuple(random.uniform(0.03, 0.4, 2)), color)
    else:
        cv2.fillPoly(canvas, [np.array([_at(*point) for point in points])], color, cv2.LINE_8)


def _rotate(canvas: NDArray[np.float64], degrees: float, scale: float) -> NDArray[np.float64]:
    move = cv2.getRotationMatrix2D((CANVAS / 2, CANVAS / 2), degrees, scale)
    return cv2.warpAffine(
        canvas, move, (CANVAS, CANVAS), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT_101
    ).astype(np.float64)


def _photograph(canvas: NDArray[np.float64], random: np.random.Generator) -> ImageArray:
    """Apply in-plane rotation and uneven lighting, and sometimes a corruption."""
    canvas = _rotate(canvas, random.uniform(-7, 7), random.uniform(0.94, 1.06))
    light = random.uniform(0.65, 1.2, (2, 2, 1))
    canvas = canvas * cv2.resize(light, (CANVAS, CANVAS), interpolation=cv2.INTER_LINEAR)[..., None]
    small = cv2.resize(canvas, (CROP_SIZE, CROP_SIZE), interpolation=cv2.INTER_AREA)
    small = small + random.normal(0, 3, small.shape)
    image: ImageArray = np.clip(np.rint(small), 0, 255).astype(np.uint8)
    if random.random() < 0.25:
        kind = ("blur", "low_resolution", "noise")[random.integers(3)]
        image = apply_change(image, kind, random.uniform(0.1, 0.7), int(random.integers(2**31)))
    return image
