"""A small model with match thresholds, for the tests of verification."""

import numpy as np

from tests.foreign import slow_embedding
from tests.shipped import write_model

HASH = "0" * 64


def blocks(seed):
    """A crop of random blocks of the size that the model averages, so that embeddings differ."""
    small = np.random.default_rng(seed).integers(60, 256, (7, 7, 3), dtype=np.uint8)
    return small.repeat(16, axis=0).repeat(16, axis=1)


def cosine(first, second):
    """The cosine of two crops, from embeddings that NumPy computes."""
    left, right = slow_embedding(np.stack([first, second]))
    return float(left @ right / np.linalg.norm(left) / np.linalg.norm(right))


def matching(**changes):
    """Match thresholds at two rates; keyword arguments replace fields."""

    def at(similarity, fmr, fnmr, kept):
        counts = {"impostors": 100_000, "genuine": 1000}
        pairs = {"genuine": 900, "fnmr": kept, "ci95": [kept - 0.01, kept + 0.01]}
        interval = [fnmr - 0.02, fnmr + 0.02]
        return {
            "similarity": similarity,
            "achieved_fmr": fmr,
            "fnmr": fnmr,
            "ci95": interval,
            "kept": {"0.95": pairs},
            **counts,
        }

    return {
        "data": "drawn",
        "data_sha256": HASH,
        "pairs": "all",
        "images": 1000,
        "identities": 100,
        "flip": False,
        "interval": "bootstrap over subjects",
        "same_person": [-12.7, 40.0, 0.0, 0.0],
        "thresholds": {"0.01": at(0.2, 0.01, 0.1, 0.05), "0.001": at(0.5, 0.001, 0.2, 0.125)},
    } | changes


def write_matcher(path, **changes):
    """A model whose quality is the brightness of the crop, from -1 to 1; keyword arguments replace ``matching``."""
    calibration = {
        "data": "drawn",
        "data_sha256": HASH,
        "faces": 1000,
        "identities": 100,
        "quantiles": [number / 50 - 1 for number in range(101)],
        "matching": matching(**changes),
    }
    thresholds = {"0.95": {"quality": -0.5, "data_sha256": HASH, "kept": 0.95}}
    return write_model(path, thresholds=thresholds, calibration=calibration, embedding_size=8)
