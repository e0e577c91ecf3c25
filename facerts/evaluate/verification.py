"""An embedder on a verification benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.benchmarks.pairs import PairBenchmark
from facerts.embedder.outputs import Embedder, FaceOutputs
from facerts.evaluate.embed import embed_source
from facerts.evaluate.result import Arrays
from facerts.metrics.intervals import bootstrap
from facerts.metrics.verification import (
    OperatingPoint,
    auroc,
    eer,
    pair_cosine,
    roc,
    tar_at_far,
    ten_fold_accuracy,
)

FARS = (1e-1, 1e-2, 1e-3)


def evaluate_verification(
    embedder: Embedder,
    benchmark: PairBenchmark,
    *,
    flip: bool = True,
    batch_size: int = 64,
    progress: bool = True,
) -> tuple[dict[str, Any], Arrays]:
    """Embed a benchmark's pictures and measure.

    Returns:
        The section ``verification[NAME]`` of a result, and its arrays.
    """
    outputs = embed_source(embedder, benchmark.images, flip=flip, batch_size=batch_size, progress=progress)
    return verification_of(outputs, benchmark, flip=flip)


def verification_of(
    outputs: FaceOutputs, benchmark: PairBenchmark, *, flip: bool
) -> tuple[dict[str, Any], Arrays]:
    """Measure embeddings that are there already; see ``evaluate_verification``."""
    scores = pair_cosine(outputs.embedding, benchmark.pairs)
    same = benchmark.same
    accuracy = ten_fold_accuracy(scores, same, benchmark.folds)
    genuine, impostors = scores[same], scores[~same]
    thresholds = dict(zip(np.unique(benchmark.folds).tolist(), accuracy.thresholds, strict=True))
    decided = scores >= np.array([thresholds[fold] for fold in benchmark.folds.tolist()])
    right_genuine, right_impostors = decided[same], ~decided[~same]

    def resampled_accuracy(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        return float((right_genuine[first].sum() + right_impostors[second].sum()) / len(scores))

    sizes = (len(genuine), len(impostors))
    section: dict[str, Any] = {
        "pairs": len(scores),
        "genuine": len(genuine),
        "impostors": len(impostors),
        "images": len(benchmark.images),
        "flip": flip,
        "accuracy": {
            "value": accuracy.value,
            "fold_std": accuracy.fold_std,
            "ci95": list(bootstrap(resampled_accuracy, sizes)),
        },
        "auroc": auroc(scores, same),
        "eer": eer(scores, same),
        "tar_at_far": {
            _name(far): _point(tar_at_far(scores, same, far), genuine, impostors, far) for far in FARS
        },
        "interval": "bootstrap over pairs",
        "notes": list(benchmark.notes),
    }
    curve = roc(scores, same)
    arrays: Arrays = {
        "scores": scores.astype(np.float32),
        "same": same,
        "pairs": benchmark.pairs.astype(np.int32),
        "folds": benchmark.folds.astype(np.int8),
        "roc_far": curve.far.astype(np.float32),
        "roc_tar": curve.tar.astype(np.float32),
        **image_arrays(outputs, [benchmark.images.key(i) for i in range(len(benchmark.images))]),
    }
    return section, arrays


def image_arrays(outputs: FaceOutputs, names: list[str]) -> Arrays:
    """What a result keeps of each picture."""
    arrays: Arrays = {"names": np.array(names), "embeddings": outputs.embedding.astype(np.float16)}
    for name in ("quality", "uncertainty", "norm"):
        value = getattr(outputs, name)
        if value is not None:
            arrays[name] = value
    return arrays


def _name(rate: float) -> str:
    return f"{rate:g}"


def _point(
    point: OperatingPoint, genuine: NDArray[np.float64], impostors: NDArray[np.float64], far: float
) -> dict[str, Any]:
    def resampled(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        threshold = np.partition(impostors[second], len(impostors) - 1 - int(far * len(impostors)))[
            len(impostors) - 1 - int(far * len(impostors))
        ]
        return float(np.mean(genuine[first] > threshold))

    return {
        "value": point.tar,
        "achieved_far": point.achieved_far,
        "threshold": point.threshold if np.isfinite(point.threshold) else None,
        "impostors_accepted": round(point.achieved_far * point.impostors),
        "ci95": list(bootstrap(resampled, (len(genuine), len(impostors)))),
    }
