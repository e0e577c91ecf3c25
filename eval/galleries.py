"""Measures galleries on people held out from training: what spoiled enrollments cost, and how many a check finds.

python eval/galleries.py --people held-out.tar --strangers train-000000.tar --pets pets/ --cache cache --seeds 5

The people are split by name into two halves. Settings were chosen on the first, with the pets for development (numbers
that end in 0 or 1); the second, with the other pets, confirms them: it is enrolled, with four images of a person and
one as a probe, and all images of the first half are searches for people who are not enrolled. A fifth of
the enrollments is spoiled: as many degraded (six corruptions, severity 0.9 to 1) as replaced by strangers' images, by
pets, or moved to a second name of the same person. A degraded image became poor if its quality is below the threshold
that keeps 95% of the faces, or its similarity to the image before below the match threshold at FMR 0.001; the others
harm nobody. The same is done with further kinds of eval/degraded_faces.py. Intervals (95%) are from resamples of the
people, all seeds of a person together. Embeddings are kept in the cache, so that an interrupted run continues and
another one takes seconds.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from common import open_people, parser_of, percent, resampled_rate, run
from degraded_faces import CHOSEN_ON, CONFIRMED_ON
from numpy.typing import NDArray
from reasons import KEEP, crop_names, is_poor

import facerts
from facerts.datasets import Source, open_source
from facerts.embedding.output_cache import Arrays, OutputCache
from facerts.galleries import Enrollments, Gallery, Limits, Listed, Reason, check_images
from facerts.images.changes import DEGRADATIONS, apply_change
from facerts.io.progress import track
from facerts.metrics.identification import fnir_at_fpir
from facerts.metrics.intervals import percentile_interval
from facerts.metrics.pooling import pool
from facerts.report.table import markdown_table
from facerts.scoring import Scorer
from facerts.scoring.reasons import NOT_A_FACE, in_order

ENROLLED = 4
SPOILED = 0.2
FPIR = 0.01
STRANGERS = 800
# People of small galleries; those of up to 24 have too few images for their own threshold.
SIZES = (15, 50, 2, 3, 5, 8)
SECOND_NAME = " again"
SPOILS = ("degraded", "another person", "pet", "second name")
STATES = ("clean", "spoiled", "checked", "checked, last faces too", "corrected by hand")
# Limits of quality, with a reason, and for other people.
LIMITS = [Limits(*each) for each in ((0.5, 10, 0.08), (0.5, 100, 0.08), (1, 10, 0.08), (0.5, 10, 0.04), (0.5, 10, 0.1))]
# Severe kinds that are none of the six corruptions.
FURTHER = {
    name: degradation
    for name, (_, degradation) in CONFIRMED_ON.items()
    if name not in CHOSEN_ON or name in ("dark", "bright")
}
Crop = NDArray[np.uint8]
# Weights of images in a template, by name, from the percentile of their quality.
WEIGHTS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "mean (all equal)": np.ones_like,
    "percentile / 10, at most 1": lambda p: np.clip(p / 10, 0.01, 1),
    "percentile / 30, at most 1": lambda p: np.clip(p / 30, 0.01, 1),
    "percentile / 50, at most 1": lambda p: np.clip(p / 50, 0.01, 1),
    "percentile": lambda p: np.clip(p / 100, 0.01, 1),
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
        return resampled_rate(*self.counts[name])


def main() -> None:
    options = arguments()
    scorer = facerts.load(options.model)
    source, labels = open_people(options.people)
    pools = embeddings(scorer, source, options)
    half = len(source.identities) // 2
    rates, others = Rates(len(source.identities) - half), Rates(half)
    for seed in range(options.seeds):
        measure(scorer, pools, labels, half, seed, rates, others)
    print_tables(rates, others)


def arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--people", required=True, help="Aligned faces with identities, held out from training.")
    parser.add_argument("--strangers", required=True, help="Aligned faces with other identities.")
    parser.add_argument("--pets", required=True, help="Crops of cats and dogs.")
    parser.add_argument("--model", help="Model (default: the one that ships).")
    parser.add_argument("--seeds", type=int, default=5, help="Number of random spoilings (default: 5).")
    parser.add_argument("--cache", type=Path, required=True, help="Folder that keeps the embeddings.")
    return parser.parse_args()


def embeddings(scorer: Scorer, source: Source, options: argparse.Namespace) -> dict[str, Enrollments]:
    """Embeddings of the images as they are, of degraded ones for each seed, of strangers and of pets."""
    (strangers, people), pets = open_people(options.strangers), open_source(options.pets)
    first = np.unique(people, return_index=True)[1][:STRANGERS]
    parts: dict[str, tuple[int, Callable[[int], Crop]]] = {
        "clean": (len(source), source.crop),
        "strangers": (len(first), lambda index: strangers.crop(int(first[index]))),
        "pets": (len(pets), pets.crop),
    }
    for seed in range(options.seeds):
        parts[f"degraded {seed}"] = (len(source), lambda index, seed=seed: degraded(source, index, seed))
        parts[f"further {seed}"] = (len(source), lambda index, seed=seed: further(source, index, seed))
    cached = {name: embed(scorer, *part, name, options.cache) for name, part in parts.items()}
    cached["pets"] = cached["pets"].take([Path(pets.key(index)).stem[-1] not in "01" for index in range(len(pets))])
    cached["strangers"] = cached["strangers"].take(np.arange(len(first) // 2, len(first) // 2 * 2))
    return cached


def degraded(source: Source, index: int, seed: int) -> Crop:
    kind, severity = corruption(index, seed, DEGRADATIONS)
    return apply_change(source.crop(index), kind, severity, (seed, index))


def further(source: Source, index: int, seed: int) -> Crop:
    kind, severity = corruption(index, seed, FURTHER)
    return FURTHER[kind](source.crop(index), severity, np.random.default_rng((seed, index)))


def corruption(index: int, seed: int, kinds: Mapping[str, object]) -> tuple[str, float]:
    random = np.random.default_rng((seed, index))
    return list(kinds)[random.integers(len(kinds))], float(random.uniform(0.9, 1))


def embed(scorer: Scorer, count: int, crop: Callable[[int], Crop], name: str, cache: Path) -> Enrollments:
    quality = scorer.quality
    assert quality is not None

    def compute() -> Arrays:
        parts = []
        for start in track(range(0, count, 64), f"embedding {name}", total=-(-count // 64), unit="batches"):
            crops = np.stack([crop(index) for index in range(start, min(start + 64, count))])
            outputs = scorer.embed(crops)
            reasons = [";".join(in_order(names)) for names in crop_names(scorer, crops, outputs)]
            parts.append((outputs.embedding, outputs.quality, np.array(reasons, dtype=str)))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        return dict(zip(("embedding", "quality", "reasons"), columns, strict=True))

    arrays = OutputCache(cache).arrays(
        {"model": scorer.recognizer.sha256, "quality": quality.sha256, "part": name, "images": count}, compute
    )
    calibration = quality.calibration
    assert calibration is not None
    percentile = [calibration.percentile(float(value)) for value in arrays["quality"]]
    return Enrollments(
        np.full(count, ""),
        np.array([f"{name} {index}" for index in range(count)]),
        arrays["embedding"],
        arrays["quality"],
        np.array(percentile, dtype=np.float32),
        arrays["reasons"],
        scorer.recognizer.name,
        scorer.recognizer.sha256,
    )


def measure(
    scorer: Scorer,
    pools: dict[str, Enrollments],
    labels: NDArray[np.int64],
    half: int,
    seed: int,
    rates: Rates,
    others: Rates,
) -> None:
    """Enroll the second half, spoil it, check it, and search for both halves; counts go to the rates."""
    random = np.random.default_rng((seed, 1))
    inside, person = labels >= half, labels - half
    order = random.permutation(np.flatnonzero(inside))
    order = order[np.argsort(labels[order], kind="stable")]
    rank = np.arange(len(order)) - np.searchsorted(labels[order], labels[order])
    enrolled, probes = order[rank < ENROLLED], order[rank >= ENROLLED]
    unmated = np.flatnonzero(~inside)
    names = np.array([f"{value:04d}" for value in person])
    clean = replace(pools["clean"].take(enrolled), person=names[enrolled])
    owner = person[enrolled]
    has_reason, low = clean.reasons != "", clean.percentile < 30
    rates.add("with a reason", owner, has_reason)
    rates.add("with a reason, below percentile 30", owner[low], has_reason[low])
    rates.add("`not_a_face`", owner, np.char.find(clean.reasons, NOT_A_FACE) >= 0)
    before = random.bit_generator.state
    for pool_name, kinds in (("further", FURTHER), ("degraded", DEGRADATIONS)):
        random.bit_generator.state = before
        changed = pools[f"{pool_name} {seed}"].take(enrolled)
        poor = is_poor(scorer, changed, clean)
        spoiled, spoils = spoil(clean, changed, pools, random)
        findings = check_images(spoiled)
        flagged_people = {found.person for found in findings if found.reason is Reason.SAME_PERSON}
        paths = {found.path for found in findings if found.path}
        hit = np.isin(spoiled.path, sorted(paths)) | np.isin(spoiled.person, sorted(flagged_people))
        kind = np.array([corruption(int(index), seed, kinds)[0] for index in enrolled])
        is_degraded = spoils == "degraded"
        rates.add(pool_name, owner[is_degraded], hit[is_degraded])
        for name in kinds:
            rows = is_degraded & poor & (kind == name)
            rates.add(f"{pool_name}, became poor: {name}", owner[rows], hit[rows])
        rates.add(f"{pool_name}, became poor", owner[is_degraded & poor], hit[is_degraded & poor])
    good = spoils == "good"
    by_kind = {
        "degraded, became poor": is_degraded & poor,
        **{name: spoils == name for name in SPOILS[1:3]},
        "false alarms": good,
    }
    for name in SPOILS[1:3]:
        rates.add(name, owner[by_kind[name]], hit[by_kind[name]])
    rates.add("false alarms", owner[good], np.isin(spoiled.path, sorted(paths))[good])
    kept = (spoiled.quality >= scorer.threshold(KEEP)) & (np.char.find(spoiled.reasons, NOT_A_FACE) < 0)
    built = check_images(spoiled.take(kept))
    out = {"build and check": ~kept | np.isin(spoiled.path, [found.path for found in built])}
    for limits in LIMITS:
        out[shown_limits(limits)] = np.isin(spoiled.path, [found.path for found in check_images(spoiled, limits)])
    for by, is_out in out.items():
        for name, rows in by_kind.items():
            rates.add(f"{by}: {name}", owner[rows], is_out[rows])
    doubled = {name.removesuffix(SECOND_NAME) for name in spoiled.person if name.endswith(SECOND_NAME)}
    either = {name.removesuffix(SECOND_NAME) for name in flagged_people}
    people = np.array(sorted(int(name) for name in doubled))
    rates.add("second name", people, np.array([f"{value:04d}" in either for value in people]))
    rest = np.array([value for value in range(rates.people) if f"{value:04d}" not in doubled])
    rates.add("false alarms, people", rest, np.array([f"{value:04d}" in flagged_people for value in rest]))
    checked, all_checked = Gallery(spoiled), Gallery(spoiled)
    checked.remove(findings=findings)
    all_checked.remove(findings=[Listed(found.person, found.path, "") for found in findings])
    by_hand = replace(spoiled, person=np.char.replace(spoiled.person, SECOND_NAME, ""))
    galleries = {
        "clean": clean,
        "spoiled": spoiled,
        "checked": checked.read(),
        "checked, last faces too": all_checked.read(),
        "corrected by hand": by_hand.take(good | (spoils == "second name")),
    }
    in_clean = {found.path for found in check_images(clean)}
    rates.add("false alarms, clean gallery", owner, np.isin(clean.path, sorted(in_clean)))
    for name, gallery in galleries.items():
        score, right = best_match(gallery.people, gallery.templates, pools["clean"].embedding[probes], names[probes])
        stranger = (pools["clean"].embedding[unmated] @ gallery.templates.T).max(axis=1)
        at = fnir_at_fpir(score, np.where(right, 1, 2), stranger, FPIR).threshold
        rates.add(f"FNIR, {name}", person[probes], ~right | (score < at))
        own = gallery.threshold(FPIR).cosine
        others.add(f"FPIR {FPIR:g}, {name}", labels[unmated], stranger >= own)
        rates.add(f"FNIR at its own threshold, {name}", person[probes], ~right | (score < own))
    for size in SIZES:
        for _ in range(10):
            some = random.permutation(rates.people)[:size]
            small = clean.take(np.isin(owner, some))
            stranger = (pools["clean"].embedding[unmated] @ small.templates.T).max(axis=1)
            hits = stranger >= small.threshold(FPIR, scorer.recognizer.match_thresholds()).cosine
            others.add(f"FPIR {FPIR:g}, {size} people", labels[unmated], hits)
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
    changed: Enrollments,
    pools: dict[str, Enrollments],
    random: np.random.Generator,
) -> tuple[Enrollments, NDArray[np.str_]]:
    """Spoiled enrollments, and the kind of each; ``changed`` are the degraded images of the clean ones."""
    kinds = np.full(len(clean), "good", dtype="<U20")
    share = int(SPOILED * len(clean)) // len(SPOILS)
    order = random.permutation(len(clean))
    strangers, pets = pools["strangers"], pools["pets"]
    replacements = (
        changed.take(order[:share]),
        strangers.take(random.permutation(len(strangers))[:share]),
        pets.take(random.permutation(len(pets))[:share]),
    )
    names = ("person", "path", "embedding", "quality", "percentile", "reasons")
    columns = {name: getattr(clean, name).copy() for name in names}
    for name in ("path", "reasons"):
        columns[name] = columns[name].astype("<U60")
    columns["person"] = columns["person"].astype("<U20")
    for place, (kind, images) in enumerate(zip(SPOILS, replacements, strict=False)):
        rows = order[place * share : (place + 1) * share]
        kinds[rows] = kind
        for name in names[1:]:
            columns[name][rows] = getattr(images, name)
    for person in random.permutation(np.unique(clean.person)):
        rows = np.flatnonzero((clean.person == person) & (kinds == "good"))
        if len(rows) == ENROLLED and (kinds == "second name").sum() < share:
            columns["person"][rows[:2]] = f"{person}{SECOND_NAME}"
            kinds[rows[:2]] = "second name"
    return replace(clean, **columns), kinds


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


def print_tables(rates: Rates, others: Rates) -> None:
    def table(title: str, names: Iterable[str], of: Rates = rates) -> None:
        print(markdown_table([title, ""], [[name, cell(of, name)] for name in names]), end="\n\n")

    table("found, %", ["degraded, became poor", "degraded", *SPOILS[1:], "further, became poor", "further"])
    for name, kinds in (("degraded", DEGRADATIONS), ("further", FURTHER)):
        table(f"found of {name} that became poor, %", [f"{name}, became poor: {kind}" for kind in kinds])
    table("flagged though correct, %", [f"false alarms{end}" for end in ("", ", people", ", clean gallery")])
    table("clean images, %", ["with a reason", "with a reason, below percentile 30", "`not_a_face`"])
    kinds = ("degraded, became poor", *SPOILS[1:3], "false alarms")
    rows = [
        [by, *(shown(rates.resampled(f"{by}: {kind}")) for kind in kinds)]
        for by in ("build and check", *map(shown_limits, LIMITS))
    ]
    print(markdown_table(["flagged, %", *kinds], rows), end="\n\n")
    table("FNIR at a measured FPIR of 0.01, %", [f"FNIR, {name}" for name in STATES])
    table("FNIR at the threshold for FPIR 0.01, %", [f"FNIR at its own threshold, {name}" for name in STATES])
    sizes = (*(f"{size} people" for size in SIZES), "clean", "spoiled", "checked")
    table("measured FPIR, %", [f"FPIR {FPIR:g}, {size}" for size in sizes], others)
    table("FNIR by weighting, %", [f"{name}, {state}" for state in ("clean", "spoiled") for name in WEIGHTS])


def cell(rates: Rates, name: str) -> str:
    """A share with its interval; with the number of images where they are few."""
    share = shown(rates.resampled(name))
    return f"{share} of {rates.counts[name][1].sum():.0f}" if "became poor" in name else share


def shown_limits(limits: Limits) -> str:
    return f"{limits.percentile:g}, {limits.reason_percentile:g}, {limits.missed:g}"


def shown(values: NDArray[np.float64]) -> str:
    return percent(values[0], percentile_interval(values[1:]), form=".1f")


if __name__ == "__main__":
    run(main)
