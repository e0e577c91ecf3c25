"""Reading pictures beside the pure decoding of the same pictures, in turn in one run.

The limit is the decoding of bytes that lie in memory, by as many processes. Example:

    python tools/bench_data.py --data ../shared/data/faces/train-00000*.tar --workers 2
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import cv2
import numpy as np

from facerts.data import Source, open_source
from facerts.data.drawn import write_drawn
from facerts.data.pack import pack_records
from facerts.train.loader import TrainingData
from facerts.train.recipe import load_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data", nargs="*", default=[], help="pictures with identities; drawn ones by default"
    )
    parser.add_argument("--images", type=int, default=12_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if not options.data:
            write_drawn(home / "faces", identities=100, pictures=20)
        pack_records(open_source(options.data or home / "faces"), home / "rec", check=False)
        records = open_source(home / "rec")
        count = min(options.images, len(records))
        orders = {
            "sequential": np.arange(count),
            "random": np.random.default_rng(0).permutation(len(records))[:count],
        }
        measure: dict[str, Callable[[], float]] = {
            f"read, {name}": lambda order=order: read_rate(records, order) for name, order in orders.items()
        }
        measure["decode, 1 process"] = lambda: decode_rate(records, count, 1)
        measure[f"decode, {options.workers} processes"] = lambda: decode_rate(records, count, options.workers)
        measure[f"batches, {options.workers} workers"] = lambda: batch_rate(
            home / "rec", count, options.workers
        )
        rates: dict[str, list[float]] = {name: [] for name in measure}
        for _ in range(options.rounds):
            for name, run in measure.items():
                rates[name].append(run())
    print(f"{count:,} pictures, median of {options.rounds} rounds, images/s")
    for name, values in rates.items():
        print(f"  {name:24} {statistics.median(values):10,.0f}   ({min(values):,.0f} to {max(values):,.0f})")
    limit, reached = (rates[name] for name in list(measure)[-2:])
    ratios = [value / bound for value, bound in zip(reached, limit, strict=True)]
    print(f"batches / decode limit of {options.workers} processes: median {statistics.median(ratios):.3f}")


def read_rate(source: Source, order: np.ndarray) -> float:
    """Bytes of pictures, not decoded."""
    began = time.perf_counter()
    for index in order:
        source.read(int(index))
    return len(order) / (time.perf_counter() - began)


def decode_rate(source: Source, count: int, processes: int) -> float:
    """Pure decoding by OpenCV, every process from memory; from the first one's start to the last one's end."""
    shares = [[source.read(i) for i in range(start, count, processes)] for start in range(processes)]
    context = get_context("fork")
    begin, results = context.Barrier(processes), context.Queue()
    workers = [context.Process(target=_decode, args=(share, begin, results)) for share in shares]
    for worker in workers:
        worker.start()
    spans = [results.get() for _ in workers]
    for worker in workers:
        worker.join()
    return count / (max(end for _, end in spans) - min(start for start, _ in spans))


def _decode(share: list[bytes], begin: object, results: object) -> None:
    cv2.setNumThreads(1)
    begin.wait()  # type: ignore[attr-defined]
    started = time.perf_counter()
    for data in share:
        cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    results.put((started, time.perf_counter()))  # type: ignore[attr-defined]


def batch_rate(folder: Path, count: int, workers: int) -> float:
    """The training loader without augmentation: random reads, decoding, batches in this process."""
    overrides = [f"data.train={folder}", f"data.workers={workers}", "data.augmentation={flip: false}"]
    recipe = load_recipe("faces_small_rts", overrides)
    data, size = TrainingData(recipe), recipe.optim.batch_size
    steps = count // size
    # Starting the workers is not reading; it is paid once in a run of hours.
    warm = 2 * workers
    batches = data.batches(0, steps + warm)
    for _ in range(warm):
        next(batches)
    began = time.perf_counter()
    images = sum(len(labels) for _, labels, _ in batches)
    return images / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
