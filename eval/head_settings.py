"""Post-hoc heads with several settings and seeds on the features of one frozen embedder: which settings matter?

python eval/head_settings.py "random=rts" "at its mean=rts temperature=mean" "λ 1=rts kl_weight=1" \\
    --model mobilefacenet.onnx --data 'train-*.tar' --heldout val.tar --in lfw/ --in rafdb_aligned/ --out-of pets/ \\
    --exclude-out-of '*[01].jpg' --seeds 1 2 3 4 5 --out out/heads

A head is NAME=METHOD [SETTING=VALUE…]. Each is trained as `facerts posthoc` does with the same --views. Of every head:
AUROC of faces against non-faces; AUROC of the held-out faces against the same faces degraded (see image_sets.py); and
the embedder's error versus reject on the held-out faces, every second one degraded: the mean FNMR at FMR 0.001 while up
to 30% of the genuine pairs are rejected, divided by the FNMR without rejection.

Numbers are means over the seeds with Student's 95% interval. A second table has the differences from the first head,
seed by seed. Features and finished heads are kept in --out, so that the same command continues after an interruption.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from common import add_figure, add_sources, number, open_people, open_sources, parser_of, run
from numpy.typing import NDArray

from facerts.datasets.fingerprint import hash_images
from facerts.embedding import OnnxEmbedder, load_embedder
from facerts.embedding.output_cache import OutputCache
from facerts.errors import Error
from facerts.metrics.all_pairs import compare_all
from facerts.metrics.compared_pairs import ComparedPairs
from facerts.metrics.error_versus_reject import error_versus_reject
from facerts.metrics.intervals import mean_interval
from facerts.metrics.separation import separation
from facerts.report.figures import Effect, effects, write_svg
from facerts.report.table import markdown_table
from facerts.training.methods.method import Method
from facerts.training.posthoc.features import Features, Views, cached_features
from facerts.training.posthoc.graft_heads import QualityModule
from facerts.training.posthoc.posthoc_quality import build_method, configure
from facerts.training.posthoc.train_heads import HeadSettings, train_heads

FMR, END = 1e-3, 0.3
HEADER = ["head", "seeds", "non-faces, AUROC", "degraded, AUROC", "area of error versus reject"]

QualityOf = Callable[[Features], NDArray[np.float32]]


@dataclass(frozen=True)
class Measured:
    """Features of the images of ``open_sources``, all pairs of the held-out faces, and which of these are degraded.

    The key is what the measurements depend on.
    """

    parts: dict[str, Features]
    degraded: NDArray[np.bool_]
    pairs: ComparedPairs
    key: str

    def numbers(self, quality_of: QualityOf) -> NDArray[np.float64]:
        """The three numbers of a quality."""
        quality = {name: quality_of(features) for name, features in self.parts.items()}
        mixed = np.where(self.degraded, quality["degraded"], quality["clean"])
        (measured,) = error_versus_reject(self.pairs, {"": mixed}, [FMR], replicates=0).values()
        return np.array(
            [
                separation(quality["faces"], quality["others"]).auroc,
                separation(quality["clean"], quality["degraded"]).auroc,
                measured.by[""].area[END].value,
            ]
        )


def main() -> None:
    options = arguments()
    heads = [_parse(text) for text in options.heads]
    embedder = load_embedder(options.model, threads=options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    training, people = open_people(options.data)
    cache = OutputCache(options.out / "features")
    features = cached_features(embedder, training, cache, Views(options.views))
    measured = measure(embedder, options, cache)
    finished = OutputCache(options.out / "heads")
    images = f"{measured.key} {hash_images(training).sha256} {options.views} views"

    def train(built: Method, settings: HeadSettings) -> dict[str, NDArray[np.float64]]:
        head = QualityModule(train_heads(built, features, people, settings))
        return {"numbers": measured.numbers(head.quality_of)}

    numbers = {"norm of the embedder": measured.numbers(lambda part: part.norm)[None]}
    for name, method, config in heads:
        values = []
        for seed in options.seeds:
            built = build_method(method, config, features.unit.shape[1], seed)
            settings = HeadSettings(seed=seed, epochs=options.epochs, norm=bool(built.heads()))
            key = {"images": images, "head": f"{method} {config!r} {settings!r}"}
            values.append(finished.arrays(key, partial(train, built, settings))["numbers"])
        numbers[name] = np.array(values)
    reference = heads[0][0]
    print(markdown_table(HEADER, [line(name, values) for name, values in numbers.items()]))
    print(f"\nDifference from {reference}:\n")
    differences = {name: values - numbers[reference] for name, values in numbers.items() if name != reference}
    print(markdown_table(HEADER, [line(name, values, sign="+") for name, values in differences.items()]))
    if options.figure:
        drawn = {
            name: dict(zip(HEADER[2:], map(Effect.of_runs, values.T.tolist()), strict=True))
            for name, values in differences.items()
        }
        write_svg(options.figure, effects(drawn, reference))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "heads",
        nargs="+",
        metavar='"NAME=METHOD [SETTING=VALUE…]"',
        help="Heads; the first is the reference.",
    )
    parser.add_argument("--model", type=Path, required=True, help="The frozen embedder, an ONNX file.")
    parser.add_argument("--data", required=True, help="Training faces with identities.")
    add_sources(parser)
    parser.add_argument("--views", type=int, default=2, help="Views of each training image (default: 2).")
    parser.add_argument("--epochs", type=int, default=8, help="Maximum number of epochs (default: 8).")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="Seeds (default: 1).")
    parser.add_argument("--out", type=Path, required=True, help="Folder of the cached features.")
    add_figure(parser)
    return parser.parse_args()


def measure(embedder: OnnxEmbedder, options: argparse.Namespace, cache: OutputCache) -> Measured:
    """Compute the features of the images that the heads are measured on, or read them from the cache."""
    sources = open_sources(options)
    degraded_cache = OutputCache(cache.folder / "degraded")
    parts = {
        name: cached_features(embedder, source, degraded_cache if name == "degraded" else cache, Views())
        for name, source in sources.items()
    }
    degraded = np.arange(len(sources["clean"])) % 2 == 1
    mixed = np.where(degraded[:, None], parts["degraded"].unit, parts["clean"].unit)
    key = " ".join([embedder.identity, *(hash_images(source).sha256 for source in sources.values())])
    return Measured(parts, degraded, compare_all(mixed, sources["clean"].labels), key)


def line(name: str, values: NDArray[np.float64], sign: str = "") -> list[str]:
    """The row of a head: means over the seeds with their intervals."""
    cells = [
        number(column.mean(), mean_interval(column) if len(column) > 1 else None, form=f"{sign}.4f")
        for column in values.T
    ]
    return [name, str(len(values)), *cells]


def _parse(text: str) -> tuple[str, str, Any]:
    """Name, method and settings of ``NAME=METHOD SETTING=VALUE…``."""
    name, equals, rest = text.partition("=")
    if not (equals and rest.strip()):
        raise Error(f"{text!r}: must be NAME=METHOD, with settings after it")
    method, *settings = rest.split()
    return name, method, configure(method, settings)


if __name__ == "__main__":
    run(main)
