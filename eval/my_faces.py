"""What `facerts train my_faces` gains with a few people, against the model that ships and training from nothing.

python eval/my_faces.py --people $FACERTS_DATA/faces/fiw-000000.tar --relatives '^[^_]+' --count 20 100 300 --draws 5

In each draw, so many people with two images or more are the user's; my_faces holds 0.3 of them out, and says whether it
is better than facerts-small. Both are then compared on other people whom neither has seen: FNMR at a false match rate,
over all pairs, each at a threshold of its own. A draw is better or worse if the 95 % interval over these people of the
difference does not contain 0. The interval of the mean difference is Student's, over the draws.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import parser_of, run

from facerts.datasets import Source, Subset, open_source
from facerts.embedding.embed import embed_source
from facerts.embedding.onnx_embedder import load_embedder
from facerts.embedding.outputs import Embedder
from facerts.hub.find import find_model
from facerts.metrics.all_pairs import AllPairs, compare_all
from facerts.metrics.intervals import mean_interval, percentile_interval
from facerts.report.table import markdown_table
from facerts.training.init_weights import open_network
from facerts.training.loader import TrainingData
from facerts.training.loop import train
from facerts.training.network_embedder import NetworkEmbedder
from facerts.training.recipe import Recipe, load_recipe
from facerts.training.start_comparison import compare_with_start, fnmr

SHIPPED = "facerts-small"


def main() -> None:
    options = arguments()
    source = open_source(options.people)
    others = source if options.test is None else open_source(options.test)
    rows = []
    for count in options.count:
        draws = [Draw(source, others, count, seed, options) for seed in range(options.draws)]
        for fmr in options.fmr:
            rows.append(row_of(draws, count, fmr))
    header = [
        "people",
        "images",
        "FMR",
        SHIPPED,
        "my_faces",
        "difference",
        "better, worse",
        "said better, rightly",
    ]
    print(markdown_table([*header, "from nothing"], rows))


class Draw:
    """One draw of a user's people, with what was trained on them and what was measured on others."""

    def __init__(
        self, source: Source, others: Source, count: int, seed: int, options: argparse.Namespace
    ) -> None:
        mine, rest = drawn(source, others, count, seed, options)
        self.images = len(mine)
        with TemporaryDirectory() as folder:
            write_people(mine, Path(folder, "people"))
            recipe = recipe_of("my_faces", folder, seed)
            adapted = trained(recipe, Path(folder, "adapted"))
            held_out = TrainingData(recipe).heldout
            assert held_out is not None
            found = compare_with_start(recipe, held_out, adapted)
            self.said_better = found is not None and found.better
            self.pairs = {
                SHIPPED: compared(load_embedder(find_model(SHIPPED)), rest),
                "my_faces": compared(adapted, rest),
            }
            if options.from_nothing:
                network = trained(
                    recipe_of("faces_small_rts", folder, seed, "optim.batch_size=16", "validation={}"),
                    Path(folder, "nothing"),
                )
                self.pairs["nothing"] = compared(network, rest)

    def fnmr(self, name: str, fmr: float) -> float:
        return fnmr(self.pairs[name], fmr)[0]

    def difference(self, fmr: float) -> tuple[float, tuple[float, float]]:
        """FNMR of my_faces minus that of the model that ships, with its interval over the other people."""
        (after, drawn_after), (before, drawn_before) = (
            fnmr(self.pairs[name], fmr) for name in ("my_faces", SHIPPED)
        )
        return after - before, percentile_interval(drawn_after - drawn_before)


def row_of(draws: list[Draw], count: int, fmr: float) -> list[str]:
    differences = [draw.difference(fmr) for draw in draws]
    better = [interval[1] < 0 for _, interval in differences]
    worse = sum(interval[0] > 0 for _, interval in differences)
    said = [right for draw, right in zip(draws, better, strict=True) if draw.said_better]
    values = [value for value, _ in differences]
    low, high = mean_interval(values)
    nothing = [draw.fnmr("nothing", fmr) for draw in draws if "nothing" in draw.pairs]
    return [
        str(count),
        f"{np.mean([draw.images for draw in draws]):.0f}",
        f"{fmr:g}",
        *(f"{np.mean([draw.fnmr(name, fmr) for draw in draws]):.4f}" for name in (SHIPPED, "my_faces")),
        f"{np.mean(values):+.4f} [{low:+.4f}, {high:+.4f}]",
        f"{sum(better)}, {worse} of {len(draws)}",
        f"{len(said)}, {sum(said)}",
        f"{np.mean(nothing):.4f}" if nothing else "–",
    ]


def drawn(
    source: Source, others: Source, count: int, seed: int, options: argparse.Namespace
) -> tuple[Source, Source]:
    """A user's images, and those of other people, none of them a relative."""
    assert source.labels is not None
    assert others.labels is not None
    random = np.random.default_rng((seed, count))
    images = Counter(source.labels.tolist())
    mine: set[int] = set()
    for label in random.permutation(len(source.identities)).tolist():
        if len(mine) < count and images[label] >= options.least:
            mine.add(label)
    families = {family(source.identities[label], options.relatives) for label in mine}
    rest = [
        label
        for label, name in enumerate(others.identities)
        if others is not source or family(name, options.relatives) not in families
    ]
    chosen = random.permutation(rest)[: options.most]
    return (
        Subset(source, np.flatnonzero(np.isin(source.labels, list(mine)))),
        Subset(others, np.flatnonzero(np.isin(others.labels, chosen))),
    )


def family(name: str, relatives: str) -> str:
    found = re.search(relatives, name)
    return found[0] if found else name


def write_people(source: Source, folder: Path) -> None:
    assert source.labels is not None
    for row, label in enumerate(source.labels):
        person = folder / source.identities[label]
        person.mkdir(parents=True, exist_ok=True)
        (person / f"{row}{Path(source.key(row)).suffix}").write_bytes(source.read(row))


def recipe_of(name: str, folder: str, seed: int, *fields: str) -> Recipe:
    data = [f"data.train={folder}/people", "data.name=drawn people", "data.terms=none", "data.workers=0"]
    return load_recipe(name, [*data, f"seed={seed}", *fields])


def trained(recipe: Recipe, folder: Path) -> Embedder:
    train(recipe, folder)
    network = open_network(folder)
    return NetworkEmbedder(network.network, network.method)


def compared(embedder: Embedder, source: Source) -> AllPairs:
    assert source.labels is not None
    return compare_all(embed_source(embedder, source, flip=False).embedding, source.labels)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--people", nargs="+", required=True, help="Aligned faces with identities to draw people from."
    )
    parser.add_argument(
        "--test", nargs="+", help="Other people to measure on; by default those who are not drawn."
    )
    parser.add_argument(
        "--relatives", default="^.*$", help="Regular expression: what the names of relatives share."
    )
    parser.add_argument("--count", nargs="+", type=int, default=[20])
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--least", type=int, default=2, help="Least number of images of a person.")
    parser.add_argument("--most", type=int, default=1000, help="Most people to measure on.")
    parser.add_argument("--fmr", nargs="+", type=float, default=[0.01, 0.001])
    parser.add_argument(
        "--from-nothing", action="store_true", help="Also train faces_small_rts on the same people."
    )
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
