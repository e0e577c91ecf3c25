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

Degraded strangers resemble each other, so the degraded set's own thresholds are strict; --thresholds-on clean keeps
those of the clean images, as a system does that meets poor images after it was set up.

With --cache, a model is run once for each set of images, so that another candidate costs its own forward passes alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from common import parser_of, run, split_label
from image_sets import IMAGE_SETS, hash_crops, open_image_set
from numpy.typing import NDArray
from quality_areas import END, ORACLE, RATES, Estimate, Judged, judge, mean

from facerts.datasets import Source, open_source
from facerts.embedding import (
    OnnxEmbedder,
    OnnxModel,
    OnnxQuality,
    load_embedder,
    load_quality,
    read_description,
)
from facerts.embedding.cache import Arrays, cached_arrays, embedder_key
from facerts.embedding.embed import embed_source, score_source
from facerts.errors import DataError, did_you_mean
from facerts.hub.registry import find_model
from facerts.io.files import atomic_write
from facerts.io.progress import track
from facerts.io.versions import installed_versions
from facerts.report.markdown import markdown_table

SCHEMA = "facerts.quality_across_recognizers/1"
NORM, RANDOM = "norm", "random"
KEPT_RATES = slice(None, None, 10)  # of the curves that go into the file: every percent

Model = TypeVar("Model", bound=OnnxModel)
# By set and recognizer.
Embedded = Mapping[tuple[str, str], Arrays]
# By set and label of the quality.
Scored = Mapping[str, Mapping[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class Comparison:
    """What the tables show.

    Attributes:
        cells: by set, recognizer and FMR.
        hashes: of the pixels, by set.
        recognizers: their labels.
        labels: of the rows: qualities, norm, oracle.
        fmrs: false match rates.
        against: label of the quality that the others are compared with.
    """

    cells: Mapping[tuple[str, str, float], Judged]
    hashes: Mapping[str, str]
    recognizers: Sequence[str]
    labels: Sequence[str]
    fmrs: Sequence[float]
    against: str


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

    sets = {name: open_image_set(name, source, options.seed) for name in used_sets(options)}
    hashes = {name: hash_crops(images) for name, images in sets.items()}
    embedded, scored = {}, {}
    for name, images in sets.items():
        where = images, hashes[name], options.cache
        scored[name] = {label: quality_of(model, *where) for label, model in qualities.items()}
        for label, model in recognizers.items():
            embedded[name, label] = embedding_of(model, *where)
    compared = Comparison(
        cells_of(options, source.labels, embedded, scored),
        {name: hashes[name] for name in dict.fromkeys(options.sets)},
        list(recognizers),
        [*qualities, NORM, ORACLE],
        list(dict.fromkeys(options.fmr)),
        against,
    )
    for name in compared.hashes:
        print(set_table(compared, name) + "\n")
    print(summary_tables(compared) + "\n")
    print(note(options, against))
    if options.out:
        write_json(options.out, content(options, source, compared, {**recognizers}, {**qualities}))


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
        "--thresholds-on",
        choices=IMAGE_SETS,
        metavar="SET",
        help="one set whose impostor pairs give the thresholds for all; default: each set its own",
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


def check_labels(qualities: Collection[str], against: str) -> None:
    """
    Raises:
        DataError: a quality has a label that the table needs itself, or there is none to compare with.
    """
    known = [*qualities, NORM, ORACLE]
    for label in qualities:
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


def used_sets(options: argparse.Namespace) -> list[str]:
    """The sets to be measured, and the one that gives the thresholds."""
    also = [options.thresholds_on] if options.thresholds_on else []
    return list(dict.fromkeys([*options.sets, *also]))


def cells_of(
    options: argparse.Namespace, people: NDArray[np.int64], embedded: Embedded, scored: Scored
) -> dict[tuple[str, str, float], Judged]:
    """Every quality on every recognizer's embeddings of every set that was asked for, at every FMR."""
    wanted = [key for key in embedded if key[0] in options.sets]
    cells = {}
    for name, label in track(wanted, "rejecting pairs", unit="recognizers"):
        arrays = embedded[name, label]
        giving = embedded[options.thresholds_on, label]["embedding"] if options.thresholds_on else None
        judged = judge(
            arrays["embedding"],
            people,
            {**scored[name], **({NORM: arrays["norm"]} if "norm" in arrays else {})},
            options.fmr,
            options.replicates,
            options.seed,
            thresholds_on=giving,
        )
        cells.update({(name, label, fmr): of_rate for fmr, of_rate in judged.items()})
    return cells


# Tables.


def set_table(compared: Comparison, name: str) -> str:
    """Every quality on every recognizer's embeddings of one set."""
    header = ["recognizer", "quality"]
    for fmr in compared.fmrs:
        header += [f"FNMR at FMR {fmr:g}, %", "area", f"area − {compared.against}"]
    rows = []
    for recognizer in compared.recognizers:
        of_rates = [compared.cells[name, recognizer, fmr] for fmr in compared.fmrs]
        for label in compared.labels:
            if label in of_rates[0].areas:
                rows.append([recognizer, label])
                for judged in of_rates:
                    areas = area_cells(judged.areas, label, compared.against)
                    rows[-1] += [f"{100 * judged.fnmr.value:.2f}", *areas]
    judged = compared.cells[name, compared.recognizers[0], compared.fmrs[0]]
    pairs = f"{judged.genuine:,} genuine and {judged.impostors:,} impostor pairs"
    caption = f"{name}: {pairs} (pixels' SHA-256 {compared.hashes[name][:12]})"
    return markdown_table(header, rows, caption, words=2)


def summary_tables(compared: Comparison) -> str:
    """Means over recognizers by set and FMR, and their paired differences."""
    columns = [(name, fmr) for name in compared.hashes for fmr in compared.fmrs]
    header = ["quality", *[f"{name}, FMR {fmr:g}" for name, fmr in columns]]
    means = [mean_areas(compared, name, fmr) for name, fmr in columns]
    cells = {
        label: [area_cells(areas, label, compared.against) for areas in means] for label in compared.labels
    }
    areas = [[label, *[area for area, _ in row]] for label, row in cells.items()]
    areas.append([RANDOM, *["1.000"] * len(columns)])
    differences = [
        [label, *[less for _, less in row]] for label, row in cells.items() if label != compared.against
    ]
    of = f"over {len(compared.recognizers)} recognizers ({', '.join(compared.recognizers)})"
    return "\n\n".join(
        [
            markdown_table(header, areas, f"Mean area {of}"),
            markdown_table(header, differences, f"Mean area {of}, minus that of {compared.against}"),
        ]
    )


def mean_areas(compared: Comparison, name: str, fmr: float) -> dict[str, Estimate]:
    """Of the qualities that all recognizers have; some have no norm."""
    of = [compared.cells[name, recognizer, fmr].areas for recognizer in compared.recognizers]
    shared = [label for label in compared.labels if all(label in areas for areas in of)]
    return {label: mean([areas[label] for areas in of]) for label in shared}


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


def note(options: argparse.Namespace, against: str) -> str:
    """What the tables' numbers are."""
    on = f"all impostor pairs of {options.thresholds_on or 'the set'}"
    return (
        f"Area: mean FNMR while 0 to {100 * END:g} % of the genuine pairs of lowest quality (the lower of two images') "
        f"are rejected, divided by the FNMR without rejection, at the recognizer's own threshold on {on}; 1 (random) "
        f"gains nothing, lower is better. [95 % interval: {options.replicates:,} resamples of the people, the "
        f"threshold chosen anew in each]; differences from {against} are paired, below 0 is better."
    )


# The file.


def content(
    options: argparse.Namespace,
    source: Source,
    compared: Comparison,
    recognizers: Mapping[str, OnnxModel],
    qualities: Mapping[str, OnnxModel],
) -> dict[str, Any]:
    """All numbers, and what they were made from."""
    return {
        "schema": SCHEMA,
        "data": source.name,
        "images": len(source),
        "sets": compared.hashes,
        "seed": options.seed,
        "replicates": options.replicates,
        "thresholds_on": options.thresholds_on,
        "recognizers": {label: model.sha256 for label, model in recognizers.items()},
        "qualities": {label: model.sha256 for label, model in qualities.items()},
        "against": compared.against,
        "rejected": RATES[KEPT_RATES],
        "results": [
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
                "areas": area_entries(judged.areas, compared.against),
                "curves": {label: curve[KEPT_RATES].tolist() for label, curve in judged.curves.items()},
            }
            for (name, recognizer, fmr), judged in compared.cells.items()
        ],
        "means": [
            {
                "set": name,
                "fmr": fmr,
                "areas": area_entries(mean_areas(compared, name, fmr), compared.against),
            }
            for name in compared.hashes
            for fmr in compared.fmrs
        ],
        "versions": installed_versions(),
    }


def area_entries(areas: Mapping[str, Estimate], against: str) -> dict[str, dict[str, Any]]:
    """Areas and their differences, by label; null where there was no error to reject."""
    entries = {}
    for label, area in areas.items():
        entries[label] = {"area": finite(area.value), "ci95": area.interval()}
        if against in areas:
            less = area.minus(areas[against])
            entries[label] |= {"difference": finite(less.value), "difference_ci95": less.interval()}
    return entries


def finite(value: float) -> float | None:
    """The value, or None where JSON has no number for it."""
    return value if math.isfinite(value) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(main)
