"""Compares models by verification on identities held out from training, to choose settings.

python eval/heldout_table.py one=runs/one.onnx two=runs/two.onnx --data held-out.tar
python eval/heldout_table.py gnap.onnx both=gnap.onnx+edgeface.onnx --data held-out.tar --flip \\
    --project-on 'train-*.tar' --sizes 64 128 256

MODEL+MODEL is an ensemble: the mean of the models' cosines. Accuracy is 10-fold, on equal numbers of genuine and
impostor pairs; TAR is over all pairs of the images. The 95% intervals are from resamples of the people, and
differences from the first row are paired (measured in the same resamples). With --project-on, embeddings are also
projected to the principal directions of those images, as in distillation from several teachers
(facerts/training/distillation/losses.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from common import open_people, parser_of, percent, run
from numpy.typing import NDArray

from facerts.benchmarks import pairs_from_identities
from facerts.datasets import Source, open_source
from facerts.embedding.outputs import FaceOutputs
from facerts.evaluation.labeled import split_label
from facerts.evaluation.pair_verification import verification_of
from facerts.metrics.all_pairs import AllPairs, all_pairs
from facerts.metrics.intervals import percentile_interval
from facerts.report.table import markdown_table
from facerts.training.distillation.losses import principal_directions
from facerts.training.distillation.teachers import TeacherEnsemble

Embedding = NDArray[np.float32]


def main() -> None:
    options = arguments()
    source, people = open_people(options.data)
    rows, first = [], None
    for label, embedding in embeddings(options, source):
        pairs = all_pairs(embedding, people)
        tars = resampled_tars(pairs, options.far, options.replicates, options.seed)
        first = tars if first is None else first
        cells = [label, accuracy_of(embedding, source, options.seed)]
        for number, far in enumerate(options.far):
            tar = pairs.tar_at_far(far).tar
            cells.append(percent(tar, percentile_interval(tars[:, number])))
            low, high = percentile_interval(100 * (tars[:, number] - first[:, number]))
            cells.append("–" if tars is first else f"[{low:+.2f}, {high:+.2f}]")
        rows.append(cells)
    header = ["model", "accuracy, %"]
    for far in options.far:
        header += [f"TAR at FAR {far:g}, %", "difference"]
    print(markdown_table(header, rows))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "models",
        nargs="+",
        metavar="[LABEL=]MODEL[+MODEL]",
        help="Models or ensembles; the others are compared with the first.",
    )
    parser.add_argument("--data", nargs="+", required=True, help="Aligned faces with identities.")
    parser.add_argument(
        "--far",
        nargs="+",
        type=float,
        default=[1e-2, 1e-3],
        help="False accept rates (default: 0.01 0.001).",
    )
    parser.add_argument(
        "--flip", action="store_true", help="Add the embedding of each image's mirror to its embedding."
    )
    parser.add_argument(
        "--project-on", nargs="+", help="Also project to the principal directions of these images."
    )
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[], help="Numbers of principal directions, for --project-on."
    )
    parser.add_argument(
        "--cache", type=Path, help="Cache folder for the embeddings of --project-on, e.g. that of a run."
    )
    parser.add_argument(
        "--replicates", type=int, default=1000, help="Number of bootstrap replicates (default: 1000)."
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="Seed of the bootstrap and of the accuracy's pairs (default: 0)."
    )
    options = parser.parse_args()
    if bool(options.project_on) != bool(options.sizes) or (options.project_on and not options.cache):
        parser.error("--project-on, --sizes and --cache must be used together")
    return options


def embeddings(options: argparse.Namespace, source: Source) -> Iterator[tuple[str, Embedding]]:
    """Yield label and unit embeddings of each row."""
    for text in options.models:
        label, models = split_label(text)
        ensemble = TeacherEnsemble(models.split("+"))
        label = label or "+".join(Path(model).stem for model in models.split("+"))
        embedding = ensemble.embed_source(source, flip=options.flip)
        yield label, embedding
        if options.project_on:
            reference = ensemble.embed_cached(open_source(options.project_on), options.cache)
            directions = principal_directions(reference, max(options.sizes))
            for size in options.sizes:
                projected = embedding @ directions[:, :size].astype(np.float32)
                projected /= np.linalg.norm(projected, axis=1, keepdims=True)
                yield f"{label}, {size} directions", projected


def accuracy_of(embedding: Embedding, source: Source, seed: int) -> str:
    """10-fold accuracy with its interval, in percent."""
    benchmark = pairs_from_identities(source, genuine=3000, impostors=3000, seed=seed)
    section, _ = verification_of(FaceOutputs(embedding, None, None, None, {}), benchmark, flip=None)
    assert section.accuracy is not None  # drawn pairs have folds
    return percent(section.accuracy.value, section.accuracy.ci95)


def resampled_tars(pairs: AllPairs, fars: list[float], replicates: int, seed: int) -> NDArray[np.float64]:
    """TAR ``(replicates, F)`` in resamples of the people; the resamples are the same for every model."""
    tars = []
    units = pairs.genuine_units
    for limits, drawn in pairs.resampled(fars, replicates=replicates, seed=seed):
        tars.append([np.average(pairs.genuine > limit, weights=drawn[units]) for limit in limits])
    return np.array(tars)


if __name__ == "__main__":
    run(main)
