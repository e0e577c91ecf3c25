"""The search of a photo of any size: at several scales, in tiles where one pass would be too large, and turned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.detection.detector import Detection, largest_first, nms
from facerts.errors import Error, ImageError
from facerts.images import pixels_problem

# The longest side in pixels at which a photo is searched, or how it is chosen.
DetSize: TypeAlias = int | Literal["auto", "full"]
# The smallest side of a network's input; what is smaller is padded.
MIN_SIZE = 32

# By default a photo is searched at this share of its resolution at least: a face that is smaller than the detectors
# can find there has less than 12 pixels between the eyes, and is too small to use.
SHARE = 0.4
# A panorama is searched as finely as a photo whose longer side is this many times the same shorter side.
USUAL_ASPECT = 1.5
# Nor does the finest scale have more pixels, however long a panorama is: hostile ones are searched in seconds, too.
MAX_PIXELS = 12_000_000
# Scales follow each other by this factor at most. The largest face that a network finds must not be too small for the
# next scale, so that none is lost between them.
STEP = 4
# Both networks find faces with a side of up to this many pixels, and lose larger ones.
LARGEST_FACE = 400
# A forward pass takes about 50 bytes of memory for each pixel.
MAX_PASS_PIXELS = 4_000_000
TILE = 2000
# In a level for which a face is too large, networks take parts of it for faces: boxes that lie inside it by this share.
MAX_INSIDE = 0.7
# A box that comes as near to an inner edge of a tile, in pixels, may be of a face that the edge cuts.
EDGE = 8
# The side in pixels of the surroundings of a face in which its turn is looked for, and how many times its box they are.
LOOK, SURROUNDINGS = 128, 2.0


class Network(Protocol):
    """Finds faces in an image at its own resolution; may be shared by threads.

    Attributes:
        identity: everything that the detections depend on.
        size: the longest side in pixels at which whole photos are searched.
        enlarges: whether smaller ones are enlarged to it.
        tile: height and width in pixels of the largest input; None if it may have any size.
        max_iou: maximum intersection over union of the boxes of two faces.
        sure: a score that a face hardly ever reaches where it is not upright.
    """

    identity: str
    size: int
    enlarges: bool
    tile: tuple[int, int] | None
    max_iou: float
    sure: float

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        """The faces in an image, ``(H, W, 3) uint8`` RGB."""
        ...


class _Level(NamedTuple):
    """A photo at one of the scales, and the size ``(2,)`` of its pixels, x and y, in pixels of the photo."""

    image: NDArray[np.uint8]
    pixel: NDArray[np.float64]

    @property
    def largest(self) -> float:
        """The largest side of a face that is found here, in pixels of the photo."""
        return float(LARGEST_FACE * self.pixel.max())


class _Candidate(NamedTuple):
    """A face, the number of the pass that found it, and the largest side of faces in its level, which it may exceed."""

    face: Detection
    number: int
    largest: float
    too_large: bool

    def is_part_of(self, whole: Detection) -> bool:
        """Whether it lies inside a face with a better score that is too large for its level."""
        if max(whole.sides) <= self.largest or whole.score <= self.face.score:
            return False
        shared = np.minimum(self.face.box[2:], whole.box[2:]) - np.maximum(self.face.box[:2], whole.box[:2])
        return bool(np.maximum(shared, 0).prod() > MAX_INSIDE * self.face.area)


class PhotoSearch:
    """Finds the faces in photos; see ``OpenDetector``.

    Args:
        network: finds them at one scale.
        size: the longest side in pixels at which photos are searched; "full" for their own, "auto" for what is needed
            for faces that are not too small to use. Coarser scales follow, for larger faces.
        rotate: where no upright face is found, search photos turned by 90, 180 and 270 degrees, too; None for photos
            only, and not for frames of videos.
    """

    def __init__(self, network: Network, size: DetSize = "auto", *, rotate: bool | None = None) -> None:
        check_size(size)
        self.network, self.size, self.rotate = network, size, rotate
        turns = "" if rotate is False else ", turned"
        self.identity = f"{network.identity}, size {size}{turns}"

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(PhotoSearch, rotate=self.rotate), (self.network, self.size)

    def of_frames(self) -> PhotoSearch:
        """The same for the frames of a video, where the time for each is bounded unless it was asked otherwise."""
        size = self.network.size if self.size == "auto" else self.size
        return PhotoSearch(self.network, size, rotate=bool(self.rotate))

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        if problem := pixels_problem(image):
            raise ImageError(f"an image must be an array, (H, W, 3) uint8 RGB, not {problem}")
        levels = self._levels(image)
        faces = self._find(levels)
        if self.rotate is not False and not self._is_upright(image, faces):
            turned = [self._find(levels, turns) for turns in (1, 2, 3)]
            faces = max([faces, *turned], key=lambda found: max((face.score for face in found), default=0.0))
        return largest_first(faces)

    def _levels(self, image: NDArray[np.uint8]) -> list[_Level]:
        """The photo at each scale, the finest first."""
        height, width = image.shape[:2]
        longest = max(height, width)
        if self.size == "full":
            finest = longest
        elif self.size == "auto":
            extent = min(longest, USUAL_ASPECT * min(height, width))
            share = min(max(SHARE, self.network.size / extent), math.sqrt(MAX_PIXELS / (height * width)))
            finest = round(longest * share)
            finest = min(finest, max(longest, self.network.size))
            # Two scales that are nearly equal find the same faces.
            finest = finest if finest > 1.25 * self.network.size else self.network.size
        else:
            finest = self.size
        # A line of pixels is padded to a stripe.
        finest = min(finest, MAX_PIXELS // MIN_SIZE)
        sizes = [finest if self.network.enlarges else min(finest, longest)]
        while sizes[-1] > self.network.size:
            sizes.append(max(self.network.size, round(sizes[-1] / STEP)))
        if sizes[-1] >= self.network.size / 2:
            sizes.append(round(self.network.size / STEP))
        levels = []
        for size in sizes:
            image = _resized(image, height * size / longest, width * size / longest)
            pixel = np.array([width / image.shape[1], height / image.shape[0]])
            levels.append(_Level(image, pixel))
        return levels

    def _find(self, levels: list[_Level], turns: int = 0) -> list[Detection]:
        """Faces after so many turns of 90° counterclockwise, each from the finest level where it is not too large."""
        passes = [(level.largest, faces) for level in levels for faces in self._passes(level, turns)]
        if len(passes) == 1:
            return passes[0][1]
        found = [
            _Candidate(face, number, largest, max(face.sides) > largest)
            for number, (largest, faces) in enumerate(passes)
            for face in faces
        ]
        found.sort(key=lambda each: (each.too_large, each.largest, -each.face.score))
        boxes = np.array([each.face.box for each in found]).reshape(-1, 4)
        numbers = np.array([each.number for each in found], dtype=int)
        kept = [found[at] for at in nms(boxes, -np.arange(float(len(found))), self.network.max_iou, numbers)]
        large = [each.face for each in kept if max(each.face.sides) > levels[0].largest]
        return [each.face for each in kept if not any(each.is_part_of(whole) for whole in large)]

    def _passes(self, level: _Level, turns: int) -> Iterator[list[Detection]]:
        """The faces that each pass over a tile of a level finds, in pixels of the photo."""
        height, width = level.image.shape[:2]
        limit = self.network.tile
        if limit is None:
            padded = max(height, MIN_SIZE) * max(width, MIN_SIZE)
            limit = (height, width) if padded <= MAX_PASS_PIXELS else (TILE, TILE)
        elif turns % 2:
            limit = limit[::-1]
        for top, bottom in _tiles(height, limit[0]):
            for left, right in _tiles(width, limit[1]):
                tile = np.ascontiguousarray(np.rot90(level.image[top:bottom, left:right], turns))
                faces = (face.unturned(turns, bottom - top, right - left) for face in self.network(tile))
                # Tiles overlap, so another has the whole of a face that an edge cuts, or a coarser level has it.
                cut = np.array([left > 0, top > 0, right < width, bottom < height])
                inside = np.array([EDGE, EDGE, right - left - EDGE, bottom - top - EDGE])
                yield [
                    face.moved(level.pixel, np.array([left, top]) * level.pixel)
                    for face in faces
                    if not (cut & ((face.box < inside) == [True, True, False, False])).any()
                ]

    def _is_upright(self, image: NDArray[np.uint8], faces: list[Detection]) -> bool:
        """Whether the best face is one in the photo as it is, rather than in the photo turned."""
        if not faces:
            return False
        best = max(faces, key=lambda face: face.score)
        if best.score >= self.network.sure:
            return True
        center, half = (best.box[:2] + best.box[2:]) / 2, SURROUNDINGS * max(best.sides) / 2
        left, top = np.clip(center - half, 0, image.shape[1::-1]).astype(int)
        right, bottom = np.clip(np.ceil(center + half), 0, image.shape[1::-1]).astype(int)
        part = image[top:bottom, left:right]
        if not part.size:
            return False
        scale = LOOK / max(part.shape[:2])
        part = _resized(part, part.shape[0] * scale, part.shape[1] * scale)
        # In one pass over all four turns, each in a quarter of an image.
        turned = np.zeros((2 * LOOK, 2 * LOOK, 3), dtype=np.uint8)
        for turns in range(4):
            row, column = LOOK * (turns // 2), LOOK * (turns % 2)
            view = np.rot90(part, turns)
            turned[row : row + view.shape[0], column : column + view.shape[1]] = view
        scores = [0.0] * 4
        for face in self.network(turned):
            column, row = ((face.box[:2] + face.box[2:]) / 2 >= LOOK).astype(int)
            scores[2 * row + column] = max(scores[2 * row + column], face.score)
        return scores[0] > max(scores[1:]) and scores[0] > self.network.sure - 0.1


def check_size(size: DetSize) -> None:
    """Refuse a size at which no photo can be searched."""
    if size not in ("auto", "full") and not (isinstance(size, int) and size >= MIN_SIZE):
        raise Error(f"det_size must be auto, full or at least {MIN_SIZE} pixels, not {size!r}")


def _tiles(length: int, longest: int) -> Iterator[tuple[int, int]]:
    """Begins and ends of the fewest tiles, of equal length, that overlap by a face of the largest size."""
    overlap = min(LARGEST_FACE + 2 * EDGE, longest // 2)
    count = 1 if length <= longest else -(-(length - overlap) // (longest - overlap))
    tile = -(-(length + (count - 1) * overlap) // count)
    for number in range(count):
        begin = 0 if count == 1 else number * (length - tile) // (count - 1)
        yield begin, begin + tile


def _resized(image: NDArray[np.uint8], height: float, width: float) -> NDArray[np.uint8]:
    size = max(1, round(width)), max(1, round(height))
    # Halving averages whole pixels, which takes a tenth of the time.
    while image.shape[0] >= 2 * size[1] and image.shape[1] >= 2 * size[0] and min(image.shape[:2]) > 1:
        half = image.shape[1] // 2, image.shape[0] // 2
        image = cv2.resize(image, half, interpolation=cv2.INTER_AREA).astype(np.uint8, copy=False)
    if (image.shape[1], image.shape[0]) == size:
        return image
    # To two thirds, interpolation is as good as areas, which take five times as long.
    reduces = image.shape[0] > 1.5 * size[1] or image.shape[1] > 1.5 * size[0]
    method = cv2.INTER_AREA if reduces else cv2.INTER_LINEAR
    return cv2.resize(image, size, interpolation=method).astype(np.uint8, copy=False)
