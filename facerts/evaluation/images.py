"""The images behind a result: their hash, repeated ones, and the few that a report shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.evaluation.result_folder import Arrays
from facerts.images import encode_jpeg

JPEG_QUALITY = 85
# Best and worst images by each score that a report shows.
SHOWN_IMAGES = 16


def shown_images(source: Source, rows: Sequence[int] | NDArray[np.integer]) -> Arrays:
    """Crops that a report will show: their rows, and their JPEG bytes one after the other with the ends of each."""
    chosen = np.unique(np.asarray(rows, dtype=np.int64))
    encoded = [encode_jpeg(source.crop(int(row)), JPEG_QUALITY) for row in chosen]
    return {
        "shown_rows": chosen,
        "shown_jpeg": np.frombuffer(b"".join(encoded), dtype=np.uint8),
        "shown_ends": np.cumsum([len(data) for data in encoded]).astype(np.int64),
    }


def extremes(values: NDArray[np.float32]) -> list[NDArray[np.intp]]:
    """Rows of the lowest and of the highest values."""
    order = np.argsort(values, kind="stable")
    return [order[:SHOWN_IMAGES], order[-SHOWN_IMAGES:]]
