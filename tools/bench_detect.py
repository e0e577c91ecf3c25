"""Detectors beside each other on the same photos, in one run: faces found, time, and how exact their points are.

They take turns, photo by photo, with one thread each; decoding is not included. Distances of points are the mean of the
five, as a share of the distance of the eyes: from the points that the first detector has for the same face (boxes that
overlap by half), and from those that the detector itself has for it in the photo's mirror.

    python tools/bench_detect.py ../shared/data/photos/lfw --detector yunet --detector buffalo_l.zip
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
from bench import machine, parser_of, with_quartiles
from numpy.typing import NDArray

from facerts.datasets import open_images
from facerts.detection import Detection, OpenDetector, open_detector
from facerts.images import decode

# Left and right change places in a mirror.
MIRRORED = [1, 0, 2, 4, 3]


def main() -> None:
    parser = parser_of(__doc__, {})
    parser.add_argument("photos", nargs="+", help="whatever facerts score takes")
    parser.add_argument(
        "--detector",
        action="append",
        required=True,
        help="name, file or pack, then :SIZE if not its own; the others are held against the first",
    )
    options = parser.parse_args()
    cv2.setNumThreads(1)
    detectors = [_open(given) for given in options.detector]
    source = open_images(options.photos)
    found: list[list[list[Detection]]] = [[] for _ in detectors]
    mirrored: list[list[list[Detection]]] = [[] for _ in detectors]
    taken: list[list[float]] = [[] for _ in detectors]
    for index in range(len(source)):
        photo = decode(source.read(index), where=source.location(index))
        mirror = np.ascontiguousarray(photo[:, ::-1])
        for which, detector in enumerate(detectors):
            mirrored[which].append([_mirrored(face, photo.shape[1]) for face in detector(mirror)])
            began = time.perf_counter()
            found[which].append(detector(photo))
            taken[which].append((time.perf_counter() - began) * 1000)
    print(machine())
    names = [Path(given).name for given in options.detector]
    for name, faces, in_mirror, times in zip(names, found, mirrored, taken, strict=True):
        print(
            f"{name}: {sum(map(len, faces))} faces, at least one in {sum(map(bool, faces))} of {len(source)} photos; "
            f"{with_quartiles(times, '.1f')} ms a photo"
        )
        print(f"  points {_summary(faces, in_mirror)} of its own in the mirror")
        if faces is not found[0]:
            print(f"  points {_summary(faces, found[0])} of {names[0]}")


def _open(given: str) -> OpenDetector:
    name, _, size = given.partition(":")
    return open_detector(name, size=int(size) if size else None, threads=1)


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
