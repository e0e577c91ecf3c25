"""Measures the scores that a recognizer gives by forward passes alone, to check their direction and choose settings.

python eval/recognizer_scores.py mobilefacenet.onnx edgeface_xs_q.onnx --data held-out.tar --people even
python eval/recognizer_scores.py mobilefacenet.onnx edgeface_xs_q.onnx --data held-out.tar --people even \\
    --sparsity 0.02 0.05 0.1 0.2 0.4

Each score rejects up to 30% of the genuine pairs of its own recognizer, whose threshold is chosen on all impostor
pairs of the clean images. The area is the mean FNMR over the rejection rates, divided by the FNMR without rejection: 1
means no gain, lower is better; its 95% interval is over people. The images are clean or degraded (see
eval/image_sets.py). The correlation is Spearman's between score and severity, the mean over the kinds of degradation:
−1 means that the score orders images exactly by severity.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
from common import number, open_people, parser_of, run
from image_sets import open_image_set
from numpy.typing import NDArray

from facerts.datasets import Source, Subset
from facerts.datasets.changed import DEGRADED_BY, degradation
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import CropScore, FaceOutputs
from facerts.embedding.recognizer_scores import open_recognizer_scores
from facerts.embedding.recognizer_scores.pruning import pruning_stability
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.intervals import Estimate
from facerts.report.table import markdown_table

HEADER = ("recognizer", "score", "area, clean", "area, degraded", "correlation with severity")
SETS = ("clean", "degraded")
END = 0.3


def main() -> None:
    options = arguments()
    source, people = open_people(options.data)
    if options.people != "all":
        source = Subset(source, np.flatnonzero(people % 2 == ("even", "odd").index(options.people)))
    rows = []
    for path in options.models:
        embedder = load_embedder(path, threads=options.threads)
        rows += rows_of(embedder, source, options)
    print(markdown_table(HEADER, rows, words=2))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("models", nargs="+", metavar="MODEL", help="Recognizers: ONNX embedders.")
    parser.add_argument(
        "--data", nargs="+", required=True, help="Aligned faces with identities, held out from training."
    )
    parser.add_argument(
        "--people",
        choices=("all", "even", "odd"),
        default="all",
        help="Use every second person: choose settings on one half and check them on the other.",
    )
    parser.add_argument(
        "--sparsity",
        nargs="+",
        type=float,
        default=[],
        metavar="SHARE",
        help="Measure only the score 'pruning', with each of these shares of the weights removed.",
    )
    parser.add_argument("--fmr", type=float, default=1e-3, help="False match rate of the threshold.")
    parser.add_argument("--replicates", type=int, default=200, help="Resamples of the people.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the degradations and resamples.")
    parser.add_argument("--threads", type=int, help="Threads of ONNX Runtime per forward pass.")
    return parser.parse_args()


def rows_of(embedder: OnnxEmbedder, source: Source, options: argparse.Namespace) -> list[list[str]]:
    """A row of the table for each score of a recognizer."""
    scores: dict[str, CropScore] = {
        f"pruning {share:g}": pruning_stability(embedder, share) for share in options.sparsity
    } or open_recognizer_scores(embedder)
    clean, degraded = (
        embed_source(embedder, open_image_set(name, source, options.seed), flip=False, also=scores)
        for name in SETS
    )
    areas = [area_of(outputs, clean, source, list(scores), options) for outputs in (clean, degraded)]
    return [
        [
            embedder.name,
            name,
            *(number(area[name].value, area[name].interval(), form=".3f") for area in areas),
            f"{correlation(degraded.extras[name], options.seed):+.3f}",
        ]
        for name in scores
    ]


def area_of(
    outputs: FaceOutputs,
    clean: FaceOutputs,
    source: Source,
    names: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Estimate]:
    people = np.asarray(source.labels)
    measured = error_versus_reject(
        compare_all(outputs.embedding, people),
        {name: outputs.extras[name] for name in names},
        [options.fmr],
        replicates=options.replicates,
        seed=options.seed,
        thresholds_on=compare_all(clean.embedding, people),
    )[options.fmr]
    return {name: measured.by[name].area[END] for name in names}


def correlation(scores: NDArray[np.float32], seed: int) -> float:
    """Mean over the kinds of Spearman's correlation of score and severity of the degraded images."""
    kinds, severities = zip(*(degradation(index, seed) for index in range(len(scores))), strict=True)
    rows = (np.flatnonzero(np.array(kinds) == kind) for kind in DEGRADED_BY)
    return float(np.mean([spearman(scores[r], np.array(severities)[r]) for r in rows]))


def spearman(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Spearman's correlation of values without ties."""
    ranks = (np.argsort(np.argsort(values)) for values in (a, b))
    return float(np.corrcoef(*ranks)[0, 1])


if __name__ == "__main__":
    run(main)
