"""Images with their faces drawn in: box, five points, quality and decision."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

from facerts.scoring.face import Face
from facerts.scoring.inputs import Color, ImageInput, lazy_inputs
from facerts.scoring.reasons import in_words
from facerts.scoring.row import Row

Pixels = NDArray[np.uint8]
Rgb = tuple[int, int, int]

# Okabe and Ito's green, orange (their vermilion) and blue, which most color-blind people tell apart.
ACCEPTED: Rgb = (0, 158, 115)
REJECTED: Rgb = (213, 94, 0)
UNDECIDED: Rgb = (0, 114, 178)
WHITE: Rgb = (255, 255, 255)

FONT = cv2.FONT_HERSHEY_DUPLEX
# Smaller images are enlarged to at least this longer side, so that a label can be read.
MIN_SIDE = 448
MIN_TEXT_HEIGHT = 9
# Left out of the label of a small face, as is the word before the number of a track.
PERCENTILE, TRACK = "percentile ", "track "


def annotate(
    image: ImageInput,
    faces: Face | Row | Sequence[Face | Row],
    *,
    color: Color = "RGB",
    titles: Sequence[str] | None = None,
) -> Pixels:
    """An image with its faces drawn in.

    Boxes and labels are green for accepted faces, orange for rejected ones, and blue without a threshold. The label of
    an aligned crop, or of an image without a face, stands below the image.

    Args:
        image: a path, encoded bytes, an ``(H, W, 3) uint8`` array or a PIL image.
        faces: its faces, or their rows; one or several.
        color: order of the channels of an array: "RGB", or "BGR" for those of OpenCV.
        titles: of each face, a line that stands above the others, such as a name; None for none.

    Returns:
        ``(H', W', 3) uint8`` RGB: a copy of the image, enlarged by a whole number if its sides are below 448 pixels,
        and higher by the label below it.

    Examples:
        >>> import facerts
        >>> from facerts.datasets.synthetic import draw_face
        >>> face = draw_face(0, 0)
        >>> annotated = facerts.annotate(face, facerts.load().faces(face))
        >>> annotated.shape[1]
        448
    """
    (given,) = lazy_inputs([image], color)
    several = [faces] if isinstance(faces, Face | Row) else faces
    rows = [face.row if isinstance(face, Face) else face for face in several]
    pixels = given.load()
    factor = max(1, math.ceil(MIN_SIDE / max(pixels.shape[:2])))
    canvas = pixels.copy() if factor == 1 else _enlarged(pixels, factor)
    labeled = [
        (row, [*filter(None, [title]), *label(row)])
        for row, title in zip(rows, titles or [""] * len(rows), strict=True)
    ]
    framed = [(row, lines) for row, lines in labeled if row.box is not None]
    # The smallest faces last, and all labels above all boxes, so that little is hidden.
    for row, _ in framed:
        _draw_face(canvas, row, factor)
    for row, lines in reversed(framed):
        _draw_label(canvas, row, lines, factor)
    for row, lines in labeled:
        if row.box is None:
            canvas = _with_caption(canvas, row, lines)
    return canvas


def _enlarged(pixels: Pixels, factor: int) -> Pixels:
    enlarged = cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return enlarged.astype(np.uint8, copy=False)


def label(row: Row) -> list[str]:
    """What a row says of its face, in lines of decreasing importance."""
    percentile = [] if row.percentile is None else [f"{PERCENTILE}{math.floor(row.percentile)}"]
    # Without percentiles, quality is all that there is.
    quality = [] if row.quality is None else [f"quality {row.quality:.2f}"]
    # OpenCV's fonts have no degree sign.
    words = in_words(row.reasons, pose=row.pose).replace("°", " degrees")
    reasons = words.split("; ") if words else []
    return [*(percentile or quality), *reasons, *(quality if percentile else []), *filter(None, [row.error])]


def _color(row: Row) -> Rgb:
    return UNDECIDED if row.accepted is None else ACCEPTED if row.accepted else REJECTED


def _line_width(canvas: Pixels) -> int:
    return int(max(2, round(max(canvas.shape[:2]) / 300)))


def _draw_face(canvas: Pixels, row: Row, factor: int) -> None:
    left, top, right, bottom = _box(row, factor)
    width = min(_line_width(canvas), max(1, (right - left) // 15))
    cv2.rectangle(canvas, (left, top), (right, bottom), _color(row), width, cv2.LINE_AA)
    radius = max(2, (right - left) // 50)
    for x, y in np.round(np.reshape(row.points or [], (-1, 2)) * factor).astype(int).tolist():
        cv2.circle(canvas, (x, y), radius, WHITE, cv2.FILLED, cv2.LINE_AA)
        cv2.circle(canvas, (x, y), radius, _color(row), 1, cv2.LINE_AA)


def _draw_label(canvas: Pixels, row: Row, said: Sequence[str], factor: int) -> None:
    """The lines that fit to the face on a plate above its box, or below it at the top of the image."""
    left, top, right, bottom = _box(row, factor)
    height, width = canvas.shape[:2]
    text = round(max(MIN_TEXT_HEIGHT, min((right - left) / 9, max(height, width) / 60)))
    room = 1.1 * (right - left)
    first, *others = [
        line if _width(line, text) <= room else line.removeprefix(PERCENTILE).removeprefix(TRACK)
        for line in said or [""]
    ]
    lines = [first, *(line for line in others if _width(line, text) <= room)]
    plate_height, plate_width = _plate_size(lines, text)
    y = top - plate_height if top >= plate_height else min(bottom, height - plate_height)
    x = min(max(left - _line_width(canvas) // 2, 0), width - plate_width)
    _draw_plate(canvas, lines, (max(x, 0), max(y, 0)), text, _color(row))


def _with_caption(canvas: Pixels, row: Row, lines: Sequence[str]) -> Pixels:
    """The image in a frame, with the label on a plate below it."""
    width = canvas.shape[1]
    longest = max(_width(line, 100) for line in [*lines, "percentile 100"]) / 100
    text = max(MIN_TEXT_HEIGHT, min(round(max(canvas.shape[:2]) / 35), int(width * 0.9 / longest)))
    frame = 2 * _line_width(canvas)
    cv2.rectangle(canvas, (0, 0), (width - 1, canvas.shape[0] - 1), _color(row), frame)
    plate = np.empty((_plate_size(lines, text)[0], width, 3), dtype=np.uint8)
    plate[:] = _color(row)
    _draw_plate(plate, lines, (0, 0), text, _color(row))
    return np.vstack([canvas, plate])


def _draw_plate(canvas: Pixels, lines: Sequence[str], corner: tuple[int, int], text: int, color: Rgb) -> None:
    """Lines of white text on a colored plate; ``corner`` is its left top."""
    x, y = corner
    height, width = _plate_size(lines, text)
    cv2.rectangle(canvas, (x, y), (x + width, y + height), color, cv2.FILLED)
    for number, line in enumerate(lines):
        base = y + round(text * (1.5 + 1.6 * number))
        cv2.putText(canvas, line, (x + text // 2, base), FONT, _scale(text), WHITE, _weight(text), cv2.LINE_AA)


def _plate_size(lines: Sequence[str], text: int) -> tuple[int, int]:
    width = max((_width(line, text) for line in lines), default=0)
    return round(text * (0.5 + 1.6 * len(lines))), width + text


def _box(row: Row, factor: int) -> list[int]:
    return [round(side * factor) for side in row.box or [0, 0, 0, 0]]


def _width(line: str, text: int) -> int:
    (width, _), _ = cv2.getTextSize(line, FONT, _scale(text), _weight(text))
    return int(width)


def _scale(text: int) -> float:
    """OpenCV's scale for capital letters of this height in pixels."""
    return float(cv2.getFontScaleFromHeight(FONT, text, _weight(text)))


def _weight(text: int) -> int:
    """Thickness of the strokes of letters of this height."""
    return max(1, text // 14)
