"""The metrics on sets as large as they are meant for, beside the plain way to the same numbers, in turn in one run.

    ijbc     IJB-C's 1:1 pairs, 15,658,489 of 3,531 people; roc with AUROC, EER, TAR at 1e-6 to 1e-1 beside roc_curve
    billion  every pair of 45,000 images of 5,000 people, 1.01e9 of them impostors
    searches the ten best of a gallery of 200,000 for 10,000 probes; faiss: IndexFlatIP

All data is drawn. Every measure runs in a process of its own; drawing (and filling an index) does not count in its
seconds. Peak memory is the whole process's; how high it was when the clock started stands beside it. The plain loops
take a part of the rows, enough for a rate; of the pairs the first rows, where the upper triangle wastes nearly none.

    python tools/bench_metrics.py --rounds 3
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module, util
from typing import Any

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


def main() -> None:
    parser = parser_of(__doc__, {"--quick": (False, "a tenth of the sizes, to see that it runs")}, rounds=3)
    options = parser.parse_args()
    print(f"{machine()}, median of {options.rounds} rounds (lowest to highest)")
    for part, names in PARTS.items():
        print(part.__name__)
        run_part(part, names, options.rounds, 10 if options.quick else 1)


def run_part(part: Callable[..., Any], names: Sequence[str], rounds: int, share: int) -> None:
    unit = "searches/s" if part is searches else "pairs/s"
    present = [name for name in names if util.find_spec(PLAIN.get(name, "numpy"))]
    candidates = {name: partial(in_process, part, share, name) for name in present}
    taken = alternate(candidates, rounds, warm_up=0)
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


def clocked(work: Callable[[], int]) -> dict[str, float]:
    """Seconds of some work, which returns its number of items, and the peak of memory in MiB before and after."""
    before, began = peak_mib(), time.perf_counter()
    items = work()
    return {"items": items, "before": before, "seconds": time.perf_counter() - began, "peak": peak_mib()}


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


def ijbc(share: int, how: str) -> dict[str, float]:
    (scores, same), subjects = draw_pairs(share), None
    if how == "intervals over people":
        people = SUBJECTS // share
        subjects = np.random.default_rng(1).integers(0, people, (len(same), 2), dtype=np.int32)
        subjects[:, 1] = (subjects[:, 0] + 1 + subjects[:, 1] % (people - 1)) % people
        subjects[same, 1] = subjects[same, 0]
    roc_curve = import_module("sklearn.metrics").roc_curve if how == "scikit-learn" else None

    def work() -> int:
        if how == "roc":
            curve = roc(scores, same)
            curve.auroc(), curve.eer(), [curve.tar_at_far(far) for far in FARS]
        elif roc_curve:
            roc_curve(same, scores, drop_intermediate=False)
        else:
            verification_intervals(scores, same, FARS, subjects=subjects)
        return len(scores)

    return clocked(work)


def billion(share: int, how: str) -> dict[str, float]:
    people = np.repeat(np.arange(PEOPLE // share), IMAGES)
    embedding, numbers = draw_unit(PEOPLE // share, IMAGES), np.arange(len(people))

    def work() -> int:
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

    return clocked(work)


def searches(share: int, how: str) -> dict[str, float]:
    asked = PLAIN_PROBES if how == "plain argsort" else PROBES
    gallery, probes = draw_unit(GALLERY // share, 1), draw_unit(asked // share, 1, seed=2)
    if how == "faiss":
        index = import_module("faiss").IndexFlatIP(SIZE)
        index.add(gallery)

    def work() -> int:
        if how == "search":
            search(gallery, probes, BEST)
        elif how == "plain argsort":
            np.argsort(-(probes @ gallery.T), axis=1)[:, :BEST]
        else:
            index.search(probes, BEST)
        return len(probes)

    return clocked(work)


# The first of each part is set against those of its names that stand among the plain ones, with what they need.
PARTS: dict[Callable[[int, str], dict[str, float]], Sequence[str]] = {
    ijbc: ("roc", "intervals over pairs", "intervals over people", "scikit-learn"),
    billion: ("all_pairs", "all_pairs, far_intervals", "plain NumPy"),
    searches: ("search", "plain argsort", "faiss"),
}
PLAIN = {"scikit-learn": "sklearn", "plain NumPy": "numpy", "plain argsort": "numpy", "faiss": "faiss"}


if __name__ == "__main__":
    main()
