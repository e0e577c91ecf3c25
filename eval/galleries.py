"""Measures galleries on people held out from training: what spoiled enrollments cost, and how many a check finds.

python eval/galleries.py --people held-out.tar --strangers train-000000.tar --pets pets/ --cache cache.npz --seeds 5

The people are split by name into two halves. Settings were chosen on the first, with the pets for development (numbers
that end in 0 or 1); the second, with the other pets, confirms them. Each half in turn is enrolled, with four images of
a person and one as a probe, and all images of the other half are searches for people who are not enrolled. A fifth of
the enrollments is spoiled: as many degraded (six corruptions, severity 0.9 to 1) as replaced by strangers' images, by
pets, or moved to a second name of the same person. Intervals (95 %) are from resamples of the people, all seeds of a
person together. Embeddings are kept in the cache, so that an interrupted run continues and another one takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import parser_of, run
from numpy.typing import NDArray

import facerts
from facerts.datasets import Source, open_source
from facerts.embedding.cache import Arrays, cached_arrays
from facerts.galleries import Enrollments, Gallery, Reason
from facerts.images.corruptions import KINDS, degrade
from facerts.io.progress import track
from facerts.metrics.identification import fnir_at_fpir
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.resample import subject_counts
from facerts.metrics.templates import pool
from facerts.report.markdown import markdown_table
from facerts.scoring import Scorer

ENROLLED = 4
SPOILED = 0.2
FPIR = 0.01
STRANGERS = 800
SECOND_NAME = " again"
HALVES = ("chosen on", "confirmed on")
SPOILS = ("degraded", "another person", "pet", "second name")
Crop = NDArray[np.uint8]
# Weights of images in a template, by name, from the percentile of their quality.
WEIGHTS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "mean (all equal)": np.ones_like,
    "percentile / 10, at most 1": lambda p: np.clip(p / 10, 0.01, 1),
    "percentile / 30, at most 1": lambda p: np.clip(p / 30, 0.01, 1),
    "percentile / 50, at most 1": lambda p: np.clip(p / 50, 0.01, 1),
    "percentile": lambda p: np.clip(p / 100, 0.01, 1),
    "exp(percentile / 100)": lambda p: np.exp(p / 100),
    "exp(3 percentile / 100)": lambda p: np.exp(3 * p / 100),
}


class Rates:
    """Shares by name: counts of each person, summed over seeds."""

    def __init__(self, people: int) -> None:
        self.people = people
        self.counts: dict[str, NDArray[np.float64]] = {}

    def add(self, name: str, person: NDArray[np.integer], hit: NDArray[np.bool_]) -> None:
        counts = self.counts.setdefault(name, np.zeros((2, self.people)))
        np.add.at(counts[0], person, hit)
        np.add.at(counts[1], person, 1)

    def resampled(self, name: str) -> NDArray[np.float64]:
        """The share, then that of each resample of the people."""
        counts = self.counts[name]
        drawn = [counts @ weights for weights in subject_counts(self.people, 1000, seed=0)]
        totals = np.array([counts.sum(axis=1), *drawn])
        return np.asarray(totals[:, 0] / np.maximum(totals[:, 1], 1e-9))


def main() -> None:
    options = arguments()
    scorer = facerts.load(options.model)
    source = open_source(options.people)
    assert source.labels is not None
    pools = embeddings(scorer, source, options)
    half = len(source.identities) // 2
    labels = source.labels
    results = []
    for number in range(2):
        rates = Rates(half)
        others = Rates(len(source.identities) - half)
        for seed in range(options.seeds):
            measure(scorer, pools, labels, number, half, seed, rates, others)
        results.append((rates, others))
    print_tables(results)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument(
        "--people", required=True, help="Aligned faces with identities, held out from training."
    )
    parser.add_argument("--strangers", required=True, help="Aligned faces with other identities.")
    parser.add_argument("--pets", required=True, help="Crops of cats and dogs.")
    parser.add_argument("--model", help="Model (default: the one that ships).")
    parser.add_argument("--seeds", type=int, default=5, help="Number of random spoilings (default: 5).")
    parser.add_argument("--cache", type=Path, required=True, help="File (.npz) that keeps the embeddings.")
    return parser.parse_args()


def embeddings(scorer: Scorer, source: Source, options: argparse.Namespace) -> dict[str, Enrollments]:
    """Embeddings of the images as they are, of degraded ones for each seed, of strangers and of pets."""
    strangers, pets = open_source(options.strangers), open_source(options.pets)
    assert strangers.labels is not None
    first = np.unique(strangers.labels, return_index=True)[1][:STRANGERS]
    parts: dict[str, tuple[int, Callable[[int], Crop]]] = {
        "clean": (len(source), source.crop),
        "strangers": (len(first), lambda index: strangers.crop(int(first[index]))),
        "pets": (len(pets), pets.crop),
    }
    for seed in range(options.seeds):
        parts[f"degraded {seed}"] = (len(source), lambda index, seed=seed: degraded(source, index, seed))
    cached = {name: embed(scorer, *part, name, options.cache) for name, part in parts.items()}
    development = np.array([Path(pets.key(index)).stem[-1] in "01" for index in range(len(pets))])
    cached["pets 0"], cached["pets 1"] = (cached["pets"].take(development == flag) for flag in (True, False))
    return cached


def degraded(source: Source, index: int, seed: int) -> Crop:
    kind, severity = corruption(index, seed)
    return degrade(source.crop(index), kind, severity, (seed, index))


def corruption(index: int, seed: int) -> tuple[str, float]:
    random = np.random.default_rng((seed, index))
    return list(KINDS)[random.integers(len(KINDS))], float(random.uniform(0.9, 1))


def embed(scorer: Scorer, count: int, crop: Callable[[int], Crop], name: str, cache: Path) -> Enrollments:
    def compute() -> Arrays:
        starts = track(range(0, count, 64), f"embedding {name}", total=-(-count // 64), unit="batches")
        parts = [scorer.embed([crop(i) for i in range(start, min(start + 64, count))]) for start in starts]
        return {
            "embedding": np.concatenate([part.embedding for part in parts]),
            "quality": np.concatenate([part.quality for part in parts if part.quality is not None]),
        }

    file = cache.with_name(f"{cache.stem}_{name.replace(' ', '_')}.npz")
    arrays = cached_arrays(file, f"{scorer.embedder.sha256} {name} {count}", compute)
    calibration = scorer.embedder.description.calibration
    assert calibration is not None
    percentile = [calibration.percentile(float(quality)) for quality in arrays["quality"]]
    return Enrollments(
        np.full(count, ""),
        np.array([f"{name} {index}" for index in range(count)]),
        arrays["embedding"],
        arrays["quality"],
        np.array(percentile, dtype=np.float32),
    )


def measure(
    scorer: Scorer,
    pools: dict[str, Enrollments],
    labels: NDArray[np.int64],
    number: int,
    half: int,
    seed: int,
    rates: Rates,
    others: Rates,
) -> None:
    """Enroll one half, spoil it, check it, and search for both halves; counts go to the rates."""
    random = np.random.default_rng((seed, number))
    inside = (labels < half) if number == 0 else (labels >= half)
    person = labels - number * half
    order = random.permutation(np.flatnonzero(inside))
    order = order[np.argsort(labels[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
    enrolled, probes = order[rank < ENROLLED], order[rank >= ENROLLED]
    unmated = np.flatnonzero(~inside)
    names = np.array([f"{value:04d}" for value in person])
    clean = replace(pools["clean"].take(enrolled), person=names[enrolled])
    spoiled, kinds = spoil(clean, enrolled, pools, number, seed, random)
    galleries = {"clean": gallery_of(scorer, clean), "spoiled": gallery_of(scorer, spoiled)}
    findings = galleries["spoiled"].check()
    flagged_people = {found.person for found in findings if found.reason is Reason.SAME_PERSON}
    flagged = {found.path for found in findings if found.path}
    galleries["checked"] = galleries["spoiled"].remove(
        people=flagged_people,
        images=[(f.person, f.path) for f in findings if f.path and f.person not in flagged_people],
    )
    hit = np.isin(spoiled.path, sorted(flagged))
    second = np.isin(spoiled.person, sorted(flagged_people))
    doubled = {name.removesuffix(SECOND_NAME) for name in spoiled.person if name.endswith(SECOND_NAME)}
    either = {name.removesuffix(SECOND_NAME) for name in flagged_people}
    owner = person[enrolled]
    for kind in SPOILS[:3]:
        rows = kinds == kind
        rates.add(kind, owner[rows], (hit | second)[rows])
    for kind in KINDS:
        rows = np.array(
            [
                k == "degraded" and corruption(int(i), seed)[0] == kind
                for k, i in zip(kinds, enrolled, strict=True)
            ]
        )
        rates.add(f"degraded: {kind}", owner[rows], (hit | second)[rows])
    people = np.array(sorted(int(name) for name in doubled))
    rates.add("second name", people, np.array([f"{value:04d}" in either for value in people]))
    good = kinds == "good"
    rates.add("false alarms", owner[good], hit[good])
    rest = np.array([value for value in range(half) if f"{value:04d}" not in doubled])
    rates.add("false alarms, people", rest, np.array([f"{value:04d}" in flagged_people for value in rest]))
    before = galleries["clean"].check()
    rates.add("false alarms, clean gallery", owner, np.isin(clean.path, [found.path for found in before]))
    for name, gallery in galleries.items():
        score, right = best_match(
            gallery.people, gallery.templates, pools["clean"].embedding[probes], names[probes]
        )
        stranger = (pools["clean"].embedding[unmated] @ gallery.templates.T).max(axis=1)
        at = fnir_at_fpir(score, np.where(right, 1, 2), stranger, FPIR).threshold
        rates.add(f"FNIR, {name}", person[probes], ~right | (score < at))
        for fpir in (0.1, 0.03, FPIR):
            own = gallery.threshold(fpir).cosine
            others.add(f"FPIR {fpir:g}, {name}", labels[unmated] % half, stranger >= own)
        rates.add(f"FNIR at its own threshold, {name}", person[probes], ~right | (score < own))
    for size in (15, 50):
        for _ in range(10):
            some = random.permutation(half)[:size]
            small = gallery_of(scorer, clean.take(np.isin(owner, some)))
            stranger = (pools["clean"].embedding[unmated] @ small.templates.T).max(axis=1)
            for fpir in (0.1, 0.03, FPIR):
                hits = stranger >= small.threshold(fpir).cosine
                others.add(f"FPIR {fpir:g}, {size} people", labels[unmated] % half, hits)
    for name, weight in WEIGHTS.items():
        for state, images in (("clean", clean), ("spoiled", spoiled)):
            people, rows = np.unique(images.person, return_inverse=True)
            templates = pool(images.embedding, rows, weights=weight(images.percentile.astype(np.float64)))
            score, right = best_match(people, templates, pools["clean"].embedding[probes], names[probes])
            stranger = (pools["clean"].embedding[unmated] @ templates.T).max(axis=1)
            at = fnir_at_fpir(score, np.where(right, 1, 2), stranger, FPIR).threshold
            rates.add(f"{name}, {state}", person[probes], ~right | (score < at))


def spoil(
    clean: Enrollments,
    index: NDArray[np.int64],
    pools: dict[str, Enrollments],
    number: int,
    seed: int,
    random: np.random.Generator,
) -> tuple[Enrollments, NDArray[np.str_]]:
    """Spoiled enrollments, and the kind of each."""
    kinds = np.full(len(clean), "good", dtype="<U20")
    share = int(SPOILED * len(clean)) // len(SPOILS)
    order = random.permutation(len(clean))
    strangers, pets = pools["strangers"], pools[f"pets {number}"]
    middle = len(strangers) // 2
    replacements = (
        pools[f"degraded {seed}"].take(index[order[:share]]),
        strangers.take(number * middle + random.permutation(middle)[:share]),
        pets.take(random.permutation(len(pets))[:share]),
    )
    columns = {name: values.copy() for name, values in vars(clean).items()}
    columns["path"] = columns["path"].astype("<U40")
    columns["person"] = columns["person"].astype("<U20")
    for place, (kind, images) in enumerate(zip(SPOILS, replacements, strict=False)):
        rows = order[place * share : (place + 1) * share]
        kinds[rows] = kind
        for name in ("path", "embedding", "quality", "percentile"):
            columns[name][rows] = getattr(images, name)
    for person in random.permutation(np.unique(clean.person)):
        rows = np.flatnonzero((clean.person == person) & (kinds == "good"))
        if len(rows) == ENROLLED and (kinds == "second name").sum() < share:
            columns["person"][rows[:2]] = f"{person}{SECOND_NAME}"
            kinds[rows[:2]] = "second name"
    return Enrollments(**columns), kinds


def gallery_of(scorer: Scorer, images: Enrollments) -> Gallery:
    return Gallery.from_enrollments(scorer.embedder.name, scorer.embedder.sha256, images)


def best_match(
    people: NDArray[np.str_],
    templates: NDArray[np.float32],
    probes: NDArray[np.float32],
    names: NDArray[np.str_],
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """The best score of each probe, and whether it is that of its person, under either name."""
    scores = probes @ templates.T
    found = np.char.replace(people[scores.argmax(axis=1)], SECOND_NAME, "")
    return scores.max(axis=1), found == names


def print_tables(results: list[tuple[Rates, Rates]]) -> None:
    def table(title: str, names: list[str], which: int) -> None:
        rows = [[name, *(shown(result[which].resampled(name)) for result in results)] for name in names]
        print(markdown_table([title, *HALVES], rows), end="\n\n")

    table("found, %", [*SPOILS, *(f"degraded: {kind}" for kind in KINDS)], 0)
    table(
        "flagged though correct, %", [f"false alarms{end}" for end in ("", ", people", ", clean gallery")], 0
    )
    table(
        "FNIR at a measured FPIR of 0.01, %", [f"FNIR, {name}" for name in ("clean", "spoiled", "checked")], 0
    )
    own = [f"FNIR at its own threshold, {name}" for name in ("clean", "spoiled", "checked")]
    table("FNIR at the threshold for FPIR 0.01, %", own, 0)
    rows = []
    for name in ("FNIR", "FNIR at its own threshold"):
        cells = []
        for rates, _ in results:
            clean, spoiled, checked = (
                rates.resampled(f"{name}, {state}") for state in ("clean", "spoiled", "checked")
            )
            cells.append(shown((spoiled - checked) / np.maximum(spoiled - clean, 1e-9)))
        rows.append([name, *cells])
    print(markdown_table(["loss restored, %", *HALVES], rows), end="\n\n")
    sizes = ("15 people", "50 people", "clean", "spoiled", "checked")
    table("measured FPIR, %", [f"FPIR {fpir:g}, {size}" for size in sizes for fpir in (0.1, 0.03, FPIR)], 1)
    table(
        "FNIR by weighting, %", [f"{name}, {state}" for state in ("clean", "spoiled") for name in WEIGHTS], 0
    )


def shown(values: NDArray[np.float64]) -> str:
    low, high = percentile_interval(values[1:])
    return f"{100 * values[0]:.1f} [{100 * low:.1f}, {100 * high:.1f}]"


if __name__ == "__main__":
    run(main)
