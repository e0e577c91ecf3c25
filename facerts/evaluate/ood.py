"""Faces against what is no face, by each score that an embedder has of a picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from facerts.embedder.outputs import FaceOutputs
from facerts.errors import Error
from facerts.evaluate.reject import image_scores
from facerts.evaluate.result import Arrays
from facerts.evaluate.verification import image_arrays
from facerts.metrics.intervals import bootstrap
from facerts.metrics.ood import TPRS, separation, tnr_at_tpr
from facerts.metrics.verification import auroc


def ood_of(
    faces: Mapping[str, FaceOutputs], others: Mapping[str, FaceOutputs], names: Mapping[str, list[str]]
) -> tuple[dict[str, Any], Arrays]:
    """Measure outputs of in-distribution sources against those of out-of-distribution sources.

    Args:
        faces: outputs of each in-distribution source by its name.
        others: outputs of each out-of-distribution source by its name.
        names: the pictures of every source.

    Returns:
        The section ``ood`` of a result, and its arrays by source.

    Raises:
        Error: no source on one side, or no score that all sources have.
    """
    if not faces or not others:
        raise Error("give sources of faces (--in) and of other things (--out-of)")
    sources = {**faces, **others}
    by: dict[str, Any] = {}
    for name in ("quality", "norm"):
        scored = {source: image_scores(outputs).get(name) for source, outputs in sources.items()}
        if all(values is not None for values in scored.values()):
            by[name] = _by(
                {source: values for source, values in scored.items() if values is not None}, faces, others
            )
    if not by:
        raise Error("this model gives neither quality nor norm, so there is nothing to tell faces by")
    arrays: Arrays = {}
    for source, outputs in sources.items():
        kept = image_arrays(outputs, names[source])
        arrays.update({f"{source}/{key}": value for key, value in kept.items() if key != "embeddings"})
    section = {
        "in": {name: len(outputs) for name, outputs in faces.items()},
        "out": {name: len(outputs) for name, outputs in others.items()},
        "by": by,
        "interval": "bootstrap over pictures",
    }
    return section, arrays


def _by(
    scored: dict[str, NDArray[np.float32]],
    faces: Mapping[str, FaceOutputs],
    others: Mapping[str, FaceOutputs],
) -> dict[str, Any]:
    outside = np.concatenate([scored[name] for name in others])
    pooled = _numbers(np.concatenate([scored[name] for name in faces]), outside)
    pooled["per_source"] = {name: _numbers(scored[name], outside) for name in faces}
    pooled["per_out_source"] = {
        name: _numbers(np.concatenate([scored[face] for face in faces]), scored[name]) for name in others
    }
    return pooled


def _numbers(inside: NDArray[np.float32], outside: NDArray[np.float32]) -> dict[str, Any]:
    measured = separation(inside, outside)
    flags = np.repeat([True, False], [len(inside), len(outside)])

    def resampled_auroc(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        return auroc(np.concatenate([inside[first], outside[second]]), flags)

    sizes = (len(inside), len(outside))
    intervals = {"auroc": list(bootstrap(resampled_auroc, sizes, replicates=200))}
    for tpr in TPRS:
        intervals[f"{tpr:.2f}"] = list(
            bootstrap(lambda i, o, tpr=tpr: tnr_at_tpr(inside[i], outside[o], tpr), sizes, replicates=200)
        )
    return {
        "auroc": measured.auroc,
        "aupr": measured.aupr,
        "fpr95": measured.fpr95,
        "tnr_at_tpr": {f"{tpr:.2f}": value for tpr, value in measured.tnr_at_tpr.items()},
        "ci95": intervals,
    }
