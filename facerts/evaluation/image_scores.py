"""The scores of an image, its model's own and those that need no training, and the few images that a report shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from facerts.datasets.source import Source
from facerts.embedding.outputs import FaceOutputs
from facerts.evaluation.baselines import BASELINES, CLASSIFIER_SCORES
from facerts.evaluation.result_folder import Arrays
from facerts.images import encode_jpeg

JPEG_QUALITY = 85
# Best and worst images by each score that a report shows.
SHOWN_IMAGES = 16


def image_scores(outputs: FaceOutputs) -> dict[str, NDArray[np.float32]]:
    """Scores by name, higher is better; a quality that is the norm stands once, as quality."""
    scores = {}
    if outputs.quality is not None:
        scores["quality"] = outputs.quality
    if outputs.norm is not None and not (
        outputs.quality is not None and np.array_equal(outputs.norm, outputs.quality)
    ):
        scores["norm"] = outputs.norm
    return {**scores, **_untrained(outputs)}


def image_arrays(outputs: FaceOutputs, names: list[str]) -> Arrays:
    """What a result keeps of each image."""
    arrays: Arrays = {"names": np.array(names), "embeddings": outputs.embedding.astype(np.float16)}
    for name in ("quality", "uncertainty", "norm"):
        value = getattr(outputs, name)
        if value is not None:
            arrays[name] = value
    return {**arrays, **_untrained(outputs)}


def _untrained(outputs: FaceOutputs) -> dict[str, NDArray[np.float32]]:
    """The scores that nothing was trained for, in the order of tables."""
    names = (*BASELINES, *CLASSIFIER_SCORES)
    return {name: outputs.extras[name] for name in names if name in outputs.extras}


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
