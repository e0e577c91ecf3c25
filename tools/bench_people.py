"""Groups of very many faces: seconds, memory, agreement with the people, and what an index misses.

Embeddings are drawn: people with images by a power law (exponent 2, up to 200), around centers whose variance falls by
a power law too, so that cosines of different people have the mean 0 and the standard deviation 0.076 of EdgeFace-XS on
held-out people, and those of one person a mean from 0.3 (poor faces) to 0.65 and a standard deviation near 0.13; there
are fewer look-alikes than among real people. The
likelihood ratio is fitted on 2,000 other drawn faces. Each size runs in a process of its own.

    python tools/bench_people.py --faces 10000 30000 100000
"""

from __future__ import annotations

import math
import sys
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from bench import in_process, machine, parser_of, peak_mib
from numpy.typing import NDArray

from facerts.metrics.same_person import SamePerson, fit_same_person, quality_level
from facerts.people import group_faces
from facerts.people.neighbors import NEIGHBORS, nearest

sys.path.insert(0, str(Path(__file__).parents[1] / "eval"))
from clustering import group_agreement

SIZE, DECAY = 512, 0.314
LARGEST, FITTED, PROBES, THRESHOLD = 200, 2_000, 1_000, 5.0
# The share of a face that is its person's, by quality level, and how much it differs between images.
BEST_SHARE, SHARE_BY_LEVEL, SHARE_SPREAD, SMALLEST = 0.84, 0.19, 0.13, 0.1


def main() -> None:
    options = parser_of(__doc__, {"--faces": ([10_000, 30_000, 100_000], "numbers of faces")}).parse_args()
    print(machine())
    for exact in (True, False):
        measured = []
        for faces in options.faces:
            result = in_process(measure, faces, exact)
            measured.append((faces, result["seconds"]))
            search = "compared with all" if exact else "HNSW"
            print(
                f"{faces:,} faces of {result['people']:,} people, {search}: {result['seconds']:.1f} s, "
                f"{result['mib']:,.0f} MiB at most ({result['embeddings_mib']:,.0f} MiB of them the embeddings), "
                f"BCubed F {result['f']:.4f} (precision {result['precision']:.4f}, recall {result['recall']:.4f}), "
                f"{result['found']:.4f} of the {NEIGHBORS} nearest found"
            )
        for (less, before), (more, after) in pairwise(measured):
            print(f"  from {less:,} to {more:,}: time grows with the power {math.log(after / before, more / less):.2f}")


def measure(faces: int, exact: bool) -> dict[str, float]:
    """Group drawn faces."""
    ratio = fitted()
    embedding, percentile, person = draw(faces, seed=1)
    began = time.perf_counter()
    groups = group_faces(embedding, percentile, percentile >= THRESHOLD, ratio, exact=exact)
    seconds = time.perf_counter() - began
    mib = peak_mib()
    agreement = group_agreement(person, groups.group)
    probes = embedding[:PROBES]
    best, found = (nearest(embedding, probes, NEIGHBORS, exact=way).templates for way in (True, exact))
    shared = [len(np.intersect1d(*rows)) for rows in zip(best, found, strict=True)]
    return {
        "people": agreement.people,
        "seconds": seconds,
        "mib": mib,
        "embeddings_mib": embedding.nbytes / 2**20,
        "f": agreement.f,
        "precision": agreement.precision,
        "recall": agreement.recall,
        "found": float(np.mean(shared)) / best.shape[1],
    }


def fitted() -> SamePerson:
    embedding, percentile, person = draw(FITTED, seed=0)
    first, second = np.triu_indices(FITTED, 1)
    level = quality_level(percentile)
    cosine = (embedding @ embedding.T)[first, second]
    return fit_same_person(cosine, level[first], level[second], person[first] == person[second])


def draw(faces: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.int64]]:
    """Embeddings ``(N, 512)``, percentiles of quality ``(N,)`` and people ``(N,)``."""
    random = np.random.default_rng(seed)
    chance = np.arange(1, LARGEST + 1, dtype=np.float64) ** -2
    sizes = random.choice(LARGEST, faces, p=chance / chance.sum()) + 1
    person = np.repeat(np.arange(faces), sizes)[:faces]
    spectrum = (np.arange(1, SIZE + 1, dtype=np.float32) ** -DECAY).astype(np.float32)
    percentile = random.uniform(0, 100, faces)
    share = BEST_SHARE + SHARE_BY_LEVEL * quality_level(percentile) + random.normal(0, SHARE_SPREAD, faces)
    share = np.clip(share, SMALLEST, 1)[:, None].astype(np.float32)
    centers = unit(random.standard_normal((person[-1] + 1, SIZE), dtype=np.float32) * spectrum)
    noise = unit(random.standard_normal((faces, SIZE), dtype=np.float32) * spectrum)
    embedding = unit(share * centers[person] + np.sqrt(1 - share**2) * noise)
    order = random.permutation(faces)
    return embedding[order], percentile[order], person[order]


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


if __name__ == "__main__":
    main()
