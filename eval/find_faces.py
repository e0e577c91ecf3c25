"""Measures how many faces are found in photos: large and small ones, panoramas, photos on their sides, and none at all.

python eval/find_faces.py --data $FACERTS_DATA --detector yunet --without-faces $FACERTS_DATA/pets out/held_out.tar

Small faces are those of photos/lfw, reduced and pasted into a sample picture of scikit-learn. Beside what
``facerts.Detector`` finds stands one pass over the upright photo, of at most 1,024 pixels (SCRFD: 640) in width or
height. ``--without-faces`` takes whatever ``facerts score`` takes; each image is enlarged to a random size.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np
from common import parser_of, run
from numpy.typing import NDArray
from sklearn.datasets import load_sample_image

import facerts
from facerts.datasets import Source, open_images
from facerts.detection import Detection, PhotoSearch, open_detector
from facerts.images import decode, encode_png, read
from facerts.images.align import align
from facerts.scoring import LazyImage, Scorer

Image = NDArray[np.uint8]
Find = Callable[[Image], list[Detection]]

PASTED = 48
FILLING = 60
# Sizes of the pasted photos.
SCALES = 1, 0.72, 0.5, 0.33, 0.23, 0.16
MODES = 1024, 1600, 2048, "auto", "full"
MIN_IOU = 0.4  # of the box of a face that counts as found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="Folder of photos/lfw and photos/various.")
    parser.add_argument("--detector", default="yunet", help="yunet (the default), or a file.")
    parser.add_argument("--without-faces", nargs="*", default=[], help="Images that show no face.")
    parser.add_argument("--only", nargs="*", help="Parts to run: pasted, filling, turned, missed, people, none.")
    options = parser.parse_args()
    open_at = partial(open_detector, options.detector, threads=1)
    photos = [read(path) for path in sorted((options.data / "photos/lfw").iterdir())]
    parts = {
        "pasted": lambda: pasted(open_at, photos[:PASTED]),
        "filling": lambda: filling(open_at, photos[:FILLING]),
        "turned": lambda: turned(open_at, photos),
        "missed": lambda: missed(open_at, options.data / "photos/various"),
        "people": lambda: people(options.detector, options.data / "photos/lfw"),
        "none": lambda: without_faces(open_at, options.without_faces),
    }
    for name in options.only or parts:
        parts[name]()


def once(search: PhotoSearch, image: Image) -> list[Detection]:
    """One pass over the upright photo at the size at which the detector's whole photos are searched."""
    height, width = image.shape[:2]
    size = search.network.size
    scale = size / max(height, width) if search.network.enlarges else min(1.0, size / max(height, width))
    small = cv2.resize(image, (round(width * scale), round(height * scale)), interpolation=cv2.INTER_AREA)
    pixel = np.array([width / small.shape[1], height / small.shape[0]])
    return [face.moved(pixel, np.zeros(2)) for face in search.network(small)]


def is_found(expected: Detection, faces: Sequence[Detection], min_iou: float = MIN_IOU) -> bool:
    """Whether the box of one of the faces is the expected one."""
    boxes = np.array([face.box for face in (expected, *faces)])
    return len(faces) > 0 and float(iou(boxes[:1], boxes[1:]).max()) > min_iou


def iou(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """``(M, N)`` intersection over union of boxes."""
    shared = np.minimum(first[:, None, 2:], second[:, 2:]) - np.maximum(first[:, None, :2], second[:, :2])
    area = np.prod(np.maximum(shared, 0), axis=2)
    own, other = (np.prod(boxes[:, 2:] - boxes[:, :2], axis=1) for boxes in (first, second))
    return area / (own[:, None] + other - area)


# Small faces in large photos.


def pasted(open_at: Callable[..., PhotoSearch], photos: Sequence[Image]) -> None:
    """Faces of each size, pasted into photos of two shapes: found in each mode, boxes beside them, seconds."""
    search = open_at()
    largest = [max(search(photo), key=lambda face: face.area) for photo in photos]
    wide, high = np.median([face.box[2:] - face.box[:2] for face in largest], axis=0)
    for height, width in ((4000, 6000), (1000, 8000)):
        for scale in SCALES:
            photo, expected = with_faces(photos, largest, scale, height, width)
            finds: dict[str, Find] = {"one pass": partial(once, search)}
            finds |= {str(mode): open_at(size=mode) for mode in MODES}
            cells = []
            for name, find in finds.items():
                began = time.perf_counter()
                faces = find(photo)
                taken = time.perf_counter() - began
                found = sum(is_found(each, faces) for each in expected)
                cells.append(f"{name} {found} + {len(faces) - found} ({taken:.2f} s)")
            size = f"{wide * scale:.0f} x {high * scale:.0f}"
            print(f"{width} x {height}, faces of {size}, of {len(photos)}: {'; '.join(cells)}", flush=True)


def with_faces(
    photos: Sequence[Image], faces: Sequence[Detection], scale: float, height: int, width: int
) -> tuple[Image, list[Detection]]:
    """A picture without faces in which photos are pasted at random places of a grid, and their faces."""
    random = np.random.default_rng(0)
    canvas = cv2.resize(load_sample_image("china.jpg"), (width, height), interpolation=cv2.INTER_CUBIC)
    rows = max(1, round(np.sqrt(len(photos) * height / width)))
    columns = -(-len(photos) // rows)
    placed = []
    for number, (photo, face) in enumerate(zip(photos, faces, strict=True)):
        small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        row, column = divmod(number, columns)
        free = height / rows - small.shape[0], width / columns - small.shape[1]
        if min(free) < 0:
            # The photos of a narrow panorama overlap below their faces.
            free = max(0, free[0]), max(0, free[1])
        top = min(int(row * height / rows + random.random() * free[0]), height - small.shape[0])
        left = min(int(column * width / columns + random.random() * free[1]), width - small.shape[1])
        canvas[top : top + small.shape[0], left : left + small.shape[1]] = small
        placed.append(face.moved(np.full(2, scale), np.array([left, top], dtype=np.float64)))
    return canvas, placed


# Faces that fill a photo.


def filling(open_at: Callable[..., PhotoSearch], photos: Sequence[Image]) -> None:
    """Faces that fill photos of each size: found, boxes beside them, percentiles against those of the smallest."""
    quality = facerts.Quality()
    search = open_at()
    usual: dict[int, float] = {}
    for size in (250, 1000, 3000):
        for name, find in (("one pass", partial(once, search)), ("auto", search)):
            found, more, apart = 0, 0, []
            for number, photo in enumerate(photos):
                face = max(search(photo), key=lambda face: face.area)
                part, expected = filled(photo, face, size)
                faces = find(part)
                right = [face for face in faces if is_found(expected, [face])]
                found, more = found + bool(right), more + len(faces) - bool(right)
                if right:
                    (score,) = quality(align(part, right[0].points)[None])
                    percentile = quality.calibration.percentile(float(score))
                    apart.append(percentile - usual.setdefault(number, percentile))
            print(
                f"filling {size} pixels, {name}: {found} of {len(photos)} + {more}; percentile higher by "
                f"{np.mean(apart):.1f}, apart by {np.mean(np.abs(apart)):.1f}",
                flush=True,
            )


def filled(photo: Image, face: Detection, size: int) -> tuple[Image, Detection]:
    """The square around a face's box, enlarged, and the face in it."""
    center, side = (face.box[:2] + face.box[2:]) / 2, 1.15 * max(face.sides)
    scale = size / side
    matrix = np.hstack([np.eye(2) * scale, (size / 2 - center * scale)[:, None]])
    part = cv2.warpAffine(photo, matrix, (size, size), flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)
    return part, face.moved(np.full(2, scale), matrix[:, 2])


# Photos on their sides.


def turned(open_at: Callable[..., PhotoSearch], photos: Sequence[Image]) -> None:
    """Each photo in each turn: faces found where they are in the upright one, by the largest distance of points."""
    search = open_at()
    scores = []
    for turns in range(4):
        lying = [once(search, np.ascontiguousarray(np.rot90(photo, turns))) for photo in photos]
        scores.append([max((face.score for face in faces), default=0.0) for faces in lying])
        sure = np.mean(np.array(scores[-1]) >= search.network.sure)
        print(f"turned {turns}, best score of one pass: at least {search.network.sure} in {sure:.1%} of the photos")
        for name, find in (("one pass", partial(once, search)), ("auto", search)):
            at_3 = again = 0
            for photo in photos:
                (expected, *_) = search(photo)
                faces = [
                    face.unturned(turns, *photo.shape[:2])
                    for face in find(np.ascontiguousarray(np.rot90(photo, turns)))
                ]
                distances = [np.linalg.norm(face.points - expected.points, axis=1).mean() for face in faces]
                at_3 += min(distances, default=np.inf) <= 3
                again += is_found(expected, faces)
            print(
                f"turned {turns}, {name}: {again} of {len(photos)} found, {at_3} with points within 3 pixels",
                flush=True,
            )
    upright = np.argmax(scores, axis=0) == 0
    print(f"the best score is that of the upright photo in {upright.sum()} of {len(photos)}", flush=True)


def people(detector: str, folder: Path) -> None:
    """Groups of the people in photos of which each is turned at random, beside those in the upright ones."""
    random = np.random.default_rng(0)
    groups = []
    with TemporaryDirectory() as scratch:
        turned = Path(scratch, "turned")
        turned.mkdir()
        for path in sorted(folder.iterdir()):
            photo = np.rot90(read(path), int(random.integers(4)))
            (turned / f"{path.stem}.png").write_bytes(encode_png(np.ascontiguousarray(photo)))
        for photos in (folder, turned):
            out = Path(scratch, f"people of {photos.name}")
            command = ["people", "find", photos, "--set", f"detector={detector}", "--out", out, "--json"]
            subprocess.run([sys.executable, "-m", "facerts", *command], check=True, stdout=subprocess.DEVNULL)
            with (out / "people.csv").open(encoding="utf-8", newline="") as file:
                rows = [row for row in csv.DictReader(file) if row["status"] == "member"]
            groups.append({(Path(row["path"]).stem, row["face"]): row["person"] for row in rows})
    upright, lying = groups
    both = [face for face in upright if face in lying]
    pairs = list(combinations(both, 2))
    together = [(upright[one] == upright[other], lying[one] == lying[other]) for one, other in pairs]
    print(
        f"people find: {len(upright)} faces in {len(set(upright.values()))} groups upright, {len(lying)} in "
        f"{len(set(lying.values()))} turned, {len(both)} in both; of {sum(first for first, _ in together)} pairs of "
        f"one group upright {sum(first and second for first, second in together)} are of one group turned, of the "
        f"{sum(not first for first, _ in together):,} others {sum(second > first for first, second in together)}"
    )


def missed(open_at: Callable[..., PhotoSearch], folder: Path) -> None:
    """Faces that one pass finds, and how many of them the search does not, in photos of their own size and enlarged."""
    search = open_at()
    for side in (None, 2000, 4000):
        alone = gone = total = 0
        for path in sorted(folder.iterdir()):
            photo = read(path)
            if side is not None:
                scale = side / max(photo.shape[:2])
                photo = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
            first, faces = once(search, photo), search(photo)
            alone, total = alone + len(first), total + len(faces)
            # Boxes that overlap so much are not found twice in one pass either.
            gone += sum(not is_found(face, faces, search.network.max_iou) for face in first)
        print(
            f"{folder.name}, longer side {side or 'own'}: one pass {alone} faces, auto {total}, {gone} of those missed"
        )


# Photos without faces.


def without_faces(open_at: Callable[..., PhotoSearch], paths: Sequence[str]) -> None:
    """Boxes in images that show no face, and how many of them are accepted, in images of a random size."""
    source = open_images(paths)
    random = np.random.default_rng(0)
    chosen = random.permutation(len(source))[:1000]
    search = open_at()
    for name, find in (("one pass", partial(once, search)), ("auto", search), ("full", open_at(size="full"))):
        scorer = Scorer(facerts.Quality(), None, find)  # type: ignore[arg-type]
        images = (_enlarged(source, int(index)) for index in chosen)
        rows = [
            face.row
            for faces in scorer.score_lazy(images, scorer.row_builder(scorer.min_quality(), embed=False))
            for face in faces
        ]
        boxes = [row for row in rows if row.face is not None]
        accepted = [row for row in boxes if row.accepted]
        print(f"{len(chosen)} photos without faces, {name}: {len(boxes)} boxes, {len(accepted)} accepted")
        print(
            "".join(f"  {row.path} {row.box} rotation {row.rotation}\n" for row in accepted),
            end="",
            flush=True,
        )


def _enlarged(source: Source, index: int) -> LazyImage:
    def load() -> Image:
        image = decode(source.read(index), where=source.location(index))
        side = float(np.exp(np.random.default_rng(index).uniform(np.log(250), np.log(4000))))
        scale = side / max(image.shape[:2])
        return cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)

    return LazyImage(source.location(index), load)


if __name__ == "__main__":
    run(main)
