"""Videos of people who are squares of one color, and a scorer that knows them by it.

A square of pure color on gray is a face; its hue is the person, and its brightness, 0 to 1, the quality. So tests know
everything that should be found, whatever a codec does to the pixels.
"""

import struct
from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import av
import cv2
import numpy as np

from facerts.detection import Detection
from facerts.embedding import FaceOutputs
from facerts.galleries import Enrollments
from facerts.images.align import TEMPLATE
from facerts.scoring import Scorer

HEIGHT, WIDTH, SIDE = 120, 240, 40
RED, GREEN, BLUE = (1, 0, 0), (0, 1, 0), (0, 0, 1)
# Color, left and top of each face.
Scene = Sequence[tuple[tuple[float, float, float], float, float]]


def draw(scene, height=HEIGHT, width=WIDTH):
    frame = np.full((height, width, 3), 90, np.uint8)
    for color, left, top in scene:
        rows, columns = (slice(max(round(start), 0), max(round(start) + SIDE, 0)) for start in (top, left))
        frame[rows, columns] = 255 * np.array(color)
    return frame


class ColorDetector:
    """Finds the squares, the largest first; ``score`` gives their score by the left side of their box."""

    identity = "squares of color"

    def __init__(self, score=lambda left: 0.9):
        self._score = score

    def __call__(self, image):
        colors = image.max(axis=2).astype(int) - image.min(axis=2)
        faces = []
        for channel in range(3):
            mask = ((colors > 50) & (image.argmax(axis=2) == channel)).astype(np.uint8)
            mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, np.ones((5, 5), np.uint8))
            _, _, stats, _ = cv2.connectedComponentsWithStats(mask)
            for left, top, width, height, area in stats[1:].tolist():
                if area < 100:
                    continue
                box = np.array([left, top, left + width, top + height], dtype=np.float64)
                points = box[:2] + TEMPLATE * np.array([width, height]) / 112
                faces.append(Detection(box, points, self._score(left)))
        return sorted(faces, key=lambda face: face.area, reverse=True)


class ColorCalibration:
    """Percentiles of brightness, and match thresholds of colors."""

    quantiles = tuple(np.linspace(0, 1, 101).tolist())
    matching = SimpleNamespace(
        flip=False,
        thresholds={
            rate: SimpleNamespace(similarity=cosine, fnmr=0.1, ci95=(0.0, 0.2), kept={})
            for rate, cosine in (("0.01", 0.6), ("0.0001", 0.8))
        },
    )
    groups: dict[str, Any] = {}  # noqa: RUF012

    def quality_at(self, percentile):
        return percentile / 100

    def percentile(self, quality):
        return round(100 * quality, 2)


class ColorEmbedder:
    """The color of a crop as its embedding, and its brightness as quality; v is the inverse of that."""

    name, batch_size, threads, providers = "colors", 16, 1, ("CPUExecutionProvider",)
    description = SimpleNamespace(thresholds={"0.99": SimpleNamespace(quality=0.35)}, calibration=ColorCalibration())

    def __init__(self, sha256="c" * 64):
        self.sha256, self.runs = sha256, 0

    def __call__(self, crops):
        self.runs += 1
        colors = crops[:, 30:82, 30:82].reshape(len(crops), -1, 3).mean(axis=1) / 255
        quality = np.maximum(colors.max(axis=1), 1e-3).astype(np.float32)
        length = np.maximum(np.linalg.norm(colors, axis=1, keepdims=True), 1e-6)
        return FaceOutputs(
            (colors / length).astype(np.float32),
            length[:, 0].astype(np.float32),
            quality,
            (1 / quality).astype(np.float32),
        )


def color_gallery(name="colors", sha256="c" * 64):
    """Rosa, who is red, and Blanca, who is violet."""
    faces = np.array([[1, 0, 0]] * 3 + [[0.6, 0, 0.8]] * 3, dtype=np.float32)
    people, empty = np.array(["Rosa"] * 3 + ["Blanca"] * 3), np.full(6, np.nan, np.float32)
    paths, reasons = np.array(list("abcdef")), np.array([""] * 6)
    return Enrollments(people, paths, faces, empty, empty, reasons, name, sha256)


def color_scorer(detector=None, **options):
    return Scorer.of(ColorEmbedder(), detector or ColorDetector(), **options)


def write_clip(path, frames, *, codec="libx264", aspect=1, container_options=None):
    """Encode frames at their times, in seconds."""
    settings = {"crf": "18", "preset": "ultrafast"} if codec == "libx264" else {}
    with av.open(str(path), "w", options=container_options or {}) as container:
        stream = container.add_stream(codec, rate=30, options=settings)
        stream.height, stream.width = frames[0][1].shape[:2]
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        stream.codec_context.gop_size = 12
        stream.codec_context.sample_aspect_ratio = aspect
        for time, pixels in frames:
            frame = av.VideoFrame.from_ndarray(pixels, format="rgb24")
            frame.time_base, frame.pts = Fraction(1, 1000), round(1000 * time)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def turn(path, rotation):
    """Write into an MP4 file by how many degrees its frames are to be turned counterclockwise, as cameras do."""
    data = bytearray(path.read_bytes())
    # The matrix of the track's header, see ISO/IEC 14496-12, 8.3.2: fixed point, the first two columns of two rows.
    at = data.index(b"tkhd") + 44
    cosine, sine = round(np.cos(np.radians(rotation))), round(np.sin(np.radians(rotation)))
    matrix = [cosine << 16, -sine << 16, 0, sine << 16, cosine << 16, 0, 0, 0, 1 << 30]
    data[at : at + 36] = struct.pack(">9i", *matrix)
    path.write_bytes(data)
    return path


def walk(seconds, fps=25.0, start=0.0):
    """A red and a green person who walk past each other, red from the left."""
    times = start + np.arange(round(seconds * fps)) / fps
    share = (times - start) / max(seconds, 1e-9)
    return [
        (float(time), draw([(RED, 10 + 160 * at, 20), (GREEN, 180 - 160 * at, 70)]))
        for time, at in zip(times, share, strict=True)
    ]
