"""The metrics on sets as large as they are meant for, beside the plain way to the same numbers, in turn in one run.

    ijbc     IJB-C's 1:1 pairs, 15,658,489 of 3,531 people; roc with AUROC, EER, TAR at 1e-6 to 1e-1 beside roc_curve
    billion  every pair of 45,000 images of 5,000 people, 1.01e9 of them impostors
    search   the ten best of a gallery of 200,000 for 10,000 probes; faiss: IndexFlatIP

All data is drawn. Every measure runs in a process of its own; drawing (and filling an index) does not count in its
seconds. Peak memory is the whole process's; how high it was when the clock started stands beside it. The plain loops
take a part of the rows, enough for a rate; of the pairs the first rows, where the upper triangle wastes nearly none.

    python tools/bench_metrics.py --rounds 3
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module, util

import numpy as np
from bench import alternate, in_process, machine, parser_of, peak_mib, ratios, spread
from numpy.typing import NDArray

from facerts.metrics.all_pairs import all_pairs, far_intervals
from facerts.metrics.identification import search
from facerts.metrics.pair_intervals import verification_intervals
from facerts.metrics.verification import roc

FARS = [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1]
PAIRS, GENUINE, SUBJECTS = 15_658_489, 19_557, 3_531
PEOPLE, IMAGES, PLAIN_ROWS, BLOCK = 5_000, 9, 2_000, 1_000
GALLERY, PROBES, PLAIN_PROBES, BEST, SIZE = 200_000, 10_000, 500, 10, 128

# What a measure took, in MiB and seconds.
MEASURED: dict[str, float] = {}


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, to see that it runs")
    parser.add_argument("--only", metavar="NAME", help="run one measure and print its numbers")
    options = parser.parse_args()
    if options.only:
        run = next(run for run, names in PARTS.values() if options.only in names)
        items = run(10 if options.quick else 1, options.only)
        print(json.dumps({"items": items, **MEASURED}))
        return
    print(f"{machine()}, median of {options.rounds} rounds (lowest to highest)")
    for part, (_, names) in PARTS.items():
        print(part)
        run_part(names, "searches/s" if part == "search" else "pairs/s", options.rounds, options.quick)


def run_part(names: Sequence[str], unit: str, rounds: int, quick: bool) -> None:
    present = [name for name in names if util.find_spec(PLAIN.get(name, "numpy"))]
    arguments = ["--quick"] if quick else []
    taken = alternate(
        {name: partial(in_process, __file__, ["--only", name, *arguments]) for name in present},
        rounds,
        warm_up=0,
    )
    rates = {name: [run["items"] / run["seconds"] for run in runs] for name, runs in taken.items()}
    for name, runs in taken.items():
        before, seconds, peaks = ([run[key] for run in runs] for key in ("before", "seconds", "peak"))
        print(
            f"  {name:25} {spread(seconds):>24} s {statistics.median(rates[name]):13,.0f} {unit:10}"
            f"  peak {max(peaks):6,.0f} MiB ({max(before):,.0f} at the start)"
        )
    for name in (name for name in names if name in PLAIN):
        if name in present:
            print(f"  {names[0]} / {name}, {unit}: {spread(ratios(rates[names[0]], rates[name]))}")
        else:
            print(f"  {name:25} skipped: {PLAIN[name]} cannot be imported")


@contextmanager
def clock() -> Iterator[None]:
    """Measure a block into ``MEASURED``."""
    before, began = peak_mib(), time.perf_counter()
    yield
    MEASURED.update(before=before, seconds=time.perf_counter() - began, peak=peak_mib())


def draw_pairs(share: int) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    random, same = np.random.default_rng(0), np.zeros(PAIRS // share, dtype=bool)
    same[random.choice(len(same), GENUINE // share, replace=False)] = True
    scores = np.float32(0.1) * random.standard_normal(len(same), dtype=np.float32)
    scores[same] += np.float32(0.5)
    return scores, same


def draw_unit(people: int, images: int, seed: int = 1) -> NDArray[np.float32]:
    """``(people * images, SIZE)`` each person's center, the same with any seed, plus noise."""
    center = np.random.default_rng(0).standard_normal((people, SIZE), dtype=np.float32)
    noise = np.random.default_rng(seed).standard_normal((people * images, SIZE), dtype=np.float32)
    noise += np.repeat(center, images, axis=0)
    noise /= np.linalg.norm(noise, axis=1, keepdims=True)
    return noise


def ijbc(share: int, how: str) -> int:
    (scores, same), subjects = draw_pairs(share), None
    if how == "intervals over people":
        people = SUBJECTS // share
        subjects = np.random.default_rng(1).integers(0, people, (len(same), 2), dtype=np.int32)
        subjects[:, 1] = (subjects[:, 0] + 1 + subjects[:, 1] % (people - 1)) % people
        subjects[same, 1] = subjects[same, 0]
    roc_curve = import_module("sklearn.metrics").roc_curve if how == "scikit-learn" else None
    with clock():
        if how == "roc":
            curve = roc(scores, same)
            curve.auroc(), curve.eer(), [curve.tar_at_far(far) for far in FARS]
        elif roc_curve:
            roc_curve(same, scores, drop_intermediate=False)
        else:
            verification_intervals(scores, same, FARS, subjects=subjects)
    return len(scores)


def billion(share: int, how: str) -> int:
    people = np.repeat(np.arange(PEOPLE // share), IMAGES)
    embedding, numbers = draw_unit(PEOPLE // share, IMAGES), np.arange(len(people))
    with clock():
        if how != "plain NumPy":
            pairs = all_pairs(embedding, people)
            if how == "all_pairs, far_intervals":
                far_intervals(pairs, FARS)
            return pairs.impostors
        counts = np.zeros(65536, dtype=np.int64)
        for rows in numbers[: PLAIN_ROWS // share].reshape(-1, BLOCK // share):
            scores = embedding[rows] @ embedding.T
            chosen = scores[(numbers > rows[:, None]) & (people != people[rows, None])]
            counts += np.histogram(chosen, bins=65536, range=(-1.0, 1.0))[0]
        return int(counts.sum())


def searches(share: int, how: str) -> int:
    asked = PLAIN_PROBES if how == "plain argsort" else PROBES
    gallery, probes = draw_unit(GALLERY // share, 1), draw_unit(asked // share, 1, seed=2)
    if how == "faiss":
        index = import_module("faiss").IndexFlatIP(SIZE)
        index.add(gallery)
    with clock():
        if how == "search":
            search(gallery, probes, BEST)
        elif how == "plain argsort":
            np.argsort(-(probes @ gallery.T), axis=1)[:, :BEST]
        else:
            index.search(probes, BEST)
    return len(probes)


# The first of each part is set against those of its names that stand among the plain ones, with what they need.
PARTS: dict[str, tuple[Callable[[int, str], int], Sequence[str]]] = {
    "ijbc": (ijbc, ("roc", "intervals over pairs", "intervals over people", "scikit-learn")),
    "billion": (billion, ("all_pairs", "all_pairs, far_intervals", "plain NumPy")),
    "search": (searches, ("search", "plain argsort", "faiss")),
}
PLAIN = {"scikit-learn": "sklearn", "plain NumPy": "numpy", "plain argsort": "numpy", "faiss": "faiss"}


if __name__ == "__main__":
    main()
