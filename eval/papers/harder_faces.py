"""Writes a harder copy of a training set: few images of all or of half of the people, wrong names, or blurred images.

python eval/papers/harder_faces.py "$FACERTS_DATA/faces/train-*.tar" --label-noise 0.1 --out out/harder/noise10

Few images, imbalance and wrong labels are the scenarios of Aljundi et al., "Contrastive Classification and
Representation Learning with Probabilistic Interpretation" (ESupCon), AAAI 2023; blur is that of Shang et al., "Random
Temperature Scaling", AAAI 2023, Table 1, whose strength the paper does not state. Milder settings change a subset of
the images that harder ones change.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import open_people, parser_of, run

from facerts.images import encode_png
from facerts.images.changes import gaussian_blur
from facerts.io.progress import track

IMAGES, PEOPLE, NAMES, BLUR = range(4)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("source", nargs="+", help="Images of people.")
    parser.add_argument("--out", type=Path, required=True, help="Folder for the images, a folder for each person.")
    parser.add_argument("--images", type=int, help="Maximum number of images of each person.")
    parser.add_argument(
        "--imbalance",
        type=float,
        default=1.0,
        help="Share of these that half of the people keep; at least one.",
    )
    parser.add_argument("--label-noise", type=float, default=0.0, help="Share of images under a wrong name.")
    parser.add_argument("--blur", type=float, default=0.0, help="Share of images that are blurred.")
    parser.add_argument("--radius", type=float, default=3.0, help="Standard deviation of the blur, in pixels.")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    source, labels = open_people(options.source)
    kept = kept_images(labels, options.images, options.imbalance, options.seed)
    names = noisy_labels(labels, options.label_noise, options.seed)
    blurred = np.random.default_rng((options.seed, BLUR)).random(len(labels)) < options.blur
    for index in track(kept.tolist(), f"writing {options.out}", unit="images"):
        folder = options.out / source.identities[names[index]]
        folder.mkdir(parents=True, exist_ok=True)
        image = source.crop(index)
        image = gaussian_blur(image, options.radius) if blurred[index] else image
        (folder / f"{index:07d}.png").write_bytes(encode_png(image))
    wrong = int((names != labels)[kept].sum())
    print(f"{options.out}: {len(kept):,} of {len(labels):,} images, {wrong:,} under a wrong name")


def kept_images(labels: NDArray[np.int64], images: int | None, imbalance: float, seed: int) -> NDArray[np.int64]:
    """``(K,)`` rising indices of the images that remain of each person, of half of the people only a share of them."""
    counts = np.bincount(labels)
    limits = counts if images is None else np.minimum(counts, images)
    few = np.random.default_rng((seed, PEOPLE)).permutation(len(counts)) < len(counts) // 2
    limits = np.where(few, np.maximum(1, np.rint(imbalance * limits)), limits)
    # Each person's images in a random order, of which the first are kept.
    order = np.lexsort((np.random.default_rng((seed, IMAGES)).random(len(labels)), labels))
    rank = np.empty(len(labels), dtype=np.int64)
    rank[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return np.flatnonzero(rank < limits[labels])


def noisy_labels(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Labels ``(N,)``, each replaced with a probability by another, uniform over the others."""
    random = np.random.default_rng((seed, NAMES))
    people = int(labels.max()) + 1
    others = (labels + random.integers(1, people, len(labels))) % people
    return np.where(random.random(len(labels)) < share, others, labels)


if __name__ == "__main__":
    run(main)
