"""Verification of models on people held out from training, side by side: what settings are chosen by.

python eval/heldout_table.py one=runs/one.onnx two=runs/two.onnx --data held-out.tar
python eval/heldout_table.py gnap.onnx both=gnap.onnx+edgeface.onnx --data held-out.tar --flip \\
    --project-on 'train-*.tar' --sizes 64 128 256

MODEL+MODEL is the mean of their cosines. Accuracy is that of ten folds over as many impostor as genuine pairs; TAR is
over all pairs of the images. Intervals (95 %) are over people; differences from the first row are paired: both models
are measured in the same resamples. With --project-on, embeddings are also projected to their principal directions on
those images, as a network learns from several teachers (facerts/training/distillation/teacher.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import parser_of, run, split_label
from numpy.typing import NDArray

from facerts.benchmarks import pairs_from_identities
from facerts.datasets import Source, open_source
from facerts.embedding.outputs import FaceOutputs
from facerts.errors import DataError
from facerts.evaluation.verification import verification_of
from facerts.metrics.all_pairs import AllPairs, all_pairs, resampled_thresholds
from facerts.metrics.intervals import percentile_interval
from facerts.report.markdown import markdown_table, percent
from facerts.training.distillation.embeddings import Ensemble
from facerts.training.distillation.teacher import principal_directions

Embedding = NDArray[np.float32]


def main() -> None:
    options = arguments()
    source = open_source(options.data)
    if source.labels is None:
        raise DataError(f"{source.name}: name a source with identities; these images have none")
    rows, first = [], None
    for label, embedding in embeddings(options, source):
        pairs = all_pairs(embedding, source.labels)
        drawn = resampled(pairs, options.far, options.replicates, options.seed)
        first = drawn if first is None else first
        cells = [label, accuracy_of(embedding, source, options.seed)]
        for number, far in enumerate(options.far):
            tar = pairs.tar_at_far(far).tar
            cells.append(percent(tar, percentile_interval(drawn[:, number])))
            low, high = percentile_interval(100 * (drawn[:, number] - first[:, number]))
            cells.append("–" if drawn is first else f"[{low:+.2f}, {high:+.2f}]")
        rows.append(cells)
    heads = ["model", "accuracy, %"]
    for far in options.far:
        heads += [f"TAR at FAR {far:g}, %", "difference"]
    print(markdown_table(heads, rows))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "models", nargs="+", metavar="[LABEL=]MODEL[+MODEL]", help="the first is compared with"
    )
    parser.add_argument("--data", nargs="+", required=True, help="aligned faces with identities")
    parser.add_argument("--far", nargs="+", type=float, default=[1e-2, 1e-3], help="default: 0.01 0.001")
    parser.add_argument("--flip", action="store_true", help="add each image's mirror to its embedding")
    parser.add_argument("--project-on", nargs="+", help="images whose principal directions are taken")
    parser.add_argument("--sizes", nargs="+", type=int, default=[], help="numbers of directions")
    parser.add_argument("--cache", type=Path, help="folder of a run's teacher embeddings, for --project-on")
    parser.add_argument("--replicates", type=int, default=1000, help="of the bootstrap (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap and of the accuracy's pairs")
    options = parser.parse_args()
    if bool(options.project_on) != bool(options.sizes) or (options.project_on and not options.cache):
        parser.error("--project-on, --sizes and --cache go together")
    return options


def embeddings(options: argparse.Namespace, source: Source) -> Iterator[tuple[str, Embedding]]:
    """Every row's label and unit embeddings."""
    for text in options.models:
        label, models = split_label(text)
        ensemble = Ensemble(models.split("+"))
        label = label or "+".join(Path(model).stem for model in models.split("+"))
        embedding = ensemble.of_images(source, flip=options.flip)
        yield label, embedding
        if options.project_on:
            trained_on = ensemble.of_source(open_source(options.project_on), options.cache)
            directions = principal_directions(trained_on, max(options.sizes))
            for size in options.sizes:
                projected = embedding @ directions[:, :size].astype(np.float32)
                projected /= np.linalg.norm(projected, axis=1, keepdims=True)
                yield f"{label}, {size} directions", projected


def accuracy_of(embedding: Embedding, source: Source, seed: int) -> str:
    benchmark = pairs_from_identities(source, genuine=3000, impostors=3000, seed=seed)
    section, _ = verification_of(FaceOutputs(embedding, None, None, None, {}), benchmark, flip=None)
    assert section.accuracy is not None  # drawn pairs have folds
    return percent(section.accuracy.value, section.accuracy.ci95)


def resampled(pairs: AllPairs, fars: list[float], replicates: int, seed: int) -> NDArray[np.float64]:
    """``(replicates, F)`` TAR in resamples of the people, the same for every model."""
    tars = []
    for thresholds, weights in resampled_thresholds(pairs, fars, replicates=replicates, seed=seed):
        tars.append([np.average(pairs.genuine > threshold, weights=weights) for threshold in thresholds])
    return np.array(tars)


if __name__ == "__main__":
    run(main)
