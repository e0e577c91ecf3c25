"""The scores of an image that rankings can use: the model's own, and those that need no training."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from facerts.embedding.outputs import FaceOutputs
from facerts.evaluation.baselines import BASELINES, CLASSIFIER_SCORES
from facerts.evaluation.result_folder import Arrays


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
