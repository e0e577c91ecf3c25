"""Compares qualities by error versus reject on the embeddings of other networks, i.e. on unseen recognizers.

python eval/quality_across_recognizers.py --data held-out.tar --recognizer mobilefacenet.onnx edgeface_xs_q.onnx \\
    --quality facerts-small candidate=candidate.onnx LightQNet=lightqnet.onnx \\
    --describe LightQNet=eval/lightqnet.json --cache cache --out quality.json

Each recognizer has its own threshold, chosen on all impostor pairs. Each quality rejects up to 30 % of all genuine
pairs; the quality of a pair is that of its worse image. The area is the mean FNMR over the rejection rates, divided by
the FNMR without rejection: 1 means no gain, lower is better. The images are clean, degraded or misaligned (see
eval/image_sets.py), the same ones for all recognizers and qualities. Each recognizer's own norm and the best possible
order (oracle) are added for comparison. Differences are paired: both qualities are measured in the same resamples of
the people.

Degraded images of different people resemble each other, which makes the thresholds of the degraded set strict. With
--thresholds-on clean, thresholds are those of the clean images, as in a system that is set up before it meets poor
images.

With --cache, each model runs only once on each set of images, so that adding a candidate costs only its own forward
passes.
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
from facerts.evaluation.reject import check_fmr
from facerts.hub.registry import find_model
from facerts.io.files import atomic_write
from facerts.io.progress import track
from facerts.io.versions import installed_versions
from facerts.metrics.compared_pairs import compare_all
from facerts.metrics.reject_areas import ORACLE, RATES, Estimate, RejectAreas, mean, reject_areas
from facerts.report.markdown import markdown_table

SCHEMA = "facerts.quality_across_recognizers/1"
NORM, RANDOM = "norm", "random"
END = 0.3
SAVED_RATES = slice(None, 301, 10)  # the output file has the curves up to END in steps of 1 %

Model = TypeVar("Model", bound=OnnxModel)
# Arrays by set and label of the recognizer.
Embeddings = Mapping[tuple[str, str], Arrays]
# Arrays by set and label of the quality.
Qualities = Mapping[str, Mapping[str, NDArray[np.float32]]]


@dataclass(frozen=True)
class Comparison:
    """The content of the tables.

    Attributes:
        cells: areas by set, recognizer and FMR.
        hashes: SHA-256 of the pixels, by set.
        recognizers: labels of the recognizers.
        labels: labels of the rows: qualities, norm, oracle.
        fmrs: false match rates.
        against: label of the quality that the others are compared with.
    """

    cells: Mapping[tuple[str, str, float], RejectAreas]
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
            f"{source.name}: its images have no identities, so there are no pairs; use a source with identities"
        )
    descriptions = description_files(options.describe)
    recognizers = open_models(options.recognizer, descriptions, load_embedder, options.threads)
    qualities = open_models(options.quality, descriptions, load_quality, options.threads)
    if descriptions:
        raise DataError(f"--describe {next(iter(descriptions))}=…: no model has this label")
    against = options.against or next(iter(qualities))
    check_labels(qualities, against)
    if options.cache:
        options.cache.mkdir(parents=True, exist_ok=True)

    sets = {name: open_image_set(name, source, options.seed) for name in used_sets(options)}
    hashes = {name: hash_crops(images) for name, images in sets.items()}
    embeddings, scores = {}, {}
    for name, images in sets.items():
        inputs = images, hashes[name], options.cache
        scores[name] = {label: quality_of(model, *inputs) for label, model in qualities.items()}
        for label, model in recognizers.items():
            embeddings[name, label] = embedding_of(model, *inputs)
    comparison = Comparison(
        cells_of(options, source.labels, embeddings, scores),
        {name: hashes[name] for name in dict.fromkeys(options.sets)},
        list(recognizers),
        [*qualities, NORM, ORACLE],
        list(dict.fromkeys(options.fmr)),
        against,
    )
    for name in comparison.hashes:
        print(set_table(comparison, name) + "\n")
    print(summary_tables(comparison) + "\n")
    print(note(options, against))
    if options.out:
        write_json(options.out, content(options, source, comparison, {**recognizers}, {**qualities}))


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--data", nargs="+", required=True, help="Aligned faces with identities, held out from training."
    )
    parser.add_argument(
        "--recognizer",
        nargs="+",
        required=True,
        metavar="[LABEL=]MODEL",
        help="Recognizers whose embeddings are comparison.",
    )
    parser.add_argument(
        "--quality",
        nargs="+",
        required=True,
        metavar="[LABEL=]MODEL",
        help="Models with a quality, with or without an embedding: ONNX files or names of models that ship.",
    )
    parser.add_argument(
        "--describe",
        nargs="+",
        default=[],
        metavar="LABEL=FILE.json",
        help="Description of a model that has none in its file or next to it.",
    )
    parser.add_argument(
        "--against", metavar="LABEL", help="Quality to compare the others with; the first by default."
    )
    parser.add_argument(
        "--sets", nargs="+", choices=IMAGE_SETS, default=list(IMAGE_SETS), help="Image sets; all by default."
    )
    parser.add_argument(
        "--fmr", nargs="+", type=float, default=[1e-2, 1e-3], help="False match rates (default: 0.01 0.001)."
    )
    parser.add_argument(
        "--thresholds-on",
        choices=IMAGE_SETS,
        metavar="SET",
        help="Image set whose impostor pairs determine all thresholds; by default each set its own.",
    )
    parser.add_argument(
        "--replicates",
        type=int,
        default=1000,
        help="Number of bootstrap resamples of the people (default: 1000).",
    )
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        help="Seed of the changes to the images and of the bootstrap (default: 0).",
    )
    parser.add_argument("--cache", type=Path, metavar="DIR", help="Folder to cache the models' outputs in.")
    parser.add_argument("--threads", type=int, help="CPU threads of a model; all cores by default.")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="JSON file for all values.")
    return parser.parse_args()


# Models and their outputs.


def description_files(texts: Iterable[str]) -> dict[str, Path]:
    """Description files by the label of their model.

    Raises:
        DataError: a file has no label.
    """
    files = dict(map(split_label, texts))
    if "" in files:
        raise DataError(f"--describe {files['']}: name the model that it describes, LABEL={files['']}")
    return {label: Path(path) for label, path in files.items()}


def open_models(
    texts: Sequence[str], descriptions: dict[str, Path], load: Callable[..., Model], threads: int | None
) -> dict[str, Model]:
    """Open models, by label or else by name; removes their description files from ``descriptions``.

    Raises:
        DataError: two models have the same label.
        ModelError: a model cannot be opened.
    """
    models: dict[str, Model] = {}
    for label, name_or_path in map(split_label, texts):
        path = find_model(name_or_path)
        file = descriptions.pop(label or path.stem, None)
        model = load(path, description=file and read_description(file), threads=threads)
        name = label or model.name
        if name in models:
            raise DataError(f"two models are called {name!r}; give each its own label, LABEL=MODEL")
        models[name] = model
    return models


def check_labels(qualities: Collection[str], against: str) -> None:
    """Check the labels of the qualities.

    Raises:
        DataError: a label is reserved, or the quality to compare with does not exist.
    """
    known = [*qualities, NORM, ORACLE]
    for label in qualities:
        if label in (NORM, ORACLE, RANDOM):
            raise DataError(f"{label!r} is a reserved label; give the quality another one, LABEL=MODEL")
    if against not in known:
        raise DataError(f"--against {against}: no such quality{did_you_mean(against, known)}")


def embedding_of(model: OnnxEmbedder, images: Source, sha256: str, cache: Path | None) -> Arrays:
    """``embedding`` ``(N, d)``, and ``norm`` ``(N,)`` if the model outputs it."""

    def compute() -> Arrays:
        outputs = embed_source(model, images, flip=False)
        norm = {} if outputs.norm is None else {"norm": outputs.norm}
        return {"embedding": outputs.embedding, **norm}

    return cached(cache, model, "embedding", sha256, compute)


def quality_of(model: OnnxQuality, images: Source, sha256: str, cache: Path | None) -> NDArray[np.float32]:
    """Quality ``(N,)``; higher is better."""
    return cached(cache, model, "quality", sha256, lambda: score_source(images, {"quality": model}))[
        "quality"
    ]


def cached(
    cache: Path | None, model: OnnxModel, output: str, sha256: str, compute: Callable[[], Arrays]
) -> Arrays:
    """An output of a model for a set of images, from the cache if it has it."""
    if cache is None:
        return compute()
    description = model.description
    key = embedder_key(
        model, gives=output, quality=description.quality, polarity=description.polarity, images=sha256
    )
    return cached_arrays(cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz", key, compute)


def used_sets(options: argparse.Namespace) -> list[str]:
    """The sets to measure, and the one for the thresholds."""
    thresholds_on = [options.thresholds_on] if options.thresholds_on else []
    return list(dict.fromkeys([*options.sets, *thresholds_on]))


def cells_of(
    options: argparse.Namespace, people: NDArray[np.int64], embeddings: Embeddings, qualities: Qualities
) -> dict[tuple[str, str, float], RejectAreas]:
    """The areas of all qualities, by set, recognizer and FMR."""
    keys = [key for key in embeddings if key[0] in options.sets]
    cells = {}
    for name, label in track(keys, "rejecting pairs", unit="recognizers"):
        arrays = embeddings[name, label]
        pairs = compare_all(arrays["embedding"], people)
        clean = options.thresholds_on and compare_all(
            embeddings[options.thresholds_on, label]["embedding"], people
        )
        for fmr in options.fmr:
            check_fmr(fmr, pairs.impostors, "the images")
        areas = reject_areas(
            pairs,
            {**qualities[name], **({NORM: arrays["norm"]} if "norm" in arrays else {})},
            options.fmr,
            replicates=options.replicates,
            seed=options.seed,
            thresholds_on=clean or None,
        )
        cells.update({(name, label, fmr): areas_at_fmr for fmr, areas_at_fmr in areas.items()})
    return cells


# Tables.


def set_table(comparison: Comparison, name: str) -> str:
    """The table of all qualities on all recognizers' embeddings of one set."""
    header = ["recognizer", "quality"]
    for fmr in comparison.fmrs:
        header += [f"FNMR at FMR {fmr:g}, %", "area", f"area − {comparison.against}"]
    rows = []
    for recognizer in comparison.recognizers:
        cells = [comparison.cells[name, recognizer, fmr] for fmr in comparison.fmrs]
        for label in comparison.labels:
            if label in cells[0].areas:
                rows.append([recognizer, label])
                for cell in cells:
                    areas = area_cells(areas_to_end(cell), label, comparison.against)
                    rows[-1] += [f"{100 * cell.fnmr.value:.2f}", *areas]
    first = comparison.cells[name, comparison.recognizers[0], comparison.fmrs[0]]
    pairs = f"{first.genuine:,} genuine and {first.impostors:,} impostor pairs"
    caption = f"{name}: {pairs} (SHA-256 of the pixels {comparison.hashes[name][:12]})"
    return markdown_table(header, rows, caption, words=2)


def summary_tables(comparison: Comparison) -> str:
    """Means over recognizers by set and FMR, and their paired differences."""
    columns = [(name, fmr) for name in comparison.hashes for fmr in comparison.fmrs]
    header = ["quality", *[f"{name}, FMR {fmr:g}" for name, fmr in columns]]
    means = [mean_areas(comparison, name, fmr) for name, fmr in columns]
    cells = {
        label: [area_cells(areas, label, comparison.against) for areas in means]
        for label in comparison.labels
    }
    areas = [[label, *[area for area, _ in row]] for label, row in cells.items()]
    areas.append([RANDOM, *["1.000"] * len(columns)])
    differences = [
        [label, *[difference for _, difference in row]]
        for label, row in cells.items()
        if label != comparison.against
    ]
    title = f"Mean area over {len(comparison.recognizers)} recognizers ({', '.join(comparison.recognizers)})"
    return "\n\n".join(
        [
            markdown_table(header, areas, title),
            markdown_table(header, differences, f"{title}, minus that of {comparison.against}"),
        ]
    )


def mean_areas(comparison: Comparison, name: str, fmr: float) -> dict[str, Estimate]:
    """Mean areas over recognizers, of the qualities that all recognizers have; some have no norm."""
    areas = [areas_to_end(comparison.cells[name, recognizer, fmr]) for recognizer in comparison.recognizers]
    shared = [label for label in comparison.labels if all(label in each for each in areas)]
    return {label: mean([each[label] for each in areas]) for label in shared}


def areas_to_end(cell: RejectAreas) -> dict[str, Estimate]:
    """The areas up to ``END`` by label."""
    return {label: by_end[END] for label, by_end in cell.areas.items()}


def area_cells(areas: Mapping[str, Estimate], label: str, against: str) -> tuple[str, str]:
    """The area of a quality, and its difference from that of the quality to compare with."""
    if label not in areas:
        return "–", "–"
    if label == against or against not in areas:
        return formatted(areas[label], ".3f"), "–"
    return formatted(areas[label], ".3f"), formatted(areas[label].minus(areas[against]), "+.3f")


def formatted(estimate: Estimate, spec: str) -> str:
    """A value with its interval, e.g. "0.456 [0.431, 0.482]"; a dash if there were no errors to reject."""
    interval = estimate.interval()
    if interval is None or not math.isfinite(estimate.value):
        return "–"
    low, high = interval
    return f"{estimate.value:{spec}} [{low:{spec}}, {high:{spec}}]"


def note(options: argparse.Namespace, against: str) -> str:
    """An explanation of the values in the tables."""
    pairs = f"all impostor pairs of {options.thresholds_on or 'the set'}"
    return (
        f"Area: mean FNMR while 0 to {100 * END:g} % of the genuine pairs of lowest quality (the minimum of both "
        f"images) are rejected, divided by the FNMR without rejection, at the recognizer's own threshold on {pairs}; "
        f"1 (random) means no gain, lower is better. [95 % interval: {options.replicates:,} resamples of the people, "
        f"each with its own threshold]; differences from {against} are paired, below 0 is better."
    )


# The file.


def content(
    options: argparse.Namespace,
    source: Source,
    comparison: Comparison,
    recognizers: Mapping[str, OnnxModel],
    qualities: Mapping[str, OnnxModel],
) -> dict[str, Any]:
    """All values, and what they were computed from."""
    return {
        "schema": SCHEMA,
        "data": source.name,
        "images": len(source),
        "sets": comparison.hashes,
        "seed": options.seed,
        "replicates": options.replicates,
        "thresholds_on": options.thresholds_on,
        "recognizers": {label: model.sha256 for label, model in recognizers.items()},
        "qualities": {label: model.sha256 for label, model in qualities.items()},
        "against": comparison.against,
        "rejected": RATES[SAVED_RATES],
        "results": [
            {
                "set": name,
                "recognizer": recognizer,
                "fmr": fmr,
                "threshold": cell.threshold,
                "impostors": cell.impostors,
                "impostors_accepted": cell.accepted,
                "genuine": cell.genuine,
                "fnmr": cell.fnmr.value,
                "fnmr_ci95": cell.fnmr.interval(),
                "areas": area_entries(areas_to_end(cell), comparison.against),
                "curves": {label: curve[SAVED_RATES].tolist() for label, curve in cell.curves.items()},
            }
            for (name, recognizer, fmr), cell in comparison.cells.items()
        ],
        "means": [
            {
                "set": name,
                "fmr": fmr,
                "areas": area_entries(mean_areas(comparison, name, fmr), comparison.against),
            }
            for name in comparison.hashes
            for fmr in comparison.fmrs
        ],
        "versions": installed_versions(),
    }


def area_entries(areas: Mapping[str, Estimate], against: str) -> dict[str, dict[str, Any]]:
    """Areas and their differences, by label; null if there were no errors to reject."""
    entries = {}
    for label, area in areas.items():
        entries[label] = {"area": finite(area.value), "ci95": area.interval()}
        if against in areas:
            difference = area.minus(areas[against])
            entries[label] |= {
                "difference": finite(difference.value),
                "difference_ci95": difference.interval(),
            }
    return entries


def finite(value: float) -> float | None:
    """The value, or None if it is not finite, for JSON."""
    return value if math.isfinite(value) else None


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    with atomic_write(path, "w") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=1, allow_nan=False) + "\n")


if __name__ == "__main__":
    run(main)
