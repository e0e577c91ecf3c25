"""Measures templates of tracks on people held out from training: how to weight their faces, and how often they err.

python eval/track_templates.py --people held-out.tar --seeds 5

Each person has two tracks, one of their first two images and one of the others. A track has eight frames, each one of
its images, of which half are degraded (six corruptions, severity 0.5 to 1). The templates of the first tracks are
compared with those of the second: FNMR at FMR 0.001 for several weights of the frames, v being the model's uncertainty;
and, at the model's own threshold for single faces at FMR 0.001, the share of pairs of different people that match.
Intervals (95 %) are from resamples of the people, all seeds of a person together.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from common import open_people, parser_of, percent, resampled_rate, run
from numpy.typing import NDArray

import facerts
from facerts.datasets import Source
from facerts.images import decode
from facerts.images.corruptions import KINDS, degrade
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.pooling import pool
from facerts.metrics.verification import fmr_threshold
from facerts.report.table import markdown_table
from facerts.scoring import Scorer

FRAMES = 8
FMR = 1e-3
Floats = NDArray[np.float64]
# Weights of faces from v and from the percentile of their quality.
WEIGHTS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "all equal": lambda v, percentile: np.ones_like(v),
    "1 / v": lambda v, percentile: 1 / v,
    "1 / v^2": lambda v, percentile: v**-2,
    "1 / v^4": lambda v, percentile: v**-4,
    "1 / v^8": lambda v, percentile: v**-8,
    "1 / v^16": lambda v, percentile: v**-16,
    "percentile / 30, at most 1": lambda v, percentile: np.clip(percentile / 30, 0.01, 1),
}


def main() -> None:
    options = arguments()
    scorer = facerts.load(options.model, threads=options.threads)
    source, labels = open_people(options.people)
    people = len(source.identities)
    cosines: dict[str, list[Floats]] = {name: [] for name in [*WEIGHTS, "single faces"]}
    for seed in range(options.seeds):
        embedding, v, percentile = track_faces(scorer, source, labels, seed)
        rows = np.repeat(np.arange(people), FRAMES)
        for name, weights in WEIGHTS.items():
            first, second = (
                pool(embedding[track], rows, weights=weights(v[track], percentile[track])) for track in (0, 1)
            )
            cosines[name].append(np.asarray(first @ second.T, dtype=np.float64))
        first, second = (embedding[track].reshape(people, FRAMES, -1)[:, 0] for track in (0, 1))
        cosines["single faces"].append(np.asarray(first @ second.T, dtype=np.float64))
    print_tables(scorer, {name: np.stack(of_seeds) for name, of_seeds in cosines.items()})


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--people", required=True, help="Aligned faces with identities, held out from training."
    )
    parser.add_argument("--model", help="Model (default: the one that ships).")
    parser.add_argument("--seeds", type=int, default=5, help="Number of random degradations (default: 5).")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the model (default: 1).")
    return parser.parse_args()


def track_faces(
    scorer: Scorer, source: Source, labels: NDArray[np.integer], seed: int
) -> tuple[NDArray[np.float32], Floats, Floats]:
    """Embeddings ``(2, frames, d)``, v and percentiles ``(2, frames)`` of the two tracks of all people."""
    random = np.random.default_rng(seed)
    crops = []
    for track in (0, 1):
        for label in range(len(source.identities)):
            images = np.flatnonzero(labels == label)
            own = images[:2] if track == 0 else images[2:]
            for frame in range(FRAMES):
                index = int(random.choice(own))
                crop = decode(source.read(index), where=source.location(index))
                if frame % 2:
                    kind = str(random.choice(list(KINDS)))
                    crop = degrade(crop, kind, random.uniform(0.5, 1), (seed, track, label, frame))
                crops.append(crop)
    outputs = scorer.embed(np.stack(crops))
    calibration = scorer.embedder.description.calibration
    assert outputs.uncertainty is not None
    assert outputs.quality is not None
    assert calibration is not None
    percentile = [calibration.percentile(float(quality)) for quality in outputs.quality]
    shape = (2, len(crops) // 2)
    return (
        outputs.embedding.reshape(*shape, -1),
        outputs.uncertainty.astype(np.float64).reshape(shape),
        np.array(percentile, dtype=np.float64).reshape(shape),
    )


def print_tables(scorer: Scorer, cosines: dict[str, Floats]) -> None:
    """Print the error rates of each kind of template, from cosines ``(seeds, people, people)``."""
    calibrated = scorer.match_threshold(FMR)
    people = cosines["single faces"].shape[1]
    own, others = np.eye(people, dtype=bool), ~np.eye(people, dtype=bool)
    rows = []
    for name, scores in cosines.items():
        threshold = fmr_threshold(scores[:, others].ravel(), FMR)
        missed = (scores[:, own] < threshold).sum(axis=0).astype(np.float64)
        matched = ((scores >= calibrated) & others).sum(axis=0).astype(np.float64)
        pairs = np.full((people, people), float(len(scores))) * others
        fnmr = resampled_rate(missed, np.full(people, float(len(scores))))
        fmr = resampled_rate(matched, pairs)
        rows.append(
            [
                name,
                percent(fnmr[0], percentile_interval(fnmr[1:])),
                percent(fmr[0], percentile_interval(fmr[1:]), form=".3f"),
            ]
        )
    header = ["weights", f"FNMR at FMR {FMR:g}", f"FMR at the model's threshold for {FMR:g}"]
    print(markdown_table(header, rows))


if __name__ == "__main__":
    run(main)
