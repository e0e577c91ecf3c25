"""Detectors beside each other on the same photos, in one run: faces found, time, and how exact their points are.

They take turns, photo by photo, with one thread each. Times include reading the JPEG of the photo, with --side enlarged
or reduced to that longer side. Distances of points are the mean of the five, as a share of the distance of the eyes:
from the points that the first detector has for the same face (boxes that overlap by half), and from those that the
detector itself has for it in the photo's mirror. After a name follows how photos are searched: auto, full, a number of
pixels, or once, one pass at the size of the network's whole photos.

    python tools/bench_detect.py ../shared/data/photos/lfw --detector yunet:once --detector yunet --side 4000
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from bench import machine, parser_of, with_quartiles
from numpy.typing import NDArray

from facerts.datasets import open_images
from facerts.detection import Detection, PhotoSearch, open_detector
from facerts.images import decode, encode_jpeg

# Left and right change places in a mirror.
MIRRORED = [1, 0, 2, 4, 3]


def main() -> None:
    parser = parser_of(__doc__, {})
    parser.add_argument("photos", nargs="+", help="whatever facerts score takes")
    parser.add_argument(
        "--detector",
        action="append",
        required=True,
        help="name, file or pack, then :SIZE if not auto; the others are held against the first",
    )
    parser.add_argument("--side", type=int, help="longer side of the photos in pixels; by default their own")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    detectors = [_open(given) for given in options.detector]
    source = open_images(options.photos)
    found: list[list[list[Detection]]] = [[] for _ in detectors]
    mirrored: list[list[list[Detection]]] = [[] for _ in detectors]
    taken: list[list[float]] = [[] for _ in detectors]
    for index in range(len(source)):
        data, photo = _at_side(source.read(index), options.side)
        mirror = np.ascontiguousarray(photo[:, ::-1])
        for which, detector in enumerate(detectors):
            mirrored[which].append([_mirrored(face, photo.shape[1]) for face in detector(mirror)])
            began = time.perf_counter()
            found[which].append(detector(decode(data, where="the photo")))
            taken[which].append((time.perf_counter() - began) * 1000)
    print(machine())
    names = [Path(given).name for given in options.detector]
    for name, faces, in_mirror, times in zip(names, found, mirrored, taken, strict=True):
        print(
            f"{name}: {sum(map(len, faces))} faces, at least one in {sum(map(bool, faces))} of {len(source)} photos; "
            f"{with_quartiles(times, '.1f')} ms a photo, "
            f"{with_quartiles([own / first for own, first in zip(times, taken[0], strict=True)], '.2f')} of the first's"
        )
        print(f"  points {_summary(faces, in_mirror)} of its own in the mirror")
        if faces is not found[0]:
            print(f"  points {_summary(faces, found[0])} of {names[0]}")


def _at_side(data: bytes, side: int | None) -> tuple[bytes, NDArray[np.uint8]]:
    photo = decode(data, where="the photo")
    if side is not None:
        scale = side / max(photo.shape[:2])
        photo = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_CUBIC)
        data = encode_jpeg(photo, 90)
    return data, photo


def _open(given: str) -> Callable[[NDArray[np.uint8]], list[Detection]]:
    name, _, size = given.partition(":")
    if size == "once":
        return partial(_once, open_detector(name, rotate=False, threads=1))
    return open_detector(name, size=int(size) if size.isdigit() else size or "auto", threads=1)  # type: ignore[arg-type]


def _once(search: PhotoSearch, photo: NDArray[np.uint8]) -> list[Detection]:
    scale = search.network.size / max(photo.shape[:2])
    if scale > 1 and not search.network.enlarges:
        return search.network(photo)
    small = cv2.resize(photo, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    pixel = np.array(photo.shape[1::-1]) / small.shape[1::-1]
    return [face.moved(pixel, np.zeros(2)) for face in search.network(small)]


def _mirrored(face: Detection, width: int) -> Detection:
    left, top, right, bottom = face.box
    points = np.stack([width - face.points[MIRRORED, 0], face.points[MIRRORED, 1]], axis=1)
    return Detection(np.array([width - right, top, width - left, bottom]), points, face.score)


def _summary(found: Sequence[list[Detection]], others: Sequence[list[Detection]]) -> str:
    """How far the points of the faces that both found are apart."""
    apart = []
    for faces, beside in zip(found, others, strict=True):
        for face in faces:
            same = max(beside, key=lambda other: _overlap(face.box, other.box), default=None)
            if same is not None and _overlap(face.box, same.box) >= 0.5:
                eyes = np.linalg.norm(same.points[1] - same.points[0])
                apart.append(np.linalg.norm(face.points - same.points, axis=1).mean() / eyes)
    shares = ", ".join(f"{np.quantile(apart, q):.3f} ({q:.0%})" for q in (0.5, 0.9))
    return f"of {len(apart)} faces apart by {shares} from those"


def _overlap(box: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    shared = np.prod(np.maximum(np.minimum(box[2:], other[2:]) - np.maximum(box[:2], other[:2]), 0))
    return float(shared / (np.prod(box[2:] - box[:2]) + np.prod(other[2:] - other[:2]) - shared))


if __name__ == "__main__":
    main()
