"""A frame of a video with its tracks drawn in, for the documentation, at two widths.

python tools/docs_video.py --out docs/figures/video_frame.jpg

follows drawn faces and scikit-image's astronaut (Eileen Collins, NASA) for two seconds with the model that ships, and
draws one frame as ``facerts video --annotate`` does: 1,280 pixels wide, and 640 in ``video_frame_small.jpg``.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

import facerts
from facerts.datasets.synthetic import draw_face
from facerts.detection import Detection
from facerts.images import encode_jpeg
from facerts.images.align import TEMPLATE
from facerts.scoring.annotated_video import DrawnTrack, draw_tracks
from facerts.scoring.video_tracks import TrackOptions
from facerts.video import open_frames

WIDTHS = {1280: "", 640: "_small"}
FPS, SHOWN = 5.0, 5
# Drawn faces are not such as the model knows; the better half of them is to count as good here.
MIN_QUALITY = 0.38
BACKGROUND = (186, 192, 196)
# Eyes, nose and corners of the mouth in the astronaut's image.
ASTRONAUT = np.array([[200.1, 101.8], [247.1, 102.6], [220.4, 124.5], [198.6, 142.8], [239.7, 143.6]])


@dataclass(frozen=True)
class Actor:
    """Someone in the scene, in parts of its width.

    Attributes:
        image: ``(H, W, 3) uint8``.
        points: ``(5, 2)`` in its pixels.
        width: of the image.
        start: left and top in the first frame.
        step: what is added to them from frame to frame.
    """

    image: NDArray[np.uint8]
    points: NDArray[np.float64]
    width: float
    start: tuple[float, float]
    step: tuple[float, float]


class KnownFaces:
    """A detector that knows where the faces of a scene are, as it has drawn them."""

    identity = "known faces"

    def __init__(self) -> None:
        self.faces: dict[int, list[Detection]] = {}

    def __call__(self, image: NDArray[np.uint8]) -> list[Detection]:
        return self.faces[hash(image.tobytes())]


def actors() -> list[Actor]:
    """The people of the scene."""
    import skimage.data

    astronaut = np.ascontiguousarray(skimage.data.astronaut()[:300, 70:370])
    drawn = [
        Actor(draw_face(identity, number), TEMPLATE.astype(np.float64), width, start, step)
        for identity, number, width, start, step in (
            (1, 1, 0.19, (0.44, 0.05), (0.004, 0.006)),
            (6, 0, 0.17, (0.81, 0.07), (-0.006, 0.004)),
            (3, 1, 0.18, (0.60, 0.31), (0.008, 0.0)),
        )
    ]
    return [Actor(astronaut, ASTRONAUT - [70, 0], 0.36, (0.02, 0.20), (0.004, 0.0)), *drawn]


def scene(width: int, number: int, cast: list[Actor]) -> tuple[NDArray[np.uint8], list[Detection]]:
    """A frame of the scene and its faces."""
    frame = np.empty((width * 9 // 16, width, 3), np.uint8)
    frame[:] = BACKGROUND
    faces = []
    for actor in cast:
        factor = actor.width * width / actor.image.shape[1]
        image = cv2.resize(actor.image, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
        left, top = (
            round(width * (begin + number * step)) for begin, step in zip(actor.start, actor.step, strict=True)
        )
        height = min(image.shape[0], frame.shape[0] - top)
        frame[top : top + height, left : left + image.shape[1]] = image[:height]
        points = actor.points * factor + [left, top]
        apart = float(np.linalg.norm(points[1] - points[0]))
        middle = points.mean(axis=0)
        reach = apart * np.array([[1.05, 1.4], [1.05, 1.25]])
        box = np.concatenate([middle - reach[0], middle + reach[1]])
        faces.append(Detection(box, points, 0.9))
    return frame, sorted(faces, key=lambda face: -face.area)


def figure(width: int) -> NDArray[np.uint8]:
    """The frame with its tracks."""
    cast, detector = actors(), KnownFaces()
    frames = []
    for number in range(2 * SHOWN):
        pixels, faces = scene(width, number, cast)
        detector.faces[hash(pixels.tobytes())] = faces
        frames.append(pixels)
    scorer = facerts.load(threads=1)
    scorer.detector = detector
    source = open_frames(frames)
    boxes = {}
    run = scorer.track(source, TrackOptions(fps=FPS), scorer.track_row_builder(min_quality=MIN_QUALITY))
    for number, frame in enumerate(run.frames()):
        boxes[number] = [
            (part, face.row.box, face.row.percentile) for part, face in zip(frame.parts, frame.faces, strict=True)
        ]
    tracks = {part: DrawnTrack(track.number, not track.too_poor) for track in run.finish() for part in track.parts}
    return draw_tracks(frames[SHOWN], boxes[SHOWN], tracks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the .jpg file")
    options = parser.parse_args()
    for width, suffix in WIDTHS.items():
        path = options.out.with_stem(f"{options.out.stem}{suffix}")
        path.write_bytes(encode_jpeg(figure(width), 88))
        print(path)


if __name__ == "__main__":
    main()
