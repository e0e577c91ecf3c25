"""Which number of RTS's δ scales is the best score: their arithmetic mean, their geometric mean, or the mode of t?

python eval/scale_scores.py out/papers/rts_seed*/rts_seed*.onnx --in lfw/ --in rafdb_aligned/ --out-of pets/ \\
    --exclude-out-of '*[01].jpg' --heldout val.tar

For each score, AUROC of faces against non-faces, and of held-out faces against the same faces degraded (see
image_sets.py). With several models, such as the seeds of one method, the numbers are means with Student's 95%
interval. The arithmetic mean is the score that facerts exports.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from common import add_sources, open_sources, over_runs, parser_of, run
from numpy.typing import NDArray

from facerts.datasets import Source
from facerts.embedding import load_embedder
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import Embedder
from facerts.errors import ModelError
from facerts.metrics.separation import separation
from facerts.report.table import markdown_table

# From log scales ``(N, δ)`` to scores ``(N,)``.
ScaleScore = Callable[[NDArray[np.float64]], NDArray[np.float64]]


def log_arithmetic_mean(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """log v̄, v̄ = (1/δ) Σ_i exp(z_i)."""
    largest = z.max(axis=1, keepdims=True)
    mean: NDArray[np.float64] = largest[:, 0] + np.log(np.exp(z - largest).mean(axis=1))
    return mean


def log_geometric_mean(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """(1/δ) Σ_i z_i."""
    mean: NDArray[np.float64] = z.mean(axis=1)
    return mean


def mode_of_temperature(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mode of the Gamma distribution with the mean and variance of t = (1/(δ − 2)) Σ_i v_i ε_i².

    Its mode is E[t] − Var[t]/E[t] = (Σ v_i − 2 Σ v_i² / Σ v_i) / (δ − 2). With equal v_i, t has this distribution
    exactly, and the mode is v.
    """
    v = np.exp(z)
    total = v.sum(axis=1)
    mode: NDArray[np.float64] = (total - 2 * np.square(v).sum(axis=1) / total) / (z.shape[1] - 2)
    return mode


SCORES: dict[str, ScaleScore] = {
    "arithmetic mean": log_arithmetic_mean,
    "geometric mean": log_geometric_mean,
    "mode of t": mode_of_temperature,
}


def main() -> None:
    options = arguments()
    sources = open_sources(options)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in SCORES}
    for path in options.models:
        embedder = load_embedder(path, threads=options.threads)
        scales = {name: log_scales(embedder, source) for name, source in sources.items()}
        for name, score in SCORES.items():
            quality = {part: -score(z) for part, z in scales.items()}
            found[name].append(
                (
                    separation(quality["faces"], quality["others"]).auroc,
                    separation(quality["clean"], quality["degraded"]).auroc,
                )
            )
    header = ["score", "models", "faces against non-faces, AUROC", "clean against degraded, AUROC"]
    rows = [
        [name, str(len(pairs)), *(over_runs(values) for values in zip(*pairs, strict=True))]
        for name, pairs in found.items()
    ]
    print(markdown_table(header, rows))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL", help="Exported models of RTS.")
    add_sources(parser)
    return parser.parse_args()


def log_scales(embedder: Embedder, source: Source) -> NDArray[np.float64]:
    """The log scales ``(N, δ)`` of the images of a source.

    Raises:
        ModelError: the model is not one of RTS.
    """
    outputs = embed_source(embedder, source, flip=False)
    if "log_scale" not in outputs.extras:
        raise ModelError(f"{embedder.name}: has no output log_scale; only models trained with rts do")
    return outputs.extras["log_scale"].astype(np.float64)


if __name__ == "__main__":
    run(main)
