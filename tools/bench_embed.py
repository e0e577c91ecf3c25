"""Models beside each other on one core, or more, in one run: crops in, embedding and quality out, or either.

The models take turns, round by round, so that what else the machine does meets all of them alike. Preparing the input
is included; decoding is not. In brackets: the 95% interval of the median ratio to the first model.

    python tools/bench_embed.py mobilefacenet.onnx facerts-small --threads 1 --batch 1 --rounds 1000
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import partial

import numpy as np
from bench import alternate, machine, parser_of, ratios, with_quartiles

from facerts.datasets.synthetic import draw_face
from facerts.embedding import OnnxEmbedder
from facerts.embedding.onnx_embedder import OnnxQuality, load_model
from facerts.hub.find import find_model
from facerts.metrics.intervals import Interval, percentile_interval


def main() -> None:
    parser = parser_of(__doc__, {"--threads": (1, "of each model"), "--batch": (32, "crops in a call")}, rounds=30)
    parser.add_argument("models", nargs="+", help="the first is what the others are compared with")
    options = parser.parse_args()
    taken = time_models(options.models, options.batch, options.rounds, options.threads)
    print(machine())
    first, *_ = taken
    for name, times in taken.items():
        compared = ratios(times, taken[first])
        print(
            f"{name}: {with_quartiles(times)} ms a crop, {1000 / statistics.median(times):.0f} crops/s, "
            f"{statistics.median(compared):.3f} of {first} "
            f"[{', '.join(f'{end:.3f}' for end in median_interval(compared))}]"
        )


def time_models(models: Sequence[str], batch: int, rounds: int, threads: int = 1) -> dict[str, list[float]]:
    """Milliseconds per crop of each model in each round, by its name or, where names repeat, its path."""
    embedders = [load_model(find_model(model), threads=threads, batch_size=batch) for model in models]
    names = [embedder.name for embedder in embedders]
    crops = np.stack([draw_face(number, 0) for number in range(batch)])

    def run(embedder: OnnxEmbedder | OnnxQuality) -> None:
        embedder(crops)

    taken = alternate(
        {
            model if names.count(embedder.name) > 1 else embedder.name: partial(run, embedder)
            for model, embedder in zip(models, embedders, strict=True)
        },
        rounds,
    )
    return {name: [1000 * seconds / batch for seconds in times] for name, times in taken.items()}


def median_interval(values: Sequence[float], replicates: int = 2000) -> Interval:
    """The 95% bootstrap interval of the median, which takes the rounds as independent."""
    random = np.random.default_rng(0)
    drawn = random.choice(np.asarray(values), (replicates, len(values)))
    return percentile_interval(np.median(drawn, axis=1))


if __name__ == "__main__":
    main()
