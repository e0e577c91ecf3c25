"""Error versus reject of qualities on other networks' embeddings: which quality serves recognizers it has never seen?

python eval/quality_across_recognizers.py --data held-out.tar --recognizer mobilefacenet.onnx edgeface_xs_q.onnx \\
    --quality facerts-small candidate=candidate.onnx LightQNet=lightqnet.onnx \\
    --describe LightQNet=eval/lightqnet.json --cache cache --out quality.json

Each recognizer keeps its own threshold, chosen on all impostor pairs, and each quality rejects up to 30 % of all
genuine pairs, a pair being as good as its worse image. The area is the mean FNMR over the shares rejected, divided by
the FNMR without rejection: 1 if nothing is gained, lower is better. Images are taken as they are (clean), each degraded
once (degraded), and each misaligned once (misaligned; see eval/image_sets.py), and recognizers and qualities see the
same ones. Beside the qualities stand each recognizer's own norm and the best order there can be (oracle). Differences
are paired: both qualities are measured in the same resamples of the people.

With --cache, a model is run once for each set of images, so that another candidate costs its own forward passes alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from common import parser_of, run, split_label
from image_sets import IMAGE_SETS, hash_crops, open_image_set
from numpy.typing import NDArray

from facerts.data import Source, open_source
from facerts.embedder import (
    OnnxEmbedder,
    OnnxModel,
    OnnxQuality,
    load_embedder,
    load_quality,
    read_description,
)
from facerts.errors import DataError, did_you_mean
from facerts.evaluate.cache import Arrays, cached_arrays, embedder_key
from facerts.evaluate.embed import embed_source, score_source
from facerts.evaluate.reject import check_fmr
from facerts.evaluate.result import installed_versions
from facerts.files import atomic_write
from facerts.metrics.all_pairs import all_pairs, resampled_thresholds
from facerts.metrics.intervals import Interval, percentile_interval
from facerts.metrics.reject import (
    normalized_area,
    oracle_quality,
    pair_quality,
    reject_curve,
    resampled_curves,
)
from facerts.progress import track
from facerts.report.markdown import markdown_table
from facerts.zoo import find_model

SCHEMA = "facerts.quality_across_recognizers/1"
END = 0.3
# Three of 3,000 pairs at each step; as the ends of trapezoids, steps of 1 % make areas up to 0.003 too large.
RATES = tuple(round(0.001 * step, 3) for step in range(301))
KEPT_RATES = slice(None, None, 10)  # of the curves that go into the file
NORM, ORACLE, RANDOM = "norm", "oracle", "random"

Model = TypeVar("Model", bound=OnnxModel)
Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number, and what it is in each replicate of the bootstrap: ``(B,)``, NaN where it is not defined."""

    value: float
    drawn: Floats

    def minus(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.drawn - other.drawn)

    def interval(self) -> Interval | None:
        """95 % of the replicates; None where no replicate defines it."""
        known = self.drawn[np.isfinite(self.drawn)]
        return percentile_interval(known) if len(known) else None


@dataclass(frozen=True)
class Judged:
    """Qualities on one recognizer's embeddings of one set, at one FMR.

    Attributes:
        threshold: cosine; pairs are accepted at or above.
        impostors: pairs of two people.
        accepted: of them.
        genuine: pairs of one person.
        fnmr: without rejection.
        curves: ``(301,)`` FNMR at ``RATES`` by quality.
        areas: normalized, by quality.
    """

    threshold: float
    impostors: int
    accepted: int
    genuine: int
    fnmr: Estimate
    curves: Mapping[str, Floats]
    areas: Mapping[str, Estimate]


# By set, recognizer and FMR.
Cells = dict[tuple[str, str, float], Judged]


def main() -> None:
    options = arguments()
    source = open_source(options.data)
    if source.labels is None:
        raise DataError(
            f"{source.name}: its people are unknown, so there are no pairs; name a source with identities"
        )
    describe = descriptions(options.describe)
    recognizers = open_models(options.recognizer, describe, load_embedder, options.threads)
    qualities = open_models(options.quality, describe, load_quality, options.threads)
    if describe:
        raise DataError(f"--describe {next(iter(describe))}=…: no model has this label")
    against = options.against or next(iter(qualities))
    check_labels(qualities, against)
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)

    sets = {name: open_image_set(name, source, options.seed) for name in dict.fromkeys(options.sets)}
    hashes = {name: hash_crops(images) for name, images in sets.items()}
    embedded, scored = {}, {}
    for name, images in sets.items():
        where = images, hashes[name], options.cache
        scored[name] = {label: quality_of(model, *where) for label, model in qualities.items()}
        for label, embedder in recognizers.items():
            embedded[name, label] = embedding_of(embedder, *where)
    cells: Cells = {}
    for (name, label), arrays in track(embedded.items(), "rejecting pairs", len(embedded), "recognizers"):
        of_images = scored[name] | ({NORM: arrays["norm"]} if "norm" in arrays else {})
        found = judge(
            arrays["embedding"], source.labels, of_images, options.fmr, options.replicates, options.seed
        )
        cells.update({(name, label, fmr): judged for fmr, judged in found.items()})

    labels = [*qualities, NORM, ORACLE]
    for name in sets:
        print(set_table(cells, name, hashes[name], list(recognizers), labels, options.fmr, against) + "\n")
    print(summary_tables(cells, list(sets), list(recognizers), labels, options.fmr, against))
    print(f"\n{note(cells, against, options.replicates)}")
    if options.out:
        models = {"recognizers": recognizers, "qualities": qualities}
        content = {
            "schema": SCHEMA,
            "data": source.name,
            "seed": options.seed,
            "replicates": options.replicates,
            "against": against,
            "rejected": RATES[KEPT_RATES],
            "sets": {name: {"images": len(source), "sha256": hashes[name]} for name in sets},
            **{kind: {label: model.sha256 for label, model in of.items()} for kind, of in models.items()},
            "results": results(cells, against),
            "versions": installed_versions(),
        }
        write_json(options.out, content)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--data", nargs="+", required=True, help="aligned faces with identities, held out from training"
    )
    parser.add_argument(
        "--recognizer",
        nargs="+",
        required=True,
        metavar="[LABEL=]MODEL",
        help="whose embeddings are compared",
    )
    parser.add_argument(
        "--quality",
        nargs="+",
        required=True,
        metavar="[LABEL=]MODEL",
        help="models that give quality, with or without an embedding: .onnx files or names of models that ship",
    )
    parser.add_argument(
        "--describe",
        nargs="+",
        default=[],
        metavar="LABEL=FILE.json",
        help="the description of a model that neither carries one nor has one beside it",
    )
    parser.add_argument(
        "--against", metavar="LABEL", help="quality that the others are compared with; default: the first"
    )
    parser.add_argument(
        "--sets", nargs="+", choices=IMAGE_SETS, default=list(IMAGE_SETS), help="default: all"
    )
    parser.add_argument(
        "--fmr", nargs="+", type=float, default=[1e-2, 1e-3], help="false match rates (default: 0.01 0.001)"
    )
    parser.add_argument(
        "--replicates", type=int, default=1000, help="of the bootstrap over people (default: 1000)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the images' changes and of the bootstrap (default: 0)"
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="keeps what models gave for the next time")
    parser.add_argument("--threads", type=int, help="CPU threads of a forward pass; default: all cores")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="gets all numbers")
    return parser.parse_args()


# Models, and what they give.


def descriptions(texts: Iterable[str]) -> dict[str, Path]:
    """Files of descriptions by the label of their model.

    Raises:
        DataError: one has no label.
    """
    found = dict(map(split_label, texts))
    if "" in found:
        raise DataError(f"--describe {found['']}: say which model it describes, LABEL={found['']}")
    return {label: Path(path) for label, path in found.items()}


def open_models(
    texts: Sequence[str], describe: dict[str, Path], load: Callable[..., Model], threads: int | None
) -> dict[str, Model]:
    """Models by their labels, or by their names where they have none; takes the descriptions that are theirs.

    Raises:
        DataError: two have one label.
        ModelError: one cannot be opened.
    """
    models: dict[str, Model] = {}
    for label, given in map(split_label, texts):
        path = find_model(given)
        described = describe.pop(label or path.stem, None)
        description = described and read_description(described)
        model = load(path, description=description, threads=threads)
        name = label or model.name
        if name in models:
            raise DataError(f"two models are called {name!r}; give each a label of its own, LABEL=MODEL")
        models[name] = model
    return models


def check_labels(qualities: Iterable[str], against: str) -> None:
    """
    Raises:
        DataError: a quality has a label that the table needs itself, or there is none to compare with.
    """
    known = [*qualities, NORM, ORACLE]
    for label in known[:-2]:
        if label in (NORM, ORACLE, RANDOM):
            raise DataError(f"{label!r} is a row of its own; give the quality another label, LABEL=MODEL")
    if against not in known:
        raise DataError(f"--against {against}: no such quality{did_you_mean(against, known)}")


def embedding_of(model: OnnxEmbedder, images: Source, sha256: str, cache: Path | None) -> Arrays:
    """``embedding`` (N, d), and ``norm`` (N,) where the model shows it."""

    def compute() -> Arrays:
        outputs = embed_source(model, images, flip=False)
        norm = {} if outputs.norm is None else {"norm": outputs.norm}
        return {"embedding": outputs.embedding, **norm}

    return cached(cache, model, "embedding", sha256, compute)


def quality_of(model: OnnxQuality, images: Source, sha256: str, cache: Path | None) -> NDArray[np.float32]:
    """``(N,)``, higher is better."""
    return cached(cache, model, "quality", sha256, lambda: score_source(images, {"quality": model}))[
        "quality"
    ]


def cached(
    cache: Path | None, model: OnnxModel, what: str, sha256: str, compute: Callable[[], Arrays]
) -> Arrays:
    """What a model gave for a set of images, from the cache where it is there."""
    if cache is None:
        return compute()
    told = model.description
    key = embedder_key(model, gives=what, quality=told.quality, polarity=told.polarity, images=sha256)
    return cached_arrays(cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz", key, compute)


# Numbers.


def judge(
    embedding: NDArray[np.floating],
    people: NDArray[np.integer],
    qualities: Mapping[str, NDArray[np.floating]],
    fmrs: Sequence[float],
    replicates: int,
    seed: int,
) -> dict[float, Judged]:
    """Reject the genuine pairs of lowest quality, at the recognizer's threshold for each FMR.

    Args:
        embedding: ``(N, d)`` of unit length.
        people: ``(N,)`` person of each image.
        qualities: ``(N,)`` by label.
        fmrs: false match rates.
        replicates: of the bootstrap. The same people are drawn whatever the embedding, so estimates of several
            recognizers on the same images can be averaged and subtracted replicate by replicate.
        seed: of the drawing.

    Raises:
        Error: there are too few impostor pairs for a rate.
    """
    every = all_pairs(embedding, people)
    for fmr in fmrs:
        check_fmr(fmr, every.impostors, "the images")
    genuine = every.genuine.astype(np.float64)
    ranks = {label: pair_quality(quality, every.genuine_pairs) for label, quality in qualities.items()}
    ranks[ORACLE] = oracle_quality(genuine, np.ones(len(genuine)))
    drawn = list(resampled_thresholds(every, fmrs, replicates=replicates, seed=seed))
    found = {}
    for place, fmr in enumerate(fmrs):
        threshold = every.threshold(fmr)
        limits = [(limit[place], weights) for limit, weights in drawn]
        curves, areas = {}, {}
        for label, quality in ranks.items():
            curves[label] = reject_curve(genuine, quality, threshold, every.impostors, RATES).fnmr
            resampled = resampled_curves(genuine, quality, limits, rates=RATES)
            areas[label] = Estimate(
                float(normalized_area(curves[label], RATES, END)), normalized_area(resampled, RATES, END)
            )
            fnmr = Estimate(float(curves[label][0]), resampled[:, 0])  # the same for every quality
        accepted = every.accepted(threshold)
        found[fmr] = Judged(threshold, every.impostors, accepted, len(genuine), fnmr, curves, areas)
    return found


def mean(estimates: Sequence[Estimate]) -> Estimate:
    """Of one quality on several recognizers, replicate by replicate."""
    return Estimate(
        math.fsum(one.value for one in estimates) / len(estimates),
        np.mean([one.drawn for one in estimates], axis=0),
    )


# Tables.


def set_table(
    cells: Cells,
    name: str,
    sha256: str,
    recognizers: Sequence[str],
    labels: Sequence[str],
    fmrs: Sequence[float],
    against: str,
) -> str:
    """Every quality on every recognizer's embeddings of one set."""
    header = ["recognizer", "quality"]
    for fmr in fmrs:
        header += [f"FNMR at FMR {fmr:g}, %", "area", f"area − {against}"]
    rows = []
    for recognizer in recognizers:
        of_rates = [cells[name, recognizer, fmr] for fmr in fmrs]
        for label in labels:
            if label in of_rates[0].areas:
                rows.append([recognizer, label])
                for judged in of_rates:
                    rows[-1] += [f"{100 * judged.fnmr.value:.2f}", *area_cells(judged.areas, label, against)]
    judged = cells[name, recognizers[0], fmrs[0]]
    pairs = f"{judged.genuine:,} genuine and {judged.impostors:,} impostor pairs"
    caption = f"{name}: {pairs} (pixels' SHA-256 {sha256[:12]})"
    return markdown_table(header, rows, caption, words=2)


def summary_tables(
    cells: Cells,
    sets: Sequence[str],
    recognizers: Sequence[str],
    labels: Sequence[str],
    fmrs: Sequence[float],
    against: str,
) -> str:
    """Means over recognizers by set and FMR, and their paired differences."""
    columns = [(name, fmr) for name in sets for fmr in fmrs]
    header = ["quality", *[f"{name}, FMR {fmr:g}" for name, fmr in columns]]
    means = {column: mean_areas(cells, column, recognizers, labels) for column in columns}
    both = {label: [area_cells(means[column], label, against) for column in columns] for label in labels}
    areas = [[label, *[area for area, _ in row]] for label, row in both.items()]
    areas.append([RANDOM, *["1.000"] * len(columns)])
    differences = [[label, *[less for _, less in row]] for label, row in both.items() if label != against]
    of = f"over {len(recognizers)} recognizers ({', '.join(recognizers)})"
    return (
        markdown_table(header, areas, f"Mean area {of}")
        + "\n\n"
        + markdown_table(header, differences, f"Mean area {of}, minus that of {against}")
    )


def mean_areas(
    cells: Cells, column: tuple[str, float], recognizers: Sequence[str], labels: Sequence[str]
) -> dict[str, Estimate]:
    """Of the qualities that all recognizers have; some have no norm."""
    name, fmr = column
    of = [cells[name, recognizer, fmr].areas for recognizer in recognizers]
    return {
        label: mean([areas[label] for areas in of]) for label in labels if all(label in areas for areas in of)
    }


def area_cells(areas: Mapping[str, Estimate], label: str, against: str) -> tuple[str, str]:
    """An area, and its difference from that of the quality that all are compared with."""
    if label not in areas:
        return "–", "–"
    if label == against or against not in areas:
        return shown(areas[label], ".3f"), "–"
    return shown(areas[label], ".3f"), shown(areas[label].minus(areas[against]), "+.3f")


def shown(estimate: Estimate, form: str) -> str:
    """A number with its interval, as "0.456 [0.431, 0.482]"; a dash where there was no error to reject."""
    interval = estimate.interval()
    if interval is None or not math.isfinite(estimate.value):
        return "–"
    low, high = interval
    return f"{estimate.value:{form}} [{low:{form}}, {high:{form}}]"


def note(cells: Cells, against: str, replicates: int) -> str:
    """What the tables' numbers are."""
    return (
        f"Area: mean FNMR while 0 to {100 * END:g} % of the genuine pairs of lowest quality (the lower of two images') are "
        "rejected, divided by the FNMR without rejection, at the recognizer's own threshold; 1 (random) gains nothing, "
        f"lower is better. [95 % interval: {replicates:,} resamples of the people, the threshold chosen anew in each]; "
        f"differences from {against} are paired, below 0 is better."
    )


def results(cells: Cells, against: str) -> list[dict[str, Any]]:
    """All numbers, for machines."""
    return [
        {
            "set": name,
            "recognizer": recognizer,
            "fmr": fmr,
            "threshold": judged.threshold,
            "impostors": judged.impostors,
            "impostors_accepted": judged.accepted,
            "genuine": judged.genuine,
            "fnmr": judged.fnmr.value,
            "fnmr_ci95": judged.fnmr.interval(),
            "qualities": {
                label: {
                    "area": finite(area.value),
                    "area_ci95": area.interval(),
                    "difference": finite(area.minus(judged.areas[against]).value),
                    "difference_ci95": area.minus(judged.areas[against]).interval(),
                    "fnmr": judged.curves[label][KEPT_RATES].tolist(),
                }
                for label, area in judged.areas.items()
            },
        }
        for (name, recognizer, fmr), judged in cells.items()
    ]


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(main)
