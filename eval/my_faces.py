"""What `facerts train my_faces` gains with a few people, against the model that ships and training from nothing.

python eval/my_faces.py --people $FACERTS_DATA/faces/fiw-000000.tar --relatives '^[^_]+' --count 20 100 300

In each draw, so many people with two images or more are the user's. The recipe holds some of them out, adapts the model
that ships to the others, and says whether that is better. Both are then compared on 800 other people, relatives left
out: FNMR at a false match rate over all pairs, each at a threshold of its own. A draw is better or worse if the 95%
interval of the difference, over these people, does not contain 0. The mean has Student's interval, over the draws.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from common import parser_of, run
from numpy.typing import NDArray

from facerts.datasets import Source, Subset, open_source
from facerts.datasets.sampler import hold_out_identities
from facerts.embedding import load_embedder
from facerts.embedding.embed import embed_source
from facerts.embedding.outputs import FaceOutputs
from facerts.hub.find import find_model
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.intervals import mean_interval, percentile_interval
from facerts.report.table import markdown_table
from facerts.training.adapt import adapted_map
from facerts.training.init_weights import open_network
from facerts.training.loop import train
from facerts.training.network_embedder import NetworkEmbedder
from facerts.training.recipe import load_recipe
from facerts.training.start_comparison import compare_embeddings, fnmr

SHIPPED = "facerts-small"


@dataclass(frozen=True)
class Embedded:
    """Images with their embeddings ``(N, d)`` before normalization."""

    source: Source
    embedding: NDArray[np.float32]

    def of(self, people: NDArray[np.integer]) -> Embedded:
        """The images of some people."""
        rows = np.flatnonzero(np.isin(labels_of(self.source), people))
        return Embedded(Subset(self.source, rows), self.embedding[rows])

    @property
    def unit(self) -> NDArray[np.float32]:
        return self.embedding / np.linalg.norm(self.embedding, axis=1, keepdims=True)


@dataclass(frozen=True)
class Draw:
    """What one draw of a user's people gave: FNMR by model at each rate, and the difference with its interval."""

    images: int
    said_better: bool
    rates: dict[float, dict[str, float]]
    differences: dict[float, tuple[float, float, float]]


def main() -> None:
    options = arguments()
    images = open_source(options.people)
    if options.test is None:
        source = others = embed(images)
    else:
        enough = np.bincount(labels_of(images)) >= options.least
        source = embed(Subset(images, np.flatnonzero(enough[labels_of(images)])))
        others = embed(open_source(options.test))
    rows = []
    for count in options.count:
        draws = [draw(source, others, count, seed, options) for seed in range(options.draws)]
        rows += [row_of(draws, count, fmr) for fmr in options.fmr]
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


def draw(source: Embedded, others: Embedded, count: int, seed: int, options: argparse.Namespace) -> Draw:
    random = np.random.default_rng((seed, count))
    enough = np.bincount(labels_of(source.source)) >= options.least
    people = random.permutation(np.flatnonzero(enough))[:count]
    families = {family(source.source.identities[label], options.relatives) for label in people}
    rest = [
        label
        for label, name in enumerate(others.source.identities)
        if others is not source or family(name, options.relatives) not in families
    ]
    mine, measured = source.of(people), others.of(random.permutation(rest)[: options.most])
    recipe = load_recipe("my_faces", ["data.train=people"])
    names = np.array(mine.source.identities)
    adapted_on, held_out = (
        mine.of(np.flatnonzero(np.isin(names, part.identities)))
        for part in hold_out_identities(mine.source, recipe.data.holdout_identities, seed)
    )
    assert recipe.backbone.adapt is not None
    linear, mean = adapted_map(
        adapted_on.embedding.astype(np.float64), labels_of(adapted_on.source), recipe.backbone.adapt
    )

    def adapted(images: Embedded) -> NDArray[np.float32]:
        return replace(images, embedding=((images.embedding - mean) @ linear).astype(np.float32)).unit

    found = compare_embeddings(SHIPPED, held_out.source, held_out.unit, adapted(held_out))
    embeddings = {SHIPPED: measured.unit, "my_faces": adapted(measured)}
    if seed < options.from_nothing:
        embeddings["nothing"] = from_nothing(mine.source, measured.source, seed)
    pairs = {name: compare_all(unit, labels_of(measured.source)) for name, unit in embeddings.items()}
    rates, differences = {}, {}
    for fmr in options.fmr:
        measures = {name: fnmr(each, fmr) for name, each in pairs.items()}
        rates[fmr] = {name: rate for name, (rate, _) in measures.items()}
        (before, drawn_before), (after, drawn_after) = measures[SHIPPED], measures["my_faces"]
        differences[fmr] = (after - before, *percentile_interval(drawn_after - drawn_before))
    return Draw(len(mine.source), found is not None and found.better, rates, differences)


def from_nothing(mine: Source, measured: Source, seed: int) -> NDArray[np.float32]:
    """The embeddings of faces_small_rts, trained on all of the user's people."""
    with TemporaryDirectory() as folder:
        for row, label in enumerate(labels_of(mine)):
            person = Path(folder, "people", mine.identities[label])
            person.mkdir(parents=True, exist_ok=True)
            (person / f"{row}.jpg").write_bytes(mine.read(row))
        data = [f"data.train={folder}/people", "data.name=drawn people", "data.terms=none", "validation={}"]
        train(load_recipe("faces_small_rts", [*data, "optim.batch_size=16", f"seed={seed}"]), f"{folder}/run")
        trained = open_network(f"{folder}/run")
        return embed_source(NetworkEmbedder(trained.network, trained.method), measured, flip=False).embedding


def row_of(draws: list[Draw], count: int, fmr: float) -> list[str]:
    found = [each.differences[fmr] for each in draws]
    better = [high < 0 for _, _, high in found]
    said = [right for each, right in zip(draws, better, strict=True) if each.said_better]
    values = [value for value, _, _ in found]
    low, high = mean_interval(values)
    nothing = [each.rates[fmr]["nothing"] for each in draws if "nothing" in each.rates[fmr]]
    return [
        str(count),
        f"{np.mean([each.images for each in draws]):.0f}",
        f"{fmr:g}",
        *(f"{np.mean([each.rates[fmr][name] for each in draws]):.4f}" for name in (SHIPPED, "my_faces")),
        f"{np.mean(values):+.4f} [{low:+.4f}, {high:+.4f}]",
        f"{sum(better)}, {sum(low > 0 for _, low, _ in found)} of {len(draws)}",
        f"{len(said)}, {sum(said)}",
        f"{np.mean(nothing):.4f} ({len(nothing)})" if nothing else "–",
    ]


def embed(source: Source) -> Embedded:
    outputs: FaceOutputs = embed_source(load_embedder(find_model(SHIPPED)), source, flip=False)
    assert outputs.norm is not None
    return Embedded(source, outputs.embedding * outputs.norm[:, None])


def labels_of(source: Source) -> NDArray[np.int64]:
    assert source.labels is not None
    return source.labels


def family(name: str, relatives: str) -> str:
    found = re.search(relatives, name)
    return found[0] if found else name


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
    parser.add_argument("--count", nargs="+", type=int, default=[20], help="Numbers of people.")
    parser.add_argument("--draws", type=int, default=10, choices=range(2, 11), metavar="2-10")
    parser.add_argument("--least", type=int, default=2, help="Least number of images of a drawn person.")
    parser.add_argument(
        "--most", type=int, default=800, help="Most people to measure on, drawn anew in each draw."
    )
    parser.add_argument("--fmr", nargs="+", type=float, default=[0.01, 0.001])
    parser.add_argument(
        "--from-nothing", type=int, default=0, help="Number of draws to train faces_small_rts on."
    )
    return parser.parse_args()


if __name__ == "__main__":
    run(main)
