"""Models beside each other on one core, or more, in one run: crops in, embedding and quality out.

The models take turns, round by round, so that what else the machine does meets all of them alike. Preparing the input
is included; decoding is not. In brackets: the 95 % interval of the median ratio.

    python tools/bench_embed.py mobilefacenet.onnx facerts-small --threads 1 --batch 1 --rounds 1000
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence

import numpy as np

from facerts.datasets.synthetic import draw_face
from facerts.embedding import load_embedder
from facerts.hub.registry import find_model
from facerts.metrics.intervals import Interval, percentile_interval


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="+", help="the first is what the others are compared with")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32, help="crops in a call")
    parser.add_argument("--rounds", type=int, default=30)
    options = parser.parse_args()
    embedders = [
        load_embedder(find_model(model), threads=options.threads, batch_size=options.batch)
        for model in options.models
    ]
    crops = np.stack([draw_face(number, 0) for number in range(options.batch)])
    taken: list[list[float]] = [[] for _ in embedders]
    for number in range(options.rounds + 1):
        for which, embedder in enumerate(embedders):
            began = time.perf_counter()
            embedder(crops)
            # The first round warms up.
            if number:
                taken[which].append((time.perf_counter() - began) / len(crops) * 1000)
    for embedder, times in zip(embedders, taken, strict=True):
        ratios = [mine / first for mine, first in zip(times, taken[0], strict=True)]
        print(
            f"{embedder.name}: {statistics.median(times):.2f} ms a crop (quartiles "
            f"{' to '.join(f'{q:.2f}' for q in statistics.quantiles(times, n=4)[::2])}), "
            f"{1000 / statistics.median(times):.0f} crops/s, {statistics.median(ratios):.3f} of {embedders[0].name} "
            f"[{', '.join(f'{end:.3f}' for end in median_interval(ratios))}]"
        )


def median_interval(values: Sequence[float], replicates: int = 2000) -> Interval:
    """The 95 % bootstrap interval of the median, which takes the rounds as independent."""
    random = np.random.default_rng(0)
    drawn = random.choice(np.asarray(values), (replicates, len(values)))
    return percentile_interval(np.median(drawn, axis=1))


if __name__ == "__main__":
    main()
